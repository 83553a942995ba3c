"""Images of one's own: folders and archives of them, and IDX files."""

import gzip
import io
import threading
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pmbnn.data import DataError, Folds, Idx, Images, RandomSplit, digits, images
from pmbnn.models.networks import Dense

SIZE = (3, 4)
"""Height and width: not alike, so that a mistaken order shows."""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PMBNN_DATA", raising=False)
    return tmp_path


def pixels(random_seed, size=SIZE):
    """A small image in colour, ``(row, column, 3)``."""
    return np.random.default_rng(random_seed).integers(256, size=(*size, 3)).astype(np.uint8)


def image_bytes(array, ending="png", **settings):
    file = io.BytesIO()
    Image.fromarray(array).save(
        file, {"jpg": "JPEG", "tif": "TIFF"}.get(ending, ending), **settings
    )
    return file.getvalue()


def contents(parts=("",), each=6, classes=("cat", "dog", "ship")):
    """Bytes of image files by their names; their numbers are the seeds of `pixels`."""
    names = [f"{p}{c}/{i:02}.png" for p in parts for c in classes for i in range(each)]
    return {name: image_bytes(pixels(i)) for i, name in enumerate(names)}


def write(files, path="images"):
    """A folder with the files, or an archive."""
    if path.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path
    for name, content in files.items():
        (Path(path) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(path) / name).write_bytes(content)
    return path


@pytest.mark.parametrize("path", ["images", "images.zip"])
def test_a_folder_for_each_class(path):
    spec = Images(path=write(contents(), path), colour=True, standardise="none")
    loaded = spec.load()
    assert loaded.classes == ("cat", "dog", "ship")
    assert spec.rows == (len(loaded.y_train), len(loaded.y_test)) == (14, 4)
    assert spec.input_shape == loaded.input_shape == (3, *SIZE)
    assert loaded.x_train.dtype == np.float32
    assert loaded.overlap == 4 / 14
    known = {pixels(i).transpose(2, 0, 1).tobytes(): i // 6 for i in range(18)}
    for x, y in ((loaded.x_train, loaded.y_train), (loaded.x_test, loaded.y_test)):
        found = [known.pop(np.rint(255 * row).astype(np.uint8).tobytes()) for row in x]
        assert found == y.tolist()
    assert not known


def test_an_archive_is_what_its_folder_is():
    files = contents()
    folder = Images(path=write(files)).load()
    again = {f"all/{name}": content for name, content in reversed(files.items())}
    archive = Images(path=write(again | {"__MACOSX/._00.png": b"", "all/.hidden": b""}, "a.zip"))
    assert archive.load().fingerprint == folder.fingerprint


def test_a_given_split():
    spec = Images(path=write(contents(("train/", "test/"))), colour=True, standardise="none")
    loaded = spec.load()
    assert spec.rows == (18, 18)
    assert loaded.overlap == 0
    expected = [pixels(i).transpose(2, 0, 1).ravel() for i in range(18, 36)]
    np.testing.assert_allclose(loaded.x_test * 255, expected, atol=1e-3)
    assert loaded.y_test.tolist() == [0] * 6 + [1] * 6 + [2] * 6


def test_classes_and_numbers_of_images_are_chosen():
    path = write(contents(("train/", "test/"), each=12))
    spec = Images(path=path, classes=("ship", "cat"), train=10, validation=10, test=10)
    loaded = spec.load()
    assert loaded.classes == ("ship", "cat")
    assert np.bincount(loaded.y_train).tolist() == np.bincount(loaded.y_validation).tolist()
    assert spec.rows == (10, 10)
    assert spec.n_classes == 2


def test_grey_images_are_weighted_colours():
    loaded = Images(
        path=write(contents()), standardise="none", split=RandomSplit(test_size=0.5)
    ).load()
    grey = np.asarray(Image.fromarray(pixels(0)).convert("L"))
    every = np.concatenate([loaded.x_train, loaded.x_test])
    assert loaded.input_shape == (1, *SIZE)
    assert abs(every * 255 - grey.ravel()).max(axis=1).min() < 1e-3


def test_threads_leave_the_filters_of_warnings_alone(monkeypatch):
    """Several of them cannot each change them and restore them."""
    monkeypatch.setattr(images, "AT_ONCE", 1)
    before, pillow_warnings, callers = list(warnings.filters), digits.pillow_warnings, []

    def recorded():
        callers.append(threading.current_thread())
        return pillow_warnings()

    monkeypatch.setattr(digits, "pillow_warnings", recorded)
    Images(path=write(contents())).load()
    assert set(callers) == {threading.current_thread()}
    assert warnings.filters == before


@pytest.mark.parametrize("ending", ["png", "bmp", "gif", "jpg", "tif", "webp"])
def test_formats_and_sizes(ending):
    even = np.full((8, 6, 3), (200, 100, 50), np.uint8)
    files = {f"{c}/{i}.{ending}": image_bytes(even, ending) for c in "ab" for i in range(5)}
    files["a/5.png"] = image_bytes(np.dstack([even, np.full((8, 6), 255, np.uint8)]))
    spec = Images(path=write(files), colour=True, size=(4, 5), standardise="none")
    rows = spec.load().x_train.reshape(-1, 3, 20)
    assert spec.input_shape == (3, 4, 5)
    np.testing.assert_allclose(rows.mean(axis=(0, 2)) * 255, (200, 100, 50), atol=6)


def test_a_photograph_is_turned_upright():
    rotated = Image.Exif()
    rotated[0x0112] = 6  # a quarter turn clockwise
    files = {
        f"{c}/{i}.jpg": image_bytes(pixels(i), "jpg", exif=rotated) for c in "ab" for i in range(5)
    }
    assert Images(path=write(files)).load().input_shape == (1, SIZE[1], SIZE[0])


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_an_image_of_16_bits_is_turned_upright(ending):
    upright, rotated = (np.arange(12).reshape(SIZE) * 5_000).astype(np.uint16), Image.Exif()
    rotated[0x0112] = 6  # a quarter turn clockwise
    content = io.BytesIO(image_bytes(np.rot90(upright).copy(), ending, exif=rotated))
    found = digits.decode(content, "a", SIZE, colour=False, scaled=False)
    np.testing.assert_array_equal(found, np.rint(upright[None] / 257))


@pytest.mark.parametrize(
    ("kind", "value", "grey"),
    [("f4", 0.5, 128), ("f4", 1.02, 255), ("f4", 100, 100), ("i4", 200, 200), ("i4", 32_768, 128)],
)
def test_brightness_of_images_of_32_bits_is_kept(kind, value, grey):
    content = io.BytesIO(image_bytes(np.full(SIZE, value, kind), "tif"))
    found = digits.decode(content, "a", SIZE, colour=False, scaled=False)
    assert (found == grey).all()


def test_folds_of_images():
    path = write(contents(each=4))
    found = [Images(path=path, split=Folds(folds=4), seed=seed).load() for seed in range(4)]
    rows = np.concatenate([one.standardisation.undo(one.x_test) for one in found])
    assert len(np.unique(rows.round(4), axis=0)) == 12


def test_networks_take_colours():
    spec = Images(path=write(contents()), colour=True)
    first, *_ = Dense(hidden=(5,)).parameters(spec.input_shape, spec.n_classes)
    assert first.shape == (36, 5)


@pytest.mark.parametrize(
    ("files", "settings", "message"),
    [
        ({}, {}, "images: holds no images."),
        ({"0.png": b""}, {}, "images: 0.png must lie in a folder named after its class."),
        (contents() | {"cat/99.png": b"no image"}, {}, "images: cat/99.png is no image"),
        (
            contents() | {"dog/03.png": contents()["dog/03.png"][:60]},
            {},
            "images: dog/03.png cannot be read: ",
        ),
        (
            contents() | {"dog/03.png": image_bytes(pixels(0, (5, 4)))},
            {},
            "images: dog/03.png must have 3 × 4 pixels like the others, got 5 × 4: give `size`",
        ),
        (contents(), {"size": (3,)}, "`size` must be a height and a width, got [3]."),
        (
            contents(),
            {"classes": ("cat", "cow")},
            "`classes` must be one of `cat`, `dog`, `ship` of images, got 'cow'.",
        ),
        (contents(), {"classes": ("cat",)}, "images: must have at least two classes, got cat."),
        (contents(), {"classes": ("cat", "cat")}, "`classes` must name each class once, got 'cat'"),
        (
            contents(("train/", "test/")),
            {"train": 19},
            "`train` must be at most 18, the images",
        ),
        (contents(("train/", "test/")), {"validation": 10}, "`validation` must be at most 8, the"),
        (
            contents(("train/", "test/")),
            {"split": RandomSplit()},
            "`split` must be left out: images has the folders train and test itself.",
        ),
        (
            contents(("train/", "test/")) | {"test/cow/0.png": b""},
            {},
            "images: class `cow` must be in both train and test.",
        ),
        (
            contents(("train/", "val/", "test/")),
            {},
            "images: must have folders of classes, or the folders `train` and `test` of them "
            "alone, got `test`, `train`, `val`.",
        ),
        (contents(("Train/", "Test/")), {}, "images: must have folders of classes, or"),
        (contents(("train/", "test/", "docs/")), {}, "images: must have folders of classes, or"),
        (
            contents(classes=("train", "test")),
            {},
            "images: test/00.png must lie in a folder named after its class.",
        ),
    ],
)
def test_what_is_wrong_is_one_line(files, settings, message):
    Path("images").mkdir()
    spec = Images(path=write(files), **settings)
    with pytest.raises(DataError) as caught:
        spec.load()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [("none", "`path` must be there: beside"), ("text.zip", "text.zip: must be a folder or a zip")],
)
def test_no_folder_or_archive(path, message):
    Path("text.zip").write_text("no archive")
    with pytest.raises(DataError, match=message):
        Images(path=path).check()


# IDX


def idx_files(labels=(3, 7), train=30, test=20, side=5):
    """Four small files by name; labels need not be counted from 0."""
    rng, found = np.random.default_rng(0), {}
    for part, rows in (("train", train), ("t10k", test)):
        x = rng.integers(256, size=(rows, side, side))
        y = np.resize(labels, rows)
        for what, magic, array in (("images", 2051, x), ("labels", 2049, y)):
            header = np.array([magic, *array.shape], dtype=">u4").tobytes()
            name = f"{part}-{what}-idx{array.ndim}-ubyte"
            found[name] = header + array.astype(np.uint8).tobytes()
    return found


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_of_any_size_and_labels(packed):
    files = idx_files()
    if packed:
        files = {f"{name}.gz": gzip.compress(content) for name, content in files.items()}
    spec = Idx(path=write(files), train=20, validation=10)
    loaded = spec.load()
    assert spec.rows == (20, 20)
    assert spec.input_shape == loaded.input_shape == (1, 5, 5)
    assert loaded.classes == ("3", "7")
    assert sorted(np.unique(loaded.y_test)) == [0, 1]
    assert loaded.overlap == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train-labels-idx1-ubyte": None}, "train-labels-idx1-ubyte (or .gz) is missing from"),
        ({"train-images-idx3-ubyte": b"\0\0\x08\x03"}, "is truncated."),
        ({"train-images-idx3-ubyte": b"text" * 9}, "is no IDX file of images: magic must be 2051"),
        (
            {"t10k-labels-idx1-ubyte": idx_files((3, 9))["t10k-labels-idx1-ubyte"]},
            "images: class 9 of the test images has no training image.",
        ),
        (
            {"t10k-images-idx3-ubyte": idx_files(side=4)["t10k-images-idx3-ubyte"]},
            "images: test images must have (5, 5) pixels like the training images, got (4, 4).",
        ),
        (
            {"t10k-labels-idx1-ubyte": idx_files(test=19)["t10k-labels-idx1-ubyte"]},
            "images: t10k must have a label for each of 20 images, got 19.",
        ),
    ],
)
def test_what_is_wrong_with_idx_files(change, message):
    files = idx_files() | change
    spec = Idx(path=write({name: content for name, content in files.items() if content}))
    with pytest.raises(DataError) as caught:
        spec.load()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
