"""Any data set of OpenML, with no network reached."""

import hashlib
import io
import json
import urllib.request
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import _openml

from pmbnn.data import DataError, OpenML, RandomSplit, openml, tabular
from pmbnn.data.arrays import Dataset

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

    monkeypatch.setattr(urllib.request, "urlopen", reject)
    monkeypatch.setattr(_openml, "urlopen", reject)
    return tmp_path / "pmbnn" / "openml"


def arff() -> bytes:
    """The frame as OpenML keeps it; a question mark is a missing value."""
    lines = ["@relation few", "@attribute length numeric", "@attribute sex {F, M}"]
    lines += ["@attribute 1 {1, 2, 3}", "@attribute who integer", "@data"]
    rows = FRAME.astype(object).where(FRAME.notna(), "?").to_numpy()
    return "\n".join([*lines, *(",".join(map(str, row)) for row in rows)]).encode()


def answers(targets) -> dict[str, object]:
    """What OpenML says of data set 61, by the ends of its addresses."""
    description = {"id": "61", "name": "few", "version": "2", "format": "ARFF", "status": "active"}
    description |= {"url": "https://www.openml.org/data/v1/download/61/few.arff", "description": ""}
    description["md5_checksum"] = hashlib.md5(arff()).hexdigest()
    kinds = dict.fromkeys(FRAME, "numeric") | dict.fromkeys(["sex", "1"], "nominal")
    features = [
        {
            "index": str(i),
            "name": name,
            "data_type": kind,
            "is_target": str(name in targets).lower(),
            "is_ignore": "false",
            "is_row_identifier": "false",
            "number_of_missing_values": "0",
        }
        for i, (name, kind) in enumerate(kinds.items())
    ]
    qualities = [{"name": "NumberOfInstances", "value": str(len(FRAME))}]
    return {
        "data/61": {"data_set_description": description},
        "data/features/61": {"data_features": {"feature": features}},
        "data/qualities/61": {"data_qualities": {"quality": qualities}},
        "data_version/2": {"data": {"dataset": [{"did": 61, "status": "active"}]}},
    }


class Answer(io.BytesIO):
    def info(self):
        return {}


@pytest.fixture
def asked(monkeypatch):
    """Addresses that scikit-learn asks OpenML for; the targets that it names may be changed."""
    calls, targets = [], ["1"]

    def answer(request, *_, **__):
        calls.append(request.full_url)
        if request.full_url.endswith(".arff"):
            return Answer(arff())
        texts = answers(targets)
        (found,) = (value for end, value in texts.items() if request.full_url.endswith(end))
        return Answer(json.dumps(found).encode())

    monkeypatch.setattr(openml, "_check_reachable", lambda: None)
    monkeypatch.setattr(_openml, "urlopen", answer)
    return calls, targets


@pytest.mark.parametrize(
    ("named", "folder"), [({"id": 61}, "61"), ({"name": "a b", "version": 2}, "a-b_2")]
)
def test_downloaded_once(alone, asked, monkeypatch, named, folder):
    """Without a network it is read from the cache of scikit-learn."""
    calls, _ = asked
    spec = OpenML(**named, **SETTINGS)
    first = spec.load()
    assert len([address for address in calls if address.endswith(".arff")]) == 1
    assert len(calls) == len(set(calls))
    assert first.features == ("length", "sex=F", "sex=M")
    assert first.classes == ("1", "2", "3")
    assert sum(spec.rows) == 29
    assert first.source == "openml"
    assert [path.name for path in alone.iterdir()] == [folder]
    tabular._read.cache_clear()
    monkeypatch.setattr(_openml, "urlopen", None)
    assert spec.load().fingerprint == first.fingerprint
    assert spec.load().fingerprint == frame_of(FRAME).fingerprint


def frame_of(frame):
    return Dataset.from_frame(frame, "1", **SETTINGS)


def test_a_broken_download_leaves_no_cache(alone, asked, monkeypatch):
    def stop(gzip_file, *_, **__):
        raise TimeoutError("timed out")

    monkeypatch.setattr(_openml, "load_arff_from_gzip_file", stop)
    with pytest.warns(RuntimeWarning), pytest.raises(DataError, match=r"61 is .* \(timed out\)"):
        OpenML(id=61).check()
    assert list(alone.iterdir()) == []


@pytest.mark.parametrize("position", [-3, 40])
def test_a_damaged_cache_is_downloaded_anew(alone, asked, position):
    calls, _ = asked
    spec = OpenML(id=61, **SETTINGS)
    first = spec.load()
    (path,) = alone.rglob("few.arff.gz")
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    tabular._read.cache_clear()
    calls.clear()
    with pytest.warns(RuntimeWarning, match="Invalid cache, redownloading"):
        assert spec.load().fingerprint == first.fingerprint
    assert [address.rpartition("/")[2] for address in calls] == ["few.arff"]


def test_another_target(asked):
    loaded = OpenML(id=61, target="length", without=("sex",), split=RandomSplit(group="who")).load()
    assert loaded.classes == ()
    assert loaded.features == ("1=1", "1=2", "1=3")


def test_without_a_network_it_says_so():
    with pytest.raises(DataError) as caught:
        OpenML(name="iris", version=1).check()
    assert str(caught.value) == "iris, version 1 is unavailable from OpenML (no way out)."


def test_no_target(asked):
    _, targets = asked
    targets[:] = ["1", "sex"]
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
