"""Two clusters read from a local file, and the line that passes through the gap between them."""

import numpy as np
import pytest

from pmbnn.data import DataError, InBetween
from pmbnn.testing import check_dataset


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PMBNN_DATA", str(tmp_path))
    return tmp_path


def test_rows_are_those_of_the_file(made, folder):
    x, y = made.write_in_between(folder)
    data = InBetween().load()
    np.testing.assert_array_equal(data.x_train, x)
    np.testing.assert_array_equal(data.y_train, y)
    np.testing.assert_array_equal(data.x_test, x)
    np.testing.assert_array_equal(data.y_test, y)
    assert (data.features, data.classes, data.source) == (("x1", "x2"), (), "local")
    check_dataset(InBetween)


def test_nothing_is_standardised(made, folder):
    x, _ = made.write_in_between(folder)
    np.testing.assert_array_equal(InBetween().load().standardisation.undo(x), x)


def test_each_choice_of_points_has_its_file(made, folder):
    made.write_in_between(folder, "origin", seed=0)
    x, _ = made.write_in_between(folder, "axis", seed=1)
    np.testing.assert_array_equal(InBetween(points="axis").load().x_train, x)
    assert not np.array_equal(InBetween().load().x_train, x)


def test_a_folder_that_is_given_comes_first(made, folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    made.write_in_between(folder, seed=0)
    x, _ = made.write_in_between(other, seed=1)
    for given in (other, other / "in_between"):
        np.testing.assert_array_equal(InBetween(folder=str(given)).load().x_train, x)


def test_the_line_is_the_diagonal():
    (line,) = InBetween().lines()
    assert len(line.position) == 500 and line.truth is None
    np.testing.assert_allclose(line.position[[0, -1]], [-(8**0.5), 8**0.5])
    np.testing.assert_allclose(np.diff(line.position), 2 * 8**0.5 / 499)
    np.testing.assert_allclose(line.inputs, line.position[:, None] / 2**0.5 * np.ones(2))
    assert line.gap == 0
    assert InBetween().line_points == len(line.position)


def test_without_a_folder(monkeypatch):
    monkeypatch.delenv("PMBNN_DATA", raising=False)
    message = r"^in_between/origin.csv is missing: give its `folder`, or set PMBNN_DATA; the repos"
    with pytest.raises(DataError, match=message):
        InBetween().load()


def test_without_the_file(folder):
    message = r"in_between/axis.csv is missing: .* the repository of Foong et al\. \(2020\) has it"
    with pytest.raises(DataError, match=message):
        InBetween(points="axis").load()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"must have the columns x1, x2, y: x1 is missing"),
        ("x1,x2\n1,2\n", r"must have the columns x1, x2, y: y is missing"),
        ("x1,x2,y\n", r"has no rows"),
        ("x1,x2,y\n1,2,3\n1,2\n", r"line 3: every entry must be a finite number"),
        ("x1,x2,y\n1,two,3\n", r"line 2: every entry must be a finite number"),
        ("x1,x2,y\n1,2,nan\n", r"line 2: every entry must be a finite number"),
        ("x1,x2,y\n1,2,3\n", r"must have 100 rows, got 1"),
        (b"x1,x2,y\n\xff\xfe", r"cannot be read"),
    ],
)
def test_damaged_files(folder, content, message):
    path = folder / "in_between" / "origin.csv"
    path.parent.mkdir()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=rf"in_between/origin\.csv.*{message}"):
        InBetween().load()
