"""Fields that hold lists of specifications, read for any section of an experiment file."""

from typing import Annotated, Literal

import pytest
from pydantic import Field

from pmbnn.core.spec import Specification
from pmbnn.experiment.axes import expand_section
from pmbnn.experiment.load import ConfigError


class Letters(Specification):
    kind: Literal["letters"] = "letters"


class Rotated(Specification):
    kind: Literal["rotated"] = "rotated"
    angle: float
    crop: tuple[int, ...] = ()


class Section(Specification):
    draws: int = 10
    one: tuple[Letters, ...] = ()
    ood: tuple[Annotated[Letters | Rotated, Field(discriminator="kind")], ...] = ()


def expand(**section):
    return [choice.spec for choice in expand_section(section, "predict", Section)]


def test_names_and_mappings():
    found = expand(ood=[["letters", {"kind": "rotated", "angle": 90.0}]])
    assert found == [Section(ood=(Letters(), Rotated(angle=90.0)))]


def test_left_out_and_empty():
    assert expand() == expand(ood=[[]]) == [Section()]


def test_one_class_needs_no_choice():
    assert expand(one=[["letters", "letters"]]) == [Section(one=(Letters(), Letters()))]


def test_axes_in_their_order():
    """Entries of the outer list, then lists in the place of scalars, the first slowest."""
    rotated = {"kind": "rotated", "angle": [10.0, 20.0]}
    found = expand(ood=[[rotated, rotated], ["letters"]], draws=[1, 2])
    pairs = [(Rotated(angle=a), Rotated(angle=b)) for a in (10.0, 20.0) for b in (10.0, 20.0)]
    sequences = [*pairs, (Letters(),)]
    assert found == [Section(ood=s, draws=d) for s in sequences for d in (1, 2)]


def test_lists_within_lists():
    found = expand(ood=[[{"kind": "rotated", "angle": 1.0, "crop": [[1, 2], [3]]}]])
    assert [s.ood[0].crop for s in found] == [(1, 2), (3,)]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "letters",
            "`predict.ood` must be a list of lists, .*: write \\[\\['letters'\\]\\]",
        ),
        (
            ["letters"],
            "`predict.ood` must be a list of lists, .*: write \\[\\['letters'\\]\\]",
        ),
        (None, "`predict.ood` must be a list of lists"),
        ([], "`predict.ood` must be a list of lists, .*: write \\[\\[\\]\\]"),
        ([["letters"], "letters"], "`predict.ood\\[1\\]` must be a list, like the other"),
        ([["letters"], ["letters"]], "`predict.ood\\[1\\]` must not repeat"),
        ([["leters"]], "`predict.ood\\[0\\]\\[0\\]` must be one of letters, rotated, got"),
        ([["rotated"]], "`predict.ood\\[0\\]\\[0\\].angle` is missing."),
        (
            [["letters", {"kind": "rotated", "angle": [1.0, "x"]}]],
            "`predict.ood\\[0\\]\\[1\\].angle\\[1\\]` must be a number, got 'x'.",
        ),
        (
            [[{"kind": "rotated", "angle": 1.0, "crop": [[1], ["x"]]}]],
            r"`predict.ood\[0\]\[0\].crop\[1\]\[0\]` must be a whole number, got 'x'.",
        ),
        (
            [[{"kind": "rotated", "angle": list(range(1, 400))}] * 3],
            "`predict.ood\\[0\\]` must stand for at most 100000 combinations, got 63521199.",
        ),
    ],
)
def test_mistakes(value, message):
    with pytest.raises(ConfigError, match=message):
        expand(ood=value)
