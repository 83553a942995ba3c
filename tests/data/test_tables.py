"""Tables and arrays of one's own: what is made of them, and what is wrong with broken ones."""

import bz2
import gzip
import lzma
import os
import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pmbnn as pb
from pmbnn.data import DataError, Npz, RandomSplit, Sklearn, Table, table_file
from pmbnn.data.base import stamp_of
from pmbnn.data.frames import inputs_of_frame
from pmbnn.data.table_file import read_table

SIZES = [f"{i}.5" for i in range(30)]


def csv_text(rows=30, **columns):
    """A table with a number, a word, a truth value and a target; columns may be replaced."""
    size = [f"{(7 * i) % 31}.5" for i in range(rows)]
    cycle = (["red", "blue", "green"][i % 3] for i in range(rows))
    found = {"size": size, "colour": list(cycle), "old": [str(i % 2 == 0) for i in range(rows)]}
    found |= {"y": [f"{i * i / 4}" for i in range(rows)]} | columns
    lines = zip(*found.values(), strict=True)
    return "\n".join([",".join(found), *map(",".join, lines)]) + "\n"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PMBNN_DATA", raising=False)
    return tmp_path


def write(text, name="t.csv"):
    Path(name).write_text(text)
    return name


def test_what_a_table_becomes():
    spec = Table(file=write(csv_text()), target="y", seed=3)
    loaded = spec.load()
    assert loaded.features == ("size", "colour=blue", "colour=green", "colour=red", "old")
    assert loaded.classes == ()
    assert spec.rows == (len(loaded.y_train), len(loaded.y_test)) == (24, 6)
    assert (spec.n_features, spec.n_classes, spec.input_shape) == (5, None, (5,))
    assert loaded.source == "local"
    np.testing.assert_allclose(loaded.x_train.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(loaded.x_train.std(axis=0), 1)


def test_targets_are_standardised_on_training_rows():
    spec = Table(file=write(csv_text()), target="y")
    loaded, plain = spec.load(), spec.model_copy(update={"standardise_target": False}).load()
    assert loaded.target_standardisation.mean.shape == (1,)
    assert loaded.y_train.mean() == pytest.approx(0)
    assert loaded.y_train.std() == pytest.approx(1)
    assert plain.target_standardisation.is_identity
    for part in ("y_train", "y_test"):
        undone = loaded.target_standardisation.undo(getattr(loaded, part))
        np.testing.assert_allclose(undone, getattr(plain, part))


def test_targets_in_other_units_are_other_data():
    x = np.random.default_rng(0).normal(size=(20, 2))
    first, second = (pb.Dataset.from_arrays(x, scale * x[:, 0]) for scale in (1.0, 1024.0))
    np.testing.assert_array_equal(first.y_train, second.y_train)
    assert first.fingerprint != second.fingerprint


def test_several_targets_are_standardised_each():
    weight = [str(100.0 + i**2) for i in range(30)]
    name = write(csv_text(weight=weight, y=[f"{i / 7}" for i in range(30)]))
    spec = Table(file=name, target=("y", "weight"), without=("colour", "old"))
    loaded, plain = spec.load(), spec.model_copy(update={"standardise_target": False}).load()
    assert (spec.n_targets, spec.n_classes, loaded.target_names) == (2, None, ("y", "weight"))
    assert loaded.features == ("size",)
    assert loaded.training.y.shape == (24, 2)
    np.testing.assert_allclose(loaded.y_train.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(loaded.y_train.std(axis=0), 1)
    np.testing.assert_allclose(loaded.target_standardisation.sd, plain.y_train.std(axis=0))
    for part in ("y_train", "y_test"):
        np.testing.assert_allclose(loaded.raw_targets(getattr(loaded, part)), getattr(plain, part))
    frame = pd.read_csv(name)
    of_frame = pb.Dataset.from_frame(frame, ["y", "weight"], without=("colour", "old"))
    arrays = frame[["size"]].to_numpy(), frame[["y", "weight"]].to_numpy()
    of_arrays = pb.Dataset.from_arrays(*arrays, target_names=("y", "weight"))
    np.savez("t.npz", x=arrays[0], y=arrays[1])
    of_archive = Npz(file="t.npz").load()
    for other in (of_frame, of_arrays, of_archive):
        assert other.fingerprint == loaded.fingerprint
    assert of_arrays.target_names == ("y", "weight")
    assert of_archive.target_names == ("y1", "y2")


SEVERAL = {
    "`target` must name each target once, got 'y' twice": {"target": ("y", "y")},
    "`features` must not name the target, got 'y'": {"features": ("size", "y")},
    "`task` must be regression with 2 targets": {"task": "classification"},
    "target `colour` must hold numbers, as several targets do, got text": {
        "target": ("y", "colour")
    },
    "target `old` must hold numbers, as several targets do, got truth values": {
        "target": ("y", "old")
    },
    "`target` must be one of": {"target": ("y", "nowhere")},
    "`target` must name a column, got an empty list": {"target": ()},
}


@pytest.mark.parametrize("message", SEVERAL)
def test_several_targets_that_cannot_be(message):
    name = write(csv_text(y=[f"{i / 7}" for i in range(30)]))
    settings = {"target": ("y", "size")} | SEVERAL[message]
    with pytest.raises(DataError, match=re.escape(message)):
        Table(file=name, **settings).load()


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zip"])
def test_a_packed_table_is_the_same(ending):
    text = csv_text()
    plain = Table(file=write(text), target="y").load()
    path = Path(f"t.csv.{ending}")
    if ending == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("inside.csv", text)
    else:
        pack = {"gz": gzip, "bz2": bz2, "xz": lzma}[ending].compress
        path.write_bytes(pack(text.encode()))
    assert Table(file=str(path), target="y").load().fingerprint == plain.fingerprint


@pytest.mark.parametrize(
    ("target", "task", "classes"),
    [
        ("colour", None, ("blue", "green", "red")),
        ("old", None, ("false", "true")),
        ("number", "classification", ("1", "2", "10")),
        ("number", "regression", ()),
        ("y", None, ()),
    ],
)
def test_what_targets_are(target, task, classes):
    number = [["10", "2", "1"][i % 3] for i in range(30)]
    name = write(csv_text(number=number, y=[f"{i / 7}" for i in range(30)]))
    spec = Table(file=name, target=target, task=task, redundant="drop")
    assert spec.load().classes == classes
    assert spec.n_classes == (len(classes) or None)


def test_features_are_chosen_and_left_out():
    name = write(csv_text())
    assert Table(file=name, target="y", features=("old", "size")).load().features == ("old", "size")
    spec = Table(file=name, target="y", without=("colour",))
    assert spec.load().features == ("size", "old")
    assert spec.is_planar


def test_numbers_may_be_categories():
    name = write(csv_text(size=[str(i % 2 + 1) for i in range(30)]))
    spec = Table(file=name, target="y", features=("size",), categorical=("size",))
    assert spec.load().features == ("size=1", "size=2")


def test_missing_values_are_filled_by_the_training_mean_or_dropped():
    size = [*SIZES[:4], "", *SIZES[5:]]
    name = write(csv_text(size=size, y=[*map(str, range(0, 300, 10))]))
    spec = Table(file=name, target="y", features=("size",), missing="mean", standardise="none")
    for seed in range(9):
        loaded = spec.model_copy(update={"seed": seed}).load()
        filled = [v for v in np.concatenate([loaded.x_train, loaded.x_test])[:, 0] if v % 1 != 0.5]
        known = [v for v in loaded.x_train[:, 0] if v % 1 == 0.5]
        assert filled in ([], [pytest.approx(np.mean(known))])
    dropped = spec.model_copy(update={"missing": "drop"})
    assert sum(dropped.rows) == 29


@pytest.mark.parametrize("redundant", ["drop", "keep"])
def test_columns_that_say_nothing_new(redundant):
    name = write(csv_text(size=["1.5"] * 30, again=[str(i % 2 == 0) for i in range(30)]))
    found = Table(file=name, target="y", without=("colour",), redundant=redundant).load().features
    assert found == {"drop": ("old",), "keep": ("size", "old", "again")}[redundant]


def test_a_file_is_read_once_until_it_changes(monkeypatch):
    read, name = [], write(csv_text())
    count = table_file._names
    monkeypatch.setattr(table_file, "_names", lambda *args: read.append(args) or count(*args))
    spec = Table(file=name, target="y", standardise="none")
    assert spec.rows == spec.rows == (24, 6)
    spec.load()
    assert len(read) == 1
    write(csv_text(rows=20))
    assert spec.rows == (16, 4)
    assert len(read) == 2


def test_a_line_spans_the_one_input():
    spec = Table(file=write(csv_text(size=SIZES)), target="y", features=("size",))
    (line,) = spec.lines()
    assert (line.name, line.position[0], line.position[-1]) == ("size", 0.5, 29.5)
    np.testing.assert_array_equal(line.inputs, line.position[:, None])
    assert spec.line_points == len(line.position)
    without = Table(file="t.csv", target="y")
    assert (without.lines(), without.line_points) == ((), 0)


def test_other_separators():
    name = write(csv_text().replace(",", ";"))
    assert Table(file=name, target="y", separator=";").n_features == 5


def test_parquet_says_what_it_needs(monkeypatch):
    write("", "t.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"t.parquet: to read it, pip install \'\.\[parquet\]\'"):
        Table(file="t.parquet", target="y").load()


def test_parquet_is_a_frame(monkeypatch):
    frame = pd.DataFrame({"a": np.arange(20.0), "y": pd.Categorical(["n", "m"] * 10)})
    monkeypatch.setattr(pd, "read_parquet", lambda path: frame)
    write("", "t.parquet")
    spec = Table(file="t.parquet", target="y")
    assert spec.load().fingerprint == pb.Dataset.from_frame(frame, "y").fingerprint
    assert spec.load().classes == ("m", "n")


def test_labels_of_rows_in_parquet_are_left_out(monkeypatch):
    """Of two tables that were joined some are there twice: predictions stood beside other rows."""
    part = pd.DataFrame({"a": [1.0, 2.0]})
    monkeypatch.setattr(pd, "read_parquet", lambda path: pd.concat([part, 10 * part]))
    write("", "t.parquet")
    frame = read_table(stamp_of(Path("t.parquet")), "t.parquet").frame
    assert frame["a"].to_dict() == {0: 1, 1: 2, 2: 10, 3: 20}


def test_a_named_index_in_parquet_is_left_out_with_a_word(monkeypatch):
    table = pd.DataFrame({"a": [1.0, 2.0]}, index=pd.Index([3, 4], name="id"))
    monkeypatch.setattr(pd, "read_parquet", lambda path: table)
    write("", "t.parquet")
    (note,) = read_table(stamp_of(Path("t.parquet")), "t.parquet").notes
    assert note == "the index `id` is left out: `reset_index()` makes columns of it"


@pytest.mark.parametrize("how", ["another folder", "moved"])
def test_files_of_one_name_size_and_time_are_told_apart(how, tmp_path, monkeypatch):
    """In a folder that one goes to, or moved to the same place."""
    for folder, value in (("first", 1), ("second", 2)):
        Path(folder).mkdir()
        Path(folder, "t.csv").write_text(f"a,y\n{value},2\n")
        os.utime(Path(folder, "t.csv"), ns=(10**18, 10**18))

    def first_value():
        return read_table(stamp_of(Path("t.csv")), "t.csv").frame["a"].item()

    monkeypatch.chdir(tmp_path / "first")
    assert first_value() == 1
    if how == "moved":
        Path("../second/t.csv").replace("t.csv")
    else:
        monkeypatch.chdir(tmp_path / "second")
    assert first_value() == 2


def test_packed_files_as_others_write_them():
    """Names in capitals, and what macOS adds to a ZIP file."""
    Path("T.CSV.GZ").write_bytes(gzip.compress(b"a,y\n1,2\n"))
    with zipfile.ZipFile("T.ZIP", "w") as archive:
        archive.writestr("t.csv", "a,y\n1,2\n")
        archive.writestr("__MACOSX/._t.csv", "Mac OS X")
    for name in ("T.CSV.GZ", "T.ZIP"):
        frame = read_table(stamp_of(Path(name)), name).frame
        assert frame.to_dict("list") == {"a": [1], "y": [2]}


# Arrays and frames


def test_a_frame_is_what_its_file_is():
    name = write(csv_text())
    loaded = Table(file=name, target="y", seed=2, split=RandomSplit(test_size=0.3)).load()
    frame = pd.read_csv(name)
    found = pb.Dataset.from_frame(frame, target="y", seed=2, split=pb.RandomSplit(test_size=0.3))
    assert found.fingerprint == loaded.fingerprint


def test_frames_of_other_libraries_are_refused():
    class Frame:
        __module__ = "polars.dataframe"

        def to_pandas(self):
            raise NotImplementedError

    rule = r"`frame` must be a pandas DataFrame, got polars.Frame: call its `to_pandas\(\)`\."
    with pytest.raises(TypeError, match=rule):
        pb.Dataset.from_frame(Frame(), "y")


def test_complex_numbers_are_refused():
    """Their real parts were taken."""
    frame = pd.DataFrame({"a": np.arange(20) * 1j, "y": np.arange(20) / 7})
    with pytest.raises(DataError, match="`a` must hold numbers, text or truth values, got c"):
        pb.Dataset.from_frame(frame, "y")


def test_columns_of_a_frame_may_be_numbered():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 3)))
    assert pb.Dataset.from_frame(frame, target="2").features == ("0", "1")


@pytest.mark.parametrize(
    ("columns", "label"),
    [
        ({"a": ["b", "c"] * 10, "a=b": np.arange(20.0)}, "a=b"),
        ({"a": ["b=c", "d"] * 10, "a=b": ["c", "d"] * 10}, "a=b=c"),
    ],
)
def test_inputs_whose_names_are_alike(columns, label):
    """A network's inputs are known by these names."""
    message = rf"input `{label}` must be made of one column, got it of `a=b` too: rename it"
    with pytest.raises(DataError, match=message):
        pb.Dataset.from_frame(pd.DataFrame(columns | {"y": np.arange(20) / 7}), "y")


@pytest.mark.parametrize("largest", [10**20, -(10**19), 2**64 - 1])
def test_whole_numbers_of_more_than_64_bits_are_numbers(largest):
    sizes = [(-1) ** i * i % 5 for i in range(20)]
    sizes[3] = largest
    frame = pd.DataFrame({"size": sizes, "y": np.arange(20) / 7})
    frame.to_csv("t.csv", index=False)
    settings = {"target": "y", "standardise": "none"}
    for dataset in (
        Table(file="t.csv", **settings).load(),
        pb.Dataset.from_frame(frame, **settings),
    ):
        assert dataset.features == ("size",)
        rows = np.concatenate([dataset.x_train, dataset.x_test])[:, 0]
        np.testing.assert_array_equal(np.sort(rows), np.sort(np.float64(sizes)))


def test_new_rows_may_have_a_category_whose_input_was_left_out():
    """It said the same as another column, so that `redundant: drop` left it out."""
    frame = pd.DataFrame({"town": ["A", "B", "C"] * 10, "land": ["X", "Y", "Y"] * 10})
    dataset = pb.Dataset.from_frame(frame.assign(y=np.arange(30) / 7), "y", redundant="drop")
    assert dataset.features == ("town=A", "town=B", "town=C", "land=Y")
    new = pd.DataFrame({"town": ["A", "C"], "land": ["X", "Y"]})
    found = inputs_of_frame(new, dataset.encoder, "new")
    np.testing.assert_array_equal(found, [[1, 0, 0, 0], [0, 0, 1, 1]])


@pytest.mark.parametrize("kinds", [("category", float), (float, "category"), ("category", int)])
def test_categories_that_are_numbers_are_found_in_columns_of_another_type(kinds):
    first, second = kinds
    doors = pd.Series([2.0, 4.0, 5.0] * 10)
    frame = pd.DataFrame({"doors": doors.astype(first), "y": np.arange(30) / 7})
    dataset = pb.Dataset.from_frame(frame, "y", categorical=("doors",), redundant="keep")
    new = pd.DataFrame({"doors": doors[:3].astype(second)})
    np.testing.assert_array_equal(inputs_of_frame(new, dataset.encoder, "new"), np.eye(3))


def test_signs_of_equality_in_columns_and_categories():
    frame = pd.DataFrame({"a": ["x", "b=z"] * 10, "a=b": ["c", "d"] * 10, "y=": np.arange(20) / 7})
    frame.loc[3, "a"] = "c"
    dataset = pb.Dataset.from_frame(frame.assign(y=frame["y="]), "y", redundant="keep")
    assert dataset.features == ("a=b=z", "a=c", "a=x", "a=b=c", "a=b=d", "y=")
    found = inputs_of_frame(frame[:4], dataset.encoder, "new")
    expected = [[0, 0, 1, 1, 0], [1, 0, 0, 0, 1], [0, 0, 1, 1, 0], [0, 1, 0, 0, 1]]
    np.testing.assert_array_equal(found[:, :5], expected)


@pytest.mark.parametrize("standardise", ["feature", "global", "none"])
def test_missing_values_of_new_rows_are_filled_as_those_of_training_rows(standardise):
    frame = pd.read_csv(write(csv_text()))
    frame.loc[3, "size"] = frame.loc[5, "colour"] = None
    settings = {"missing": "mean", "standardise": standardise}
    dataset = pb.Dataset.from_frame(frame, "y", **settings)
    raw = dataset.standardisation.undo(dataset.x_train)
    new = inputs_of_frame(
        pd.DataFrame({"size": [None], "colour": [None], "old": [1]}), dataset.encoder, "new"
    )
    np.testing.assert_allclose(new[0, :4], raw.mean(axis=0)[:4])


@pytest.mark.parametrize("kind", ["i8", "f8"])
def test_objects_that_are_numbers_are_numbers(kind):
    y = (np.arange(20) % 12 * 3).astype(kind)
    frame = pd.DataFrame({"name": list("abcdefghijklmnopqrst"), "y": y})
    found, expected = (
        pb.Dataset.from_arrays(np.eye(20)[:, :3], y) for y in (frame.to_numpy()[:, 1], y)
    )
    assert not found.classes
    assert found.fingerprint == expected.fingerprint


def test_classes_of_bytes_are_text():
    labels = np.array([b"cat", b"dog"] * 10)
    for y in (labels, labels.astype(object)):
        assert pb.Dataset.from_arrays(np.eye(20)[:, :3], y).classes == ("cat", "dog")


@pytest.mark.parametrize("labels", [["a", "b"] * 10, [True, False] * 10])
def test_arrays_are_what_an_archive_of_them_is(labels):
    x = np.random.default_rng(0).normal(size=(20, 3))
    np.savez("t.npz", inputs=x, labels=np.array(labels))
    loaded = Npz(file="t.npz", x="inputs", y="labels").load()
    found = pb.Dataset.from_arrays(x, labels)
    assert found.fingerprint == loaded.fingerprint
    assert found.features == ("x1", "x2", "x3")
    assert found.classes in (("a", "b"), ("false", "true"))


@pytest.mark.parametrize(
    ("shape", "input_shape"), [((20, 4, 5), (1, 4, 5)), ((20, 3, 4, 5), (3, 4, 5))]
)
def test_arrays_of_images(shape, input_shape):
    x = np.random.default_rng(0).integers(256, size=shape).astype(np.uint8)
    np.savez("t.npz", x=x, y=np.array(["a", "b"] * 10))
    spec = Npz(file="t.npz")
    loaded = spec.load()
    assert spec.input_shape == loaded.input_shape == input_shape
    assert (spec.channels, spec.image_shape) == (input_shape[0], input_shape[1:])
    raw = loaded.standardisation.undo(loaded.x_train)
    assert 0 <= raw.min() < raw.max() <= 1
    assert not spec.is_planar


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "digits", "diabetes"])
def test_what_scikit_learn_ships_is_known_beforehand(name):
    spec = Sklearn(name=name, seed=1)
    loaded = spec.load()
    assert spec.rows == (len(loaded.y_train), len(loaded.y_test))
    assert spec.input_shape == loaded.input_shape
    assert spec.n_classes == (len(loaded.classes) or None)
    assert loaded.classes[:1] == {"iris": ("setosa",), "diabetes": ()}.get(name, loaded.classes[:1])
    assert loaded.overlap == pytest.approx(0.25, abs=0.01)


# What is wrong


def broken(*, target="y", text=None, **settings):
    return Table(file=write(csv_text() if text is None else text), target=target, **settings)


def numbers(*, at, value):
    """A column of numbers with another entry in one row."""
    return [value if i == at else entry for i, entry in enumerate(SIZES)]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: broken(text=""), "t.csv: is empty."),
        (lambda: broken(text="a,y\n"), "t.csv: has no rows."),
        (
            lambda: broken(text="a,y\n1,2\n3,4,5\n"),
            "t.csv, line 3: must have 2 entries, one for each column, got 3.",
        ),
        (
            lambda: broken(text="a,y\n1,2\n3\n"),
            "t.csv, line 3: must have 2 entries, one for each column, got 1.",
        ),
        (lambda: broken(text="a,a,y\n1,2,3\n"), "t.csv: column `a` must be there once"),
        (
            lambda: broken(text="a,,y\n1,2,3\n"),
            "t.csv: column 2 must have a name in the first line.",
        ),
        (
            lambda: broken(target="z"),
            "`target` must be one of `size`, `colour`, `old`, `y` of t.csv, got 'z'.",
        ),
        (
            lambda: broken(features=("old", "age")),
            "`features` must be one of `size`, `colour`, `old`, `y` of t.csv, got 'age'.",
        ),
        (
            lambda: broken(features=("old", "old")),
            "`features` must name each column once, got 'old' twice.",
        ),
        (lambda: broken(features=("y",)), "`features` must not name the target, got 'y'."),
        (
            lambda: broken(split=RandomSplit(group="who")),
            "`split.group` must be one of `size`, `colour`, `old`, `y` of t.csv, got 'who'.",
        ),
        (
            lambda: broken(text=csv_text(size=numbers(at=6, value="big"))),
            "t.csv, row 7: column `size` must be a number, got 'big'; name it under "
            "`categorical` if it is none.",
        ),
        (
            lambda: broken(text=csv_text(size=numbers(at=2, value=""))),
            "t.csv, row 3: column `size` is missing: say `missing: mean`, `missing: drop`, or "
            "leave the column out with `without`.",
        ),
        (
            lambda: broken(text=csv_text(size=numbers(at=2, value="inf"))),
            "t.csv, row 3: column `size` must be a finite number, got inf.",
        ),
        (
            lambda: broken(text=csv_text(y=numbers(at=29, value=""))),
            "t.csv, row 30: target `y` is missing: say `missing: drop`.",
        ),
        (
            lambda: broken(text=csv_text(size=["3"] * 30)),
            "t.csv: `size` must have more than one value: name them under `without`, or "
            "say `redundant: drop`.",
        ),
        (
            lambda: broken(text=csv_text(size=SIZES, again=SIZES)),
            "t.csv: columns `size` and `again` must not be the same: name one under `without`, "
            "or say `redundant: drop`.",
        ),
        (
            lambda: broken(text=csv_text(y=["yes"] * 30)),
            "t.csv: target `y` must have at least two classes, got `yes` only.",
        ),
        (
            lambda: broken(text=csv_text(y=["1", "2", "3"] * 10)),
            "`task` must be classification or regression, as `y` has whole numbers of 3 values "
            "(`1`, `2`, `3`), got null.",
        ),
        (
            lambda: broken(task="classification"),
            "`task` must be regression, as `y` has the value 0.25, got 'classification'.",
        ),
        (
            lambda: broken(target="colour", task="regression"),
            "`task` must be classification with the values of `colour` (`blue`, `green`, `red`), "
            "got 'regression'.",
        ),
        (
            lambda: broken(text=csv_text(rows=120, colour=[f"w{i}" for i in range(120)])),
            "t.csv: column `colour` must hold numbers or categories, got 120 different words in "
            "120 rows: name it under `without`, or under `categorical` if these are categories.",
        ),
        (
            lambda: broken(
                text=csv_text(rows=120, colour=[f"w{i}" for i in range(120)]),
                categorical=("colour",),
            ),
            "t.csv: column `colour` must be numbers or at most 100 categories, got 120: name",
        ),
        (lambda: Table(file="none.csv", target="y"), "`file` must be there: beside the experiment"),
        (lambda: broken(separator=",,"), "`separator` must be one character, got ',,'."),
        (
            lambda: broken(text="a;y\n1;2", separator="|"),
            "`separator` must stand between the columns of t.csv, ';' it seems, got '|'.",
        ),
        (lambda: Npz(file=write("no archive", "t.npz")), "t.npz: cannot be read: it is no archive"),
    ],
)
def test_what_is_wrong_is_one_line(build, message):
    with pytest.raises(DataError) as caught:
        build().check()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_damaged_packing():
    Path("t.csv.gz").write_bytes(gzip.compress(csv_text().encode())[:-20])
    with pytest.raises(DataError, match=r"t.csv.gz: cannot be read: "):
        Table(file="t.csv.gz", target="y").check()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((4, 2))}, "`y` must be one of `x` of t.npz, got 'y'."),
        ({"x": np.zeros(4), "y": np.zeros(4)}, "t.npz: must be numbers (row, feature)"),
        (
            {"x": np.zeros((4, 2)), "y": np.zeros(3)},
            "t.npz: `y` must have one target for each of 4",
        ),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0)}, "t.npz: has no rows."),
        (
            {"x": np.zeros((4, 2, 5, 5)), "y": np.zeros(4)},
            "t.npz: images must have 1 or 3 channels",
        ),
        (
            {"x": np.zeros((4, 2)), "y": np.arange(4.0), "categories": np.array(["a", "b"])},
            "`categories` must name an array (input, 2) of t.npz, got shape (2,).",
        ),
        (
            {"x": np.arange(8.0).reshape(4, 2), "y": np.array([0.5, np.nan, 1, 2])},
            "t.npz, row 2: target `y` must be finite, got nan.",
        ),
        (
            {"x": np.array([[0, 1], [np.nan, 2]]), "y": np.array([0.5, 1])},
            "t.npz, row 2: column `x1` is missing",
        ),
        (
            {"x": np.zeros((4, 2)), "y": np.array([{}, 1, 2, 3], dtype=object)},
            "t.npz: cannot be read: it is no archive, or holds Python objects",
        ),
    ],
)
def test_what_is_wrong_with_arrays(arrays, message):
    np.savez("t.npz", **arrays)
    with pytest.raises(DataError) as caught:
        Npz(file="t.npz", categories="categories" if "categories" in arrays else None).check()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


SOME = np.arange(20.0).reshape(10, 2) ** 2
GROUPS = ["a", "b", "c", "d", "e"] * 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"y": ["a", "b"] * 4 + [np.nan] * 2}, "x, row 9: target `y` is missing."),
        (
            {"y": [0.0, 1.0] * 4 + [0.0, np.inf], "task": "classification"},
            "x, row 10: target `y` must be finite, got inf.",
        ),
        ({"groups": [*GROUPS[:8], np.nan, "e"]}, "x, row 9: its group is missing."),
        ({"groups": [*GROUPS[:8], None, "e"]}, "x, row 9: its group is missing."),
        ({"groups": [0.0, 1, 2, 3, 4, 5, 6, 7, np.nan, 9]}, "x, row 9: its group is missing."),
        (
            {"groups": np.arange(10).reshape(-1, 1)},
            "x: must have a group for each of 10 rows, got shape (10, 1).",
        ),
    ],
)
def test_what_is_missing_in_memory(settings, message):
    if "groups" in settings:
        settings = settings | {"split": pb.Folds(folds=2, group="who")}
    with pytest.raises(DataError) as caught:
        pb.Dataset.from_arrays(SOME, **({"y": ["a", "b"] * 5} | settings))
    assert str(caught.value) == message


@pytest.mark.parametrize("groups", [np.array(GROUPS, dtype=object), GROUPS, [*range(9, 14)] * 2])
def test_groups_are_the_same_of_any_type(groups):
    split = pb.Folds(folds=5, group="who")
    sorted_numbers = np.unique(groups, return_inverse=True)[1]
    found, expected = (
        pb.Dataset.from_arrays(SOME, np.arange(10) / 7, groups=g, split=split).fingerprint
        for g in (groups, sorted_numbers)
    )
    assert found == expected
