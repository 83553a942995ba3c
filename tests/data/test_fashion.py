"""Images of clothes from each of their sources, with none of them reached over a network."""

import gzip
import hashlib
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.datasets
from tiers import slow_but

from pmbnn.core.errors import ConfigError
from pmbnn.data import DataError, ood, openml
from pmbnn.data.base import copies
from pmbnn.data.ood import Digits, Fashion
from pmbnn.sweep.cluster.jobs import pack_ood
from pmbnn.sweep.cluster.worker import unpack

DIGITS = Digits(np.zeros((0, 784), np.float32), ())
"""Clothes need none."""

GREYS = (np.arange(70_000) % 251).astype(np.uint8)
PIXELS = np.broadcast_to(GREYS[:, None], (70_000, 784))
LABELS = (np.arange(70_000) % 10).astype(str).astype(object)


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No data folder, an empty cache, no proxy, and no way to any network."""
    monkeypatch.delenv("PMBNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def reject(request, timeout):
        raise OSError("no way out")

    monkeypatch.setattr(urllib.request, "urlopen", reject)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Folder of data with thirty small images of clothes, whose checksums are the expected."""
    rng = np.random.default_rng(0)
    arrays = {
        "t10k-images-idx3-ubyte": (2051, rng.integers(256, size=(30, 28, 28))),
        "t10k-labels-idx1-ubyte": (2049, np.arange(30) % 10),
    }
    folder = tmp_path / "data" / "fashion-mnist"
    folder.mkdir(parents=True)
    sums = {}
    for name, (magic, array) in arrays.items():
        header = np.array([magic, *array.shape], dtype=">u4").tobytes()
        content = header + array.astype(np.uint8).tobytes()
        sums[name.split("-idx")[0]] = hashlib.md5(content, usedforsecurity=False).hexdigest()
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    monkeypatch.setattr(ood, "FASHION_CHECKSUMS", sums)
    monkeypatch.setenv("PMBNN_DATA", str(folder.parent))
    return SimpleNamespace(folder=folder, x=arrays["t10k-images-idx3-ubyte"][1].reshape(30, 784))


def test_local_files(files):
    found = Fashion().load(DIGITS)
    np.testing.assert_allclose(found.x, files.x / 255, rtol=1e-6)
    assert found.labels == ood.CLOTHES * 3
    assert (found.name, found.source) == ("fashion", "local")
    assert found.x.dtype == np.float32


def test_some_of_every_class(files):
    found = Fashion(size=10).load(DIGITS)
    assert sorted(found.labels) == sorted(ood.CLOTHES)
    rows = [np.flatnonzero((np.abs(files.x / 255 - x) < 1e-6).all(axis=1)).item() for x in found.x]
    assert [ood.CLOTHES[row % 10] for row in rows] == list(found.labels)
    other = Fashion(size=10, seed=1).load(DIGITS)
    assert not np.array_equal(other.x, found.x)


def test_more_than_there_are():
    with pytest.raises(ConfigError):
        Fashion(size=10_001)


def test_a_foreign_file(files, monkeypatch):
    """The digits of MNIST are named alike."""
    monkeypatch.setitem(ood.FASHION_CHECKSUMS, "t10k-images", "0" * 32)
    with pytest.raises(DataError, match="is not the original Fashion-MNIST file: its MD5 must be"):
        Fashion().load(DIGITS)


def test_a_missing_file(files):
    (files.folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(
        DataError, match="t10k-labels-idx1-ubyte .* is missing from .*fashion-mnist"
    ):
        Fashion().load(DIGITS)


def test_openml_stands_in(tmp_path, monkeypatch):
    """Its last 10,000 rows, kept beside MNIST in the cache."""
    calls = []

    def fetch(name, **settings):
        calls.append((name, settings["version"]))
        return SimpleNamespace(data=PIXELS, target=LABELS)

    monkeypatch.setenv("PMBNN_DATA", str(tmp_path))  # of digits only
    monkeypatch.setattr(
        urllib.request, "urlopen", lambda *_, **__: SimpleNamespace(close=lambda: None)
    )
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    found = Fashion().load(DIGITS)
    assert found.source == "openml"
    np.testing.assert_allclose(found.x[:, 0], GREYS[60_000:] / 255, rtol=1e-6)
    assert found.labels == ood.CLOTHES * 1000
    monkeypatch.setattr(urllib.request, "urlopen", None)
    np.testing.assert_array_equal(Fashion().load(DIGITS).x, found.x)
    assert calls == [("Fashion-MNIST", 1)]
    assert [path.name for path in openml.cache_folder().iterdir()] == ["fashion-mnist.npz"]


@pytest.mark.parametrize(
    "source", slow_but(["files", "downloaded"], ["files", "kept", "downloaded"])
)
def test_they_go_to_workers_of_a_cluster(source, request, monkeypatch, tmp_path):
    """Which have neither files nor a way out."""
    if source == "files":
        request.getfixturevalue("files")
    answer = SimpleNamespace(data=PIXELS, target=LABELS)
    monkeypatch.setattr(openml, "_fetch", lambda *_, **__: answer)
    if source == "kept":
        Fashion().load(DIGITS)
    carried = pack_ood(Fashion())
    expected = Fashion().load(DIGITS)
    paths = unpack(tuple(carried), tuple(carried.values()), tmp_path / "there")
    monkeypatch.delenv("PMBNN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    monkeypatch.setattr(openml, "_fetch", None)
    with pytest.raises(DataError):
        Fashion().load(DIGITS)
    with copies({file.setting: path for file, path in zip(carried, paths, strict=True)}):
        found = Fashion().load(DIGITS)
    np.testing.assert_array_equal(found.x, expected.x)
    assert (found.labels, found.source) == (expected.labels, expected.source)


def test_what_is_not_there_does_not_go():
    assert pack_ood(Fashion()) == {}


def test_offline_is_an_error_that_names_the_remedy():
    with pytest.raises(DataError, match="Fashion-MNIST is unavailable from OpenML") as caught:
        Fashion().load(DIGITS)
    assert str(caught.value).endswith(
        "(no way out): set PMBNN_DATA to a folder with its IDX files in fashion-mnist/."
    )
