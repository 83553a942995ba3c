"""Records of cells: read back as written, and rejected where they are not."""

import json
import math

import pytest
from makers import record

from pmbnn.data.openml import OpenML
from pmbnn.data.splits import Folds, Indices, RandomSplit
from pmbnn.data.tabular import Npz, Table
from pmbnn.inference.settings import Inference
from pmbnn.results.record import (
    FORMAT,
    CellRecord,
    OtherFormatError,
    Restart,
    _digest,
)


@pytest.fixture
def made():
    restart = Restart(status="converged", reason="flat", elbo=-1.5, weight=1.0)
    return record(accuracy=0.875).model_copy(update={"restarts": (restart,), "best": 0})


def test_a_record_reads_back(made):
    assert CellRecord.from_json(made.to_json()) == made
    gap = made.model_copy(update={"overlap": math.inf})
    assert CellRecord.from_json(gap.to_json()) == gap


def test_infinities_stay_and_what_is_not_a_number_becomes_null(made):
    """As null, the NLL of a target without any probability would be left out of means."""
    odd = made.model_copy(
        update={
            "results": {"nll": math.inf, "elbo": -math.inf, "rhat": math.nan},
            "images": {"test": {"nll": math.inf}},
            "reason": "Infinity",
        }
    )
    text = odd.to_json()
    json.loads(text, parse_constant=pytest.fail)
    found = CellRecord.from_json(text)
    assert found.results == {"nll": math.inf, "elbo": -math.inf, "rhat": None}
    assert found.images == {"test": {"nll": math.inf}}


def test_every_changed_digit_is_noticed(made):
    text = made.to_json()
    for number in ("0.875", "-1.5", "10000"):
        assert number in text
        with pytest.raises(ValueError, match="changed since it was written"):
            CellRecord.from_json(text.replace(number, number.replace("1", "2").replace("7", "8")))


TABLE = {"file": "t.csv", "target": "y", "task": "regression"}
RENAMED = [
    ("dataset", Table(**TABLE, split=RandomSplit(test_size=0.3))),
    ("dataset", Table(**TABLE, split=Folds(folds=3), missing="drop")),
    ("dataset", Npz(file="t.npz", task="classification", split=Indices(file="n", test="test"))),
    ("dataset", OpenML(id=40, task="classification")),
    ("inference", Inference(kl_annealing=0.2, iterate_averaging=0.25)),
]
"""Specifications with settings that were renamed since cells were stored, by section."""


@pytest.mark.parametrize(("section", "spec"), RENAMED)
def test_cells_stored_before_settings_were_renamed_are_those_of_today(made, section, spec):
    content = json.loads(made.to_json())
    content["settings"][section] = spec.model_dump(mode="json", by_alias=True)
    assert content["settings"][section] != spec.model_dump(mode="json")
    del content["sha256"]
    content["sha256"] = _digest(content)
    found = CellRecord.from_json(json.dumps(content))
    assert getattr(found.cell, section) == spec
    assert found.settings[section] == spec.model_dump(mode="json")


@pytest.mark.parametrize("text", ["", "{", "\0" * 100, "[]", "null"])
def test_what_is_no_record(text):
    with pytest.raises(ValueError):
        CellRecord.from_json(text)


def test_records_of_other_versions_are_no_broken_ones(made):
    content = json.loads(made.to_json())
    newer = made.model_copy(update={"format": FORMAT + 1}).to_json()
    with pytest.raises(OtherFormatError, match=f"in format {FORMAT + 1}, this version reads"):
        CellRecord.from_json(newer)
    older = {k: v for k, v in content.items() if k not in ("format", "sha256")}
    with pytest.raises(OtherFormatError, match=f"before format {FORMAT}"):
        CellRecord.from_json(json.dumps(older))
    with pytest.raises(ValueError, match="changed since it was written"):
        CellRecord.from_json(json.dumps(content | {"format": FORMAT + 1}))


def test_the_place_of_a_wrong_entry_is_named(made):
    wrong = made.model_copy(update={"status": "fine"})
    with pytest.raises(ValueError, match="`status`: Input should be"):
        CellRecord.from_json(wrong.to_json())


@pytest.mark.parametrize(
    ("status", "failed"), [("converged", False), ("improper", False), ("diverged", True)]
)
def test_failed_cells_have_no_fit(status, failed):
    assert record().model_copy(update={"status": status}).failed == failed
