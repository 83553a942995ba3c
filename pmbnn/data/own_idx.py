"""Images of one's own in the format of MNIST."""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pmbnn.data.base import DataError
from pmbnn.data.idx import CHECKSUMS, find_idx, read_idx, read_shape
from pmbnn.data.local_files import Stamp, find, stamp_of
from pmbnn.data.own_pixels import OwnImages

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.pixels import RawImages


class Idx(OwnImages):
    """Grey images of four IDX files, named as those of MNIST, in the folder ``path``.

    Such are Fashion-MNIST, Kuzushiji-MNIST and others, of any size and classes; classes are
    called by the numbers of their labels.
    """

    kind: Literal["idx"] = "idx"
    has_bright_foreground: ClassVar[bool] = True

    @property
    def image_shape(self) -> tuple[int, int]:
        """Height and width of an image."""
        _, height, width = self._shape("train")
        return height, width

    def names(self) -> tuple[str, ...]:  # noqa: D102
        return tuple(str(label) for label in self._labels())

    def counts(self) -> tuple[int, int]:  # noqa: D102
        return self._shape("train")[0], self._shape("t10k")[0]

    def images(self) -> "RawImages":  # noqa: D102
        import numpy as np

        from pmbnn.data.pixels import RawImages

        x_train, y_train, x_test, y_test = (_read(s) for s in self._stamps())
        for x, y, name in ((x_train, y_train, "train"), (x_test, y_test, "t10k")):
            if len(x) != len(y):
                raise DataError(
                    f"{self.path}: {name} must have a label for each of {len(x)} images, got "
                    f"{len(y)}."
                )
        if x_train.shape[1:] != x_test.shape[1:]:
            raise DataError(
                f"{self.path}: test images must have {self.image_shape} pixels like the training "
                f"images, got {x_test.shape[1:]}."
            )
        labels = np.array(self._labels())
        strange = np.setdiff1d(y_test, labels)
        if len(strange):
            raise DataError(
                f"{self.path}: class {strange[0]} of the test images has no training image."
            )
        # Labels need not be counted from 0.
        y_train, y_test = (np.searchsorted(labels, y).astype(np.uint8) for y in (y_train, y_test))
        flat = (x.reshape(len(x), -1) for x in (x_train, x_test))
        x_train, x_test = flat
        return RawImages(x_train, y_train, x_test, y_test, "local")

    def _shape(self, part: str) -> tuple[int, ...]:
        stamps = dict(zip(CHECKSUMS, self._stamps(), strict=True))
        return _read_shape(stamps[f"{part}-images"])

    def _labels(self) -> tuple[int, ...]:
        return _distinct(self._stamps()[1])

    def _stamps(self) -> tuple[Stamp, ...]:
        folder = find(self.path, self._folders, "path")
        return tuple(stamp_of(find_idx(folder, name)) for name in CHECKSUMS)


@lru_cache(maxsize=64)
def _read_shape(stamp: Stamp) -> tuple[int, ...]:
    return read_shape(Path(stamp[0]), "images")


@lru_cache(maxsize=16)
def _distinct(stamp: Stamp) -> tuple[int, ...]:
    import numpy as np

    return tuple(np.unique(read_idx(Path(stamp[0]), "labels")).tolist())


@lru_cache(maxsize=4)
def _read(stamp: Stamp) -> "np.ndarray":
    path = Path(stamp[0])
    return read_idx(path, "images" if "images" in path.name else "labels")
