"""Any data set of OpenML, with no network reached."""

import urllib.request
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets

from pmbnn.data import DataError, OpenML, RandomSplit, openml, tabular

FRAME = pd.DataFrame(
    {
        "length": np.arange(30) / 7,
        "sex": pd.Categorical([None, *["F", "M"] * 14, "F"]),
        "1": pd.Categorical(["1", "2", "3"] * 10),
        "who": np.repeat(np.arange(6), 5),
    }
)
SETTINGS = {"missing": "drop", "split": RandomSplit(group="who")}


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """An empty cache, and no way to any network."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tabular._read.cache_clear()

    def reject(request, timeout):
        raise URLError(OSError("no way out"))

    def fail(*args, **kwargs):
        raise AssertionError("the download was tried")

    monkeypatch.setattr(urllib.request, "urlopen", reject)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fail)
    return tmp_path / "pmbnn" / "openml"


@pytest.fixture
def asked(monkeypatch):
    """What scikit-learn is asked for; it gives the small frame."""
    calls = []

    def fetch(name=None, **settings):
        calls.append(settings | {"name": name})
        return SimpleNamespace(frame=FRAME.copy(), target_names=["1"])

    monkeypatch.setattr(openml, "_check_reachable", lambda: None)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    return calls


@pytest.mark.parametrize(
    ("named", "by", "file"),
    [
        ({"id": 61}, {"data_id": 61, "name": None}, "61.json.gz"),
        ({"name": "a b", "version": 2}, {"name": "a b", "version": 2}, "a-b_2.json.gz"),
    ],
)
def test_downloaded_once(alone, asked, named, by, file):
    spec = OpenML(**named, **SETTINGS)
    first = spec.load()
    assert by.items() <= asked[0].items()
    assert first.features == ("length", "sex=F", "sex=M")
    assert first.classes == ("1", "2", "3")
    assert sum(spec.rows) == 29
    assert first.source == "openml"
    assert (alone / file).is_file()
    tabular._read.cache_clear()
    assert spec.load().fingerprint == first.fingerprint
    assert len(asked) == 1


@pytest.mark.parametrize("position", [-3, 40])
def test_a_damaged_cache_is_downloaded_anew(alone, asked, position):
    """Its checksum is that of gzip."""
    spec = OpenML(id=61, **SETTINGS)
    first = spec.load()
    path = alone / "61.json.gz"
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    tabular._read.cache_clear()
    assert spec.load().fingerprint == first.fingerprint
    assert len(asked) == 2


def test_another_target(asked):
    loaded = OpenML(id=61, target="length", without=("sex",), split=RandomSplit(group="who")).load()
    assert loaded.classes == ()
    assert loaded.features == ("1=1", "1=2", "1=3")


def test_without_a_network_it_says_so():
    with pytest.raises(DataError) as caught:
        OpenML(name="iris", version=1).check()
    assert str(caught.value) == "iris, version 1 is unavailable from OpenML (no way out)."


def test_no_target(asked, monkeypatch):
    several = SimpleNamespace(frame=FRAME, target_names=["1", "sex"])
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", lambda **settings: several)
    with pytest.raises(
        DataError, match="`target` must be given: OpenML names none, or several, of"
    ):
        OpenML(id=61).check()


@pytest.mark.parametrize(
    "named",
    [
        {},
        {"id": 1, "name": "iris"},
        {"id": 1, "version": 1},
        {"name": "iris"},
        {"id": 1, "name": "a", "version": 1},
    ],
)
def test_it_is_named_once(named):
    with pytest.raises(ValueError, match="must have either `id`, or `name` and `version`"):
        OpenML(**named)
