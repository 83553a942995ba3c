"""Training rows set aside for conformal intervals: which they are, and what is refused."""

import numpy as np
import pytest

import pmbnn as pb
from pmbnn.core.errors import ConfigError
from pmbnn.data import DataError, Folds, Moons, Npz, RandomSplit, Sklearn
from pmbnn.data.arrays import fit_standardisation

RNG = np.random.default_rng(0)
X, NUMBERS = RNG.normal(size=(200, 3)), RNG.normal(5.0, 2.0, size=200)
LABELS = np.where(np.arange(200) % 4 == 0, "rare", "usual")


def raw_parts(dataset):
    """Inputs of training, calibration and test rows, in the units of the data."""
    parts = (dataset.x_train, dataset.x_validation, dataset.x_test)
    return [dataset.standardisation.undo(x) for x in parts if x is not None]


def sorted_rows(x):
    return x[np.lexsort(x.T)]


@pytest.mark.parametrize("y", [NUMBERS, LABELS])
def test_they_are_training_rows_and_the_test_rows_stay(y):
    plain, made = (pb.Dataset.from_arrays(X, y, seed=3, calibration=c) for c in (0.0, 0.25))
    left, aside, test = raw_parts(made)
    assert [len(part) for part in (left, aside, test)] == [120, 40, 40]
    training, same_test = raw_parts(plain)
    np.testing.assert_allclose(sorted_rows(np.vstack([left, aside])), sorted_rows(training))
    np.testing.assert_allclose(test, same_test)
    assert plain.x_validation is None and plain.fingerprint != made.fingerprint
    # Nothing is learned from them: not even means and standard deviations.
    learned = fit_standardisation(left, "feature")
    np.testing.assert_allclose(made.standardisation.mean, learned.mean)
    np.testing.assert_allclose(made.overlap, 40 / 120)


def test_targets_are_those_of_their_rows():
    made = pb.Dataset.from_arrays(X, NUMBERS, calibration=0.25)
    target = dict(zip(map(bytes, X), NUMBERS, strict=True))
    x, y = made.standardisation.undo(made.x_validation), made.raw_targets(made.y_validation)
    nearest = [np.abs(X - row).sum(axis=1).argmin() for row in x]
    np.testing.assert_allclose(y, [target[bytes(X[i])] for i in nearest])
    np.testing.assert_allclose(made.y_train.mean(), 0.0, atol=1e-12)


def test_of_classes_they_have_the_same_shares():
    made = pb.Dataset.from_arrays(X, LABELS, calibration=0.25)
    assert np.bincount(made.y_validation).tolist() == [10, 30]
    moons = Moons(noise=0.3, train=100, test=40, calibration=0.2)
    loaded = moons.load()
    assert np.bincount(loaded.y_validation).tolist() == [10, 10]
    assert moons.rows == (80, 40) == (len(loaded.y_train), len(loaded.y_test))
    assert moons.bounds() == Moons(noise=0.3).bounds()


def test_data_seeds_draw_others():
    first, second = (
        raw_parts(pb.Dataset.from_arrays(X, NUMBERS, seed=s, calibration=0.25))[1] for s in (0, 1)
    )
    assert not np.allclose(sorted_rows(first), sorted_rows(second))


def test_a_file_has_the_same_rows_and_a_plan_counts_them(tmp_path):
    np.savez(tmp_path / "rows.npz", x=X, y=NUMBERS)
    spec = Npz(file=str(tmp_path / "rows.npz"), calibration=0.25, split=Folds(folds=4))
    in_memory = pb.Dataset.from_arrays(X, NUMBERS, calibration=0.25, split=Folds(folds=4))
    assert spec.load().fingerprint == in_memory.fingerprint
    assert spec.rows == (112, 50) == (len(spec.load().y_train), len(spec.load().y_test))
    for name in ("iris", "diabetes"):
        spec = Sklearn(name=name, calibration=0.3)
        assert spec.rows[0] == len(spec.load().y_train)


def test_missing_inputs_become_means_of_the_rows_that_are_left():
    x = X.copy()
    x[::5, 0] = np.nan
    made = pb.Dataset.from_arrays(x, NUMBERS, missing="mean", calibration=0.25)
    assert np.isfinite(made.x_validation).all()
    filled = made.standardisation.undo(made.x_train)[:, 0]
    present = filled[~np.isclose(filled, made.fill[0])]
    assert made.fill[0] == pytest.approx(present.mean())


def test_what_is_refused():
    few = r"`calibration` must set aside at least 19 of 160 training rows and leave at least 2, got"
    for share, rows in ((0.1, 16), (0.999, 160)):
        with pytest.raises(DataError, match=rf"{few} {share}: {rows} rows"):
            pb.Dataset.from_arrays(X, NUMBERS, calibration=share)
        with pytest.raises(DataError, match=f"got {share}"):
            Moons(noise=0.3, train=160, calibration=share).check()
    split, groups = RandomSplit(group="group"), np.arange(200) // 4
    with pytest.raises(DataError, match=r"`calibration` must be 0 with `split\.group`"):
        pb.Dataset.from_arrays(X, NUMBERS, groups=groups, split=split, calibration=0.25)
    with pytest.raises(ConfigError, match=r"`calibration` must be < 1, got 1"):
        Moons(noise=0.3, calibration=1.0)


def test_every_class_keeps_a_training_row():
    """Two rare training rows are a quarter and three quarters of the way to the rows set aside."""
    rare = np.where(np.arange(200) < 2, "rare", "usual")
    assert pb.Dataset.from_arrays(X, rare, calibration=0.7).y_train.min() == 0
    with pytest.raises(DataError, match="class `rare` has no training row in this split"):
        pb.Dataset.from_arrays(X, rare, calibration=0.8)
