"""A little of all that the experiment files read from the local folder of data."""

import gzip
import io
import struct
import zipfile

import numpy as np
from makers import write_in_between
from PIL import Image

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
TABLES = ["boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht"]


def write_local_data(folder):
    """Write it beneath a folder.

    There are more images than the files set aside to choose by, hence few distinct ones.
    """
    write_in_between(folder)
    _write_uci(folder / "uci")
    _write_photographs(folder / "cifar10" / "cifar10-jpeg.zip")
    _write_idx(folder / "fashion-mnist")


def _write_uci(folder, rows=360):
    rng = np.random.default_rng(0)
    folder.mkdir()
    for name in TABLES:
        x = rng.normal(size=(rows, 3))
        y = x.sum(axis=1) + 0.1 * rng.normal(size=rows)
        lines = [",".join(f"{v:.6f}" for v in (*row, t)) for row, t in zip(x, y, strict=True)]
        with gzip.open(folder / f"{name}.csv.gz", "wt") as file:
            file.write("\n".join(["x1,x2,x3,y", *lines, ""]))
        tests = {f"test_{split}": rng.permutation(rows)[:36] for split in range(20)}
        for kind in ("splits", "gap_splits"):
            np.savez(folder / f"{name}_{kind}.npz", **tests)


def _write_photographs(path, each=600):
    rng = np.random.default_rng(0)
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as archive:
        for label in CLASSES:
            distinct = [_jpeg(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)) for _ in range(5)]
            for part, images in (("train", each), ("test", 40)):
                for at in range(images):
                    archive.writestr(f"{part}/{label}/{at:04d}.jpg", distinct[at % len(distinct)])


def _jpeg(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg")
    return file.getvalue()


def _write_idx(folder):
    rng = np.random.default_rng(0)
    distinct = rng.integers(0, 256, (50, 28, 28), dtype=np.uint8)
    folder.mkdir()
    for part, images in (("train", 10_200), ("t10k", 100)):
        at = np.arange(images) % len(distinct)
        for what, array in (("images", distinct[at]), ("labels", (at % 10).astype(np.uint8))):
            head = struct.pack(f">{array.ndim + 1}i", 2048 + array.ndim, *array.shape)
            name = f"{part}-{what}-idx{array.ndim}-ubyte.gz"
            (folder / name).write_bytes(gzip.compress(head + array.tobytes(), 1))
