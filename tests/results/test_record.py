"""Records of cells: read back as written, and rejected where they are not."""

import json
import math

import pytest
from makers import record

from pmbnn.results.record import FORMAT, CellRecord, OtherFormatError, Restart


@pytest.fixture
def made():
    restart = Restart(status="converged", reason="flat", elbo=-1.5, weight=1.0)
    return record(accuracy=0.875).model_copy(update={"restarts": (restart,), "best": 0})


def test_a_record_reads_back(made):
    assert CellRecord.from_json(made.to_json()) == made


def test_numbers_that_are_not_finite_become_null(made):
    odd = made.model_copy(update={"results": {"nll": math.nan, "elbo": -math.inf}})
    assert CellRecord.from_json(odd.to_json()).results == {"nll": None, "elbo": None}


def test_every_changed_digit_is_noticed(made):
    text = made.to_json()
    for number in ("0.875", "-1.5", "10000"):
        assert number in text
        with pytest.raises(ValueError, match="changed since it was written"):
            CellRecord.from_json(text.replace(number, number.replace("1", "2").replace("7", "8")))


@pytest.mark.parametrize("text", ["", "{", "\0" * 100, "[]", "null"])
def test_what_is_no_record(text):
    with pytest.raises(ValueError):
        CellRecord.from_json(text)


def test_records_of_other_versions_are_told_apart_from_broken_ones(made):
    content = json.loads(made.to_json())
    newer = made.model_copy(update={"format": FORMAT + 1}).to_json()
    with pytest.raises(OtherFormatError, match=f"in format {FORMAT + 1}, this version reads"):
        CellRecord.from_json(newer)
    older = {k: v for k, v in content.items() if k not in ("format", "sha256")}
    with pytest.raises(OtherFormatError, match=f"before format {FORMAT}"):
        CellRecord.from_json(json.dumps(older))
    with pytest.raises(ValueError, match="changed since it was written"):
        CellRecord.from_json(json.dumps(content | {"format": FORMAT + 1}))


@pytest.mark.parametrize(
    ("predictive", "standardises", "is_read"),
    [
        ("class_probabilities", True, True),
        ("density", False, True),
        ("density", None, True),
        ("density", True, False),
    ],
)
def test_records_of_format_2_are_read_unless_scores_were_of_standardised_targets(
    made, predictive, standardises, is_read
):
    dataset = {"kind": "table"} | ({"standardise_target": standardises} if standardises else {})
    older = {"format": 2, "predictive": predictive, "settings": {"dataset": dataset}}
    text = made.model_copy(update=older).to_json()
    if is_read:
        assert CellRecord.from_json(text).to_json() == text
    else:
        with pytest.raises(OtherFormatError, match="in format 2, this version reads 3"):
            CellRecord.from_json(text)


def test_the_place_of_a_wrong_entry_is_named(made):
    wrong = made.model_copy(update={"status": "fine"})
    with pytest.raises(ValueError, match="`status`: Input should be"):
        CellRecord.from_json(wrong.to_json())


@pytest.mark.parametrize(
    ("status", "failed"), [("converged", False), ("improper", False), ("diverged", True)]
)
def test_failed_cells_have_no_fit(status, failed):
    assert record().model_copy(update={"status": status}).failed == failed
