"""What all data sets share: standardisation, fingerprints, the registry, quick importing."""

import dataclasses

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from pmbnn.data import (
    DATASETS,
    Circles,
    Idx,
    Images,
    InBetween,
    Mnist,
    Moons,
    Npz,
    OpenML,
    Quartic,
    Sine,
    Sklearn,
    Table,
)
from pmbnn.data.arrays import Dataset, fit_standardisation, split_dataset
from pmbnn.data.base import DataError, DatasetSpec
from pmbnn.data.raw import Arrays, RowSettings, rows_from_arrays
from pmbnn.data.splits import RandomSplit
from pmbnn.estimators.regressor import BNNRegressor


class LastRows(RandomSplit):
    """The last quarter of the rows are test rows."""

    def parts(self, raw, seed):
        first = len(raw.y) * 3 // 4
        return np.arange(first), np.arange(first, len(raw.y))


NUMBERS = RowSettings(task="regression", split=LastRows())

X = np.array([[1.0, 5.0, 10.0], [3.0, 5.0, 30.0]])


def test_standardisation_per_feature_keeps_the_scale_of_a_constant_column():
    np.testing.assert_allclose(fit_standardisation(X, "feature")(X), [[-1, 0, -1], [1, 0, 1]])


@pytest.mark.parametrize("value", [14.62, 0.1, -1e9 / 3])
@pytest.mark.parametrize("rows", [7, 100, 1000])
def test_a_column_of_one_value_is_not_divided_by_its_rounding_error(value, rows):
    """The rule of scikit-learn, for columns whose computed variance need not be 0."""
    x = np.column_stack([np.full(rows, value), np.full(rows, value), np.arange(rows)])
    x[0, 1] = np.nextafter(value, 0)
    scaler = StandardScaler().fit(x)
    found = fit_standardisation(x, "feature")
    np.testing.assert_allclose(found.sd, scaler.scale_)
    assert found.sd[0] == found.sd[1] == 1
    assert found.sd[2] == x[:, 2].std()
    assert fit_standardisation(x[:, :1], "global").sd.tolist() == [1]


def test_a_constant_column_of_one_split_keeps_its_scale():
    x = np.column_stack([np.arange(40.0), np.full(40, 14.62)])
    x[30:, 1] = 15
    raw = rows_from_arrays(Arrays(x, np.arange(40.0)), NUMBERS, "rows")
    made = split_dataset(raw, NUMBERS, "here")
    assert made.standardisation.sd[1] == 1
    np.testing.assert_allclose(made.x_test[:, 1], 0.38)


def test_near_constant_columns_and_targets_are_named():
    near = np.full(40, 0.3)
    near[::2] = 0.1 + 0.2
    x = np.column_stack([np.arange(40.0), near])
    with pytest.raises(DataError, match="`x2` must have more than one value"):
        Dataset.from_arrays(x, x[:, 0])
    with pytest.raises(DataError, match="target `y` has one value only: 0.3"):
        Dataset.from_arrays(x[:, :1], near)
    targets = np.where(np.arange(40) < 30, near, 5.0)
    raw = rows_from_arrays(Arrays(x[:, :1], targets), NUMBERS, "rows")
    with pytest.raises(DataError, match="target has one value only in the training rows"):
        split_dataset(raw, NUMBERS, "here")


def test_estimators_do_not_divide_by_rounding_errors(monkeypatch):
    made = []
    monkeypatch.setattr(
        BNNRegressor,
        "_fit",
        lambda self, x, y, target_standardisation: made.append((y, target_standardisation)),
    )
    BNNRegressor().fit(np.arange(100.0)[:, None], np.full(100, 14.62))
    [(y, standardisation)] = made
    assert standardisation.sd.tolist() == [1]
    np.testing.assert_allclose(y, 0, atol=1e-12)


def test_global_standardisation():
    standardisation = fit_standardisation(X, "global")
    np.testing.assert_allclose(standardisation(X), (X - X.mean()) / X.std())
    assert standardisation.mean.shape == standardisation.sd.shape == (3,)


def test_no_standardisation():
    np.testing.assert_array_equal(fit_standardisation(X, "none")(X), X)


def dataset(**changes):
    data = Dataset(
        x_train=X,
        y_train=np.array([0, 1]),
        x_test=X,
        y_test=np.array([1, 0]),
        features=("a", "b", "c"),
        classes=("0", "1"),
        standardisation=fit_standardisation(X, "none"),
        source="here",
    )
    return dataclasses.replace(data, **changes)


def test_fingerprint_is_that_of_the_arrays():
    fingerprint = dataset().fingerprint
    assert len(fingerprint) == 64
    assert dataset(source="there").fingerprint == fingerprint
    assert dataset(x_train=X.copy()).fingerprint == fingerprint


@pytest.mark.parametrize(
    "changes",
    [
        {"x_train": X + 1},
        {"x_train": X.astype(np.float32)},
        {"x_train": X.reshape(3, 2)},
        {"y_train": np.array([1, 0])},
        {"x_test": X + 1},
        {"y_test": np.array([0, 1])},
    ],
    ids=["values", "dtype", "shape", "classes", "test values", "test classes"],
)
def test_fingerprint_changes_with_any_array(changes):
    assert dataset(**changes).fingerprint != dataset().fingerprint


def test_training_rows_are_split_by_class():
    rows = Moons(noise=0.3, train=100, test=10).load().training
    assert len(rows) == 100
    kept, held_out = rows.split(0.2, random_seed=1)
    assert (len(kept), len(held_out)) == (80, 20)
    assert (kept.y.sum(), held_out.y.sum()) == (40, 10)
    assert kept.features == held_out.features == rows.features
    both = np.vstack([kept.x, held_out.x])
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(rows.x, axis=0))
    np.testing.assert_array_equal(rows.split(0.2, random_seed=1)[1].x, held_out.x)
    assert not np.array_equal(rows.split(0.2, random_seed=2)[1].x, held_out.x)


def test_rows_are_points_unless_they_are_images():
    rows, images = dataset().training, dataset(input_shape=(1, 3, 1)).training
    assert rows.input_shape == dataset().input_shape == (3,)
    assert images.input_shape == images.take([1]).input_shape == (1, 3, 1)
    assert (images.take([1]).x == X[1:]).all()


def test_a_shape_has_an_entry_for_each_feature():
    message = r"^`input_shape` must have one entry for each of 3 features, got \(1, 2, 2\)\.$"
    with pytest.raises(ValueError, match=message):
        dataset(input_shape=(1, 2, 2))


@pytest.mark.parametrize(
    "spec",
    [Moons(noise=0.3, train=20, test=20), Mnist(source="embedded", train=20, test=20)],
    ids=lambda spec: spec.kind,
)
def test_shape_of_a_row_is_known_before_loading(spec):
    rows = spec.load().training
    kept, held_out = rows.split(0.5, random_seed=0)
    shapes = {found.input_shape for found in (spec, rows, kept, held_out)}
    assert shapes == {(2,) if spec.is_planar else (1, 28, 28)}


def test_registry():
    kinds = {"moons": Moons, "circles": Circles, "mnist": Mnist, "sine": Sine, "quartic": Quartic}
    kinds["in_between"] = InBetween
    own = {"table": Table, "npz": Npz, "sklearn": Sklearn, "openml": OpenML}
    kinds |= own | {"images": Images, "idx": Idx}
    assert kinds == DATASETS


def test_a_specification_says_how_to_load_itself():
    spec = DatasetSpec(kind="other")
    assert not spec.is_planar
    with pytest.raises(NotImplementedError):
        spec.load()


@pytest.mark.parametrize(
    "spec",
    [Moons(noise=0.3, seed=4), Circles(noise=0.3, factor=0.4), Mnist(source="embedded", train=50)],
    ids=lambda spec: spec.kind,
)
def test_specifications_survive_being_written_down(spec):
    assert DATASETS[spec.kind].model_validate(spec.model_dump()) == spec
    assert hash(spec) == hash(spec.model_copy())
