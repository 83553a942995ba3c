"""Stored ranks: what is written comes back, whole or not at all."""

import numpy as np
import pytest

from pmbnn.calibration.store import (
    StoredRanks,
    all_ranks,
    load_ranks,
    missing_simulations,
    save_ranks,
)
from pmbnn.core.files import TEMPORARY
from pmbnn.results.present import StorageError
from pmbnn.results.store import Results, ResultsError


@pytest.fixture
def results(tmp_path):
    found = Results(tmp_path)
    found.prepare()
    return found


@pytest.fixture
def ranks(made):
    return made.ranks(reference="MCLMC, converged", effective_draws=512.5)


def test_what_is_stored_comes_back(results, ranks):
    save_ranks(results, ranks)
    found = load_ranks(results, ranks.name)
    for name in StoredRanks.__dataclass_fields__:
        ours, theirs = getattr(ranks, name), getattr(found, name)
        if isinstance(ours, np.ndarray):
            assert (ours == theirs).all()
        else:
            assert ours == theirs
            assert type(ours) is type(theirs)
    assert load_ranks(results, "another") is None
    assert [one.name for one in all_ranks(results)] == [ranks.name]


def test_more_simulations_follow(made, ranks):
    further = {"numbers": np.array([300, 302]), "ranks": np.array([[1, 2], [3, 4]])}
    more = ranks.followed_by(made.ranks(**further, seconds=2.0))
    assert more.numbers[-2:].tolist() == [300, 302]
    assert more.ranks[-1].tolist() == [3, 4]
    assert more.seconds == ranks.seconds + 2
    assert missing_simulations(more, 303) == [301]
    assert missing_simulations(more, 10) == []


def test_an_interrupted_write_leaves_what_was_there(made, results, ranks, monkeypatch):
    save_ranks(results, ranks)

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr("pmbnn.results.store.os.replace", fail)
    more = ranks.followed_by(made.ranks(numbers=np.array([300]), ranks=np.array([[1, 2]])))
    with pytest.raises(StorageError, match="disk full"):
        save_ranks(results, more)
    monkeypatch.undo()
    assert len(load_ranks(results, ranks.name).numbers) == 300
    assert [one.name for one in all_ranks(results)] == [ranks.name]
    assert not list(results.folder.glob(f"{TEMPORARY}*"))


def test_what_cannot_be_read_is_named(results, ranks):
    results.calibration.mkdir()
    (results.calibration / "broken.nc").write_bytes(b"no netCDF")
    with pytest.raises(ResultsError, match=r"broken\.nc` cannot be read: .* Remove the file"):
        load_ranks(results, "broken")
