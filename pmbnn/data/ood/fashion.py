"""Images of clothes: the test half of Fashion-MNIST."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from pmbnn.data import idx
from pmbnn.data.base import Seed
from pmbnn.data.local_files import local_folder, located
from pmbnn.data.mnist import ORIGINAL_ROWS
from pmbnn.data.ood.base import OodSpec

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.ood.arrays import Digits, OodImages

CLASSES = (
    "T-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
"""Names of the labels 0 to 9."""

CHECKSUMS = {
    "t10k-images": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels": "15d484375f8d13e6eb1aabb0c3f46965",
}
"""MD5 of each unpacked original file, in hexadecimal."""

FOLDER = "fashion-mnist"
"""Where the files lie beneath the folder of data, for they are named as those of MNIST are."""


class Fashion(OodSpec):
    """The 10,000 test images of Fashion-MNIST, or ``size`` of them in equal parts of each class.

    They are read from IDX files in the folder ``fashion-mnist`` beneath the one that the
    environment variable ``PMBNN_DATA`` names, or else from OpenML, once, and then kept in the
    user's cache.

    References
    ----------
    Xiao, Rasul and Vollgraf (2017), Fashion-MNIST: a novel image dataset for benchmarking
    machine learning algorithms.
    """

    kind: Literal["fashion"] = "fashion"
    size: Annotated[int, Field(ge=1, le=ORIGINAL_ROWS[1])] | None = None
    seed: Seed = 0

    def load(self, digits: "Digits") -> "OodImages":
        """Images of clothes; the digits are not needed.

        Raises
        ------
        DataError
            The files are missing or damaged, and OpenML cannot be reached.
        """
        import numpy as np

        from pmbnn.data.ood.arrays import OodImages
        from pmbnn.data.pixels import stratified_order

        x, y, source = _read()
        rows = slice(None) if self.size is None else stratified_order(y, self.seed)[: self.size]
        labels = tuple(CLASSES[label] for label in y[rows])
        return OodImages(self.name, (x[rows] / 255.0).astype(np.float32), labels, source)


def _read() -> tuple["np.ndarray", "np.ndarray", str]:
    """Pixels and labels, uint8, and their source."""
    named = local_folder()
    if folder := located(FOLDER, *([named / FOLDER] if named else [])):
        x, y = (
            idx.read_idx(idx.find_idx(folder, name), name.split("-")[1], md5, "Fashion-MNIST")
            for name, md5 in CHECKSUMS.items()
        )
        return x.reshape(len(x), -1), y, "local"
    from pmbnn.data.openml import OpenMLSource, load_openml

    remedy = f"set PMBNN_DATA to a folder with its IDX files in {FOLDER}/"
    source = OpenMLSource("Fashion-MNIST", 1, "fashion-mnist.npz", "Fashion-MNIST", remedy)
    x, y = load_openml(source)
    test = slice(ORIGINAL_ROWS[0], None)
    return x[test], y[test], "openml"
