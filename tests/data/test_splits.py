"""Which rows are test rows: shares, folds, groups, and numbers that a file lists."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pmbnn.data import DataError, Folds, Indices, Npz, RandomSplit, Table
from pmbnn.data.arrays import split_dataset
from pmbnn.data.raw import RawRows, RowSettings
from pmbnn.data.splits import unlike_input


def rows(y=None, classes=(), groups=None, count=40):
    """Rows whose one input is their number."""
    x = np.arange(count, dtype=float)[:, None]
    y = x[:, 0] if y is None else np.asarray(y)
    groups = None if groups is None else np.asarray(groups)
    return RawRows(x, y, ("x1",), classes, np.arange(count), count, "rows", groups)


LABELS = np.array([0] * 30 + [1] * 10)
CLASSES = rows(LABELS, ("a", "b"))


def test_a_share_is_drawn_by_the_seed():
    (train, test), again = (
        RandomSplit(test_size=0.25).parts(rows(), 3),
        RandomSplit(test_size=0.25).parts(rows(), 3),
    )
    assert len(test) == 10
    assert sorted([*train, *test]) == list(range(40))
    np.testing.assert_array_equal(test, again[1])
    assert not np.array_equal(test, RandomSplit(test_size=0.25).parts(rows(), 4)[1])


def test_a_share_of_classes_is_one_of_each():
    _, test = RandomSplit(test_size=0.2).parts(CLASSES, 0)
    assert np.bincount(LABELS[test]).tolist() == [6, 2]


@pytest.mark.parametrize("raw", [rows(), CLASSES, rows(groups=np.arange(40) // 4)])
def test_folds_are_disjoint_and_complete(raw):
    group = None if raw.groups is None else "group"
    named = [Folds(folds=4, fold=k, group=group).parts(raw, 2)[1] for k in range(4)]
    assert sorted(np.concatenate(named)) == list(range(40))
    for test, seed in zip(named, range(8, 12), strict=True):
        # Seeds 8 to 11 are the folds of the third shuffle.
        np.testing.assert_array_equal(Folds(folds=4, group=group).parts(raw, seed)[1], test)
    assert not np.array_equal(Folds(folds=4, group=group).parts(raw, 0)[1], named[0])


def test_folds_of_classes_have_all_of_them():
    for seed in range(5):
        _, test = Folds().parts(CLASSES, seed)
        assert np.bincount(LABELS[test]).tolist() == [6, 2]


def test_folds_of_groups_keep_the_proportions_of_classes():
    groups, labels = np.arange(40) // 4, np.arange(40) // 20
    raw = rows(labels, ("a", "b"), groups)
    for seed in range(10):
        _, test = Folds(folds=5, group="who").parts(raw, seed)
        assert np.bincount(labels[test]).tolist() == [4, 4]


@pytest.mark.parametrize("labels", [None, LABELS])
@pytest.mark.parametrize("split", [RandomSplit(group="who"), Folds(group="who")])
def test_groups_stay_together(split, labels):
    groups = np.random.default_rng(0).integers(12, size=40)
    raw = rows(labels, () if labels is None else ("a", "b"), groups)
    for seed in range(5):
        train, test = split.parts(raw, seed)
        assert not set(groups[train]) & set(groups[test])


@pytest.mark.parametrize(
    ("split", "overlap"), [(RandomSplit(test_size=0.25), 10 / 30), (Folds(folds=4), 10 / 30)]
)
def test_overlap_is_test_rows_for_each_training_row(split, overlap):
    assert split_dataset(rows(), RowSettings(split=split), "test").overlap == overlap


@pytest.fixture
def listed(tmp_path, monkeypatch):
    """Files of row numbers, in the working directory."""
    monkeypatch.chdir(tmp_path)
    np.savez("splits.npz", test_0=np.array([0, 1]), test_1=np.array([5, 39]))
    Path("test.txt").write_text("3\n7\n")
    return tmp_path


@pytest.mark.parametrize(
    ("split", "seed", "numbers", "overlap"),
    [
        (Indices(file="splits.npz", test="test_{seed}"), 1, [5, 39], 2 / 38),
        (Indices(file="splits.npz", test="test_0"), 1, [0, 1], 0),
        (Indices(file="test.txt"), 0, [3, 7], 0),
    ],
)
def test_numbers_of_a_file(listed, split, seed, numbers, overlap):
    settings = RowSettings(split=split, seed=seed, standardise="none", standardise_target=False)
    assert split.parts(rows(), seed)[1].tolist() == numbers
    assert split_dataset(rows(), settings, "test").overlap == overlap


def gap(x):
    """Numbers of the rows in the middle third of the range of an input."""
    return np.argsort(x, kind="stable")[len(x) // 3 : 2 * len(x) // 3]


def drawn(count):
    """Rows with a normal, a binary and a skewed input."""
    rng = np.random.default_rng(count)
    x = np.stack([rng.normal(size=count), rng.integers(2, size=count), rng.exponential(size=count)])
    return replace(rows(count=count), x=x.T, features=("a", "b", "c"))


@pytest.mark.parametrize("count", [150, 300, 30_000])
def test_test_rows_that_were_not_drawn_at_random_have_no_overlap(listed, count):
    """Those of a gap in one of three inputs; those in the order of the file are random here."""
    raw = drawn(count)
    np.savez("gaps.npz", test_0=gap(raw.x[:, 0]), test_1=gap(raw.x[:, 2]), test_2=gap(raw.y))
    split = Indices(file="gaps.npz", test="test_{seed}")
    found = [split_dataset(raw, RowSettings(split=split, seed=s), "test").overlap for s in range(3)]
    assert found == [np.inf, np.inf, pytest.approx(0.5, rel=0.05)]
    one = Indices(file="gaps.npz", test="test_0")
    assert split_dataset(raw, RowSettings(split=one), "test").overlap == 0


def test_random_test_rows_are_hardly_ever_taken_for_others():
    """At a level that can be seen: of 2,000 splits, no more than that share."""
    rng, x = np.random.default_rng(0), drawn(100).x
    parts = (np.split(rng.permutation(x), [20]) for _ in range(2_000))
    found = sum(unlike_input(test, train, 0.05) is not None for test, train in parts)
    # Ties make the test conservative. Binomial: beyond the upper limit with probability 0.001.
    assert 0 < found <= 2_000 * 0.05 + 3.1 * np.sqrt(2_000 * 0.05 * 0.95)


def test_numbers_are_those_of_the_file_where_rows_were_dropped(listed):
    raw = rows().take(np.arange(1, 40))
    train, test = Indices(file="splits.npz", test="test_1").parts(raw, 0)
    assert raw.x[test, 0].tolist() == [5, 39]
    assert len(train) == 37


@pytest.mark.parametrize(
    ("split", "raw", "message"),
    [
        (Indices(file="none.txt"), rows(), "`split.file` must be there"),
        (Indices(file="splits.npz"), rows(), "`split.test` must name an array of splits.npz"),
        (
            Indices(file="splits.npz", test="test_{seed}"),
            rows(),
            "`split.test` must be one of `test_0`, `test_1` of splits.npz, got 'test_9'.",
        ),
        (Indices(file="test.txt"), rows(count=5), "numbers from 0 to 4 of rows, got 7."),
        (Indices(file="twice.txt"), rows(), "twice.txt: must list every row once, got 3 twice."),
        (Indices(file="words.txt"), rows(), "words.txt: must be text with a row number a line"),
        (RandomSplit(), rows([0] * 39 + [1], ("a", "b")), "class `b` must have at least 2 rows"),
        (Folds(folds=20), CLASSES, "class `b` must have at least 20 rows for this split, got 10."),
        (Folds(folds=41), rows(), "rows: cannot be split: Cannot have number of splits"),
        (RandomSplit(group="who"), rows(), "`split.group` must be left out: rows has no groups."),
        (Folds(group="who"), rows(groups=[0, 1] * 20), "must have at least 5 groups, got 2."),
        (RandomSplit(test_size=0.99), rows(count=3), "rows: cannot be split"),
    ],
)
def test_what_cannot_be_split(listed, split, raw, message):
    Path("twice.txt").write_text("3\n3\n")
    Path("words.txt").write_text("three\n")
    with pytest.raises(DataError) as caught:
        split.parts(raw, 9)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_fold_is_one_of_them():
    with pytest.raises(ValueError, match="must have fold < folds, got 5 and 5"):
        Folds(fold=5)


@pytest.mark.parametrize("groups", [None, "who"])
def test_a_group_is_no_feature(tmp_path, monkeypatch, groups):
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(
        "a,who,y\n" + "".join(f"{i / 7},{i // 5},{i / 3}\n" for i in range(30))
    )
    split = RandomSplit(group=groups)
    spec = Table(file="t.csv", target="y", split=split)
    assert spec.load().features == (("a",) if groups else ("a", "who"))
    x, who = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30) // 5
    np.savez("t.npz", x=x, y=x[:, 0], who=who)
    loaded = Npz(file="t.npz", split=split).load()
    raw = loaded.standardisation.undo(loaded.x_test)
    if groups:
        of_test = {int(who[np.argmin(abs(x - row).sum(axis=1))]) for row in raw}
        assert len(raw) == 5 * len(of_test)


def test_standard_splits_are_those_of_their_files(tmp_path, monkeypatch):
    """Files as the UCI sets have them, in the folder of data."""
    folder = tmp_path / "uci"
    folder.mkdir()
    rng = np.random.default_rng(0)
    table, expected = rng.normal(5, 3, (50, 4)), {}
    for seed in (0, 19):
        expected[seed] = rng.permutation(50)[:5]
    np.savez(folder / "own_splits.npz", **{f"test_{seed}": n for seed, n in expected.items()})
    np.savetxt(folder / "own.csv.gz", table, "%.17g", ",", header="x1,x2,x3,y", comments="")
    monkeypatch.setenv("PMBNN_DATA", str(tmp_path))
    split = Indices(file="uci/own_splits.npz", test="test_{seed}")
    for seed, numbers in expected.items():
        loaded = Table(file="uci/own.csv.gz", target="y", split=split, seed=seed).load()
        x_test = loaded.standardisation.undo(loaded.x_test)
        np.testing.assert_allclose(x_test, table[np.sort(numbers), :-1])
        y_test = loaded.target_standardisation.undo(loaded.y_test)
        np.testing.assert_allclose(y_test, table[np.sort(numbers), -1])
        assert loaded.overlap == 5 / 45
