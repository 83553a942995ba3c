"""Tables as spreadsheets and statistics programs write them: the right value or one error."""

import logging
import re
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest

import pmbnn as pb
from pmbnn.data import DataError, Table
from pmbnn.data.base import stamp_of
from pmbnn.data.frames import MISSING_WORDS, NOTATIONS, inputs_of_frame, is_number
from pmbnn.data.raw import Encoder
from pmbnn.data.table_file import Format, read_table

ROWS = 30


def houses() -> pd.DataFrame:
    """A table with fractions, thousands, words of all kinds and classes."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "area": rng.uniform(30, 200, ROWS).round(2),
            "price": rng.uniform(1e5, 2e6, ROWS).round(2),
            "rooms": rng.integers(1, 9, ROWS),
            "town": rng.choice(["Köln", "NA", "None"], ROWS),
            "sold": rng.choice(["ja", "nein"], ROWS),
        }
    )


def grouped(number: float, thousands: str, decimal: str) -> str:
    return f"{number:,.2f}".translate(str.maketrans({",": thousands, ".": decimal}))


def written(frame, *, decimal=".", thousands=None, encoding="utf-8", start="", **settings) -> Path:
    """The table as a CSV file of a locale; thousands are separated in the column of prices."""
    if thousands is not None:
        price = [grouped(number, thousands, decimal) for number in frame["price"]]
        frame = frame.assign(price=price)
    text = start + frame.to_csv(index=settings.pop("index", False), decimal=decimal, **settings)
    Path("t.csv").write_bytes(text.encode(encoding))
    return Path("t.csv")


def read(path, given=None, **settings):
    path = Path(path)
    return read_table(stamp_of(path), path.name, Format(**(given or {})), **settings)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PMBNN_DATA", raising=False)


LOCALES = {
    "plain": {},
    "German": {"sep": ";", "decimal": ",", "encoding": "cp1252"},
    "German, thousands": {"sep": ";", "decimal": ",", "thousands": "."},
    "French": {"sep": ";", "decimal": ",", "thousands": "\u202f", "encoding": "utf-8-sig"},
    "French, no-break spaces": {"sep": ";", "decimal": ",", "thousands": "\u00a0"},
    "Swiss": {"sep": ";", "thousands": "’", "encoding": "cp1252"},
    "US, thousands": {"thousands": ","},
    "Unicode text of Excel": {"sep": "\t", "decimal": ",", "encoding": "utf-16"},
    "UTF-16 without a mark": {"sep": "\t", "encoding": "utf-16-le"},
    "UTF-16, big end first": {"sep": "\t", "encoding": "utf-16-be"},
    "bars": {"sep": "|", "encoding": "latin-1"},
    "commas, quoted": {"decimal": ",", "quoting": 1},
    "sep line": {"sep": ";", "decimal": ",", "start": "sep=;\n"},
    "sep line of another sign": {"sep": "!", "start": '"sep=!"\n'},
    "pandas, with its index": {"index": True},
    "comments": {"start": "# exported on Monday\n# by me, from there\n"},
    "blank lines": {"start": "\n\n", "lineterminator": "\r\n"},
    "old Mac": {"lineterminator": "\r"},
    "spaces": {"sep": " "},
}


@pytest.mark.parametrize("locale", LOCALES)
def test_the_same_table_whatever_wrote_it(locale, caplog):
    """What is detected is said in one line."""
    with caplog.at_level(logging.WARNING):
        found = read(written(houses(), **LOCALES[locale])).frame
    pd.testing.assert_frame_equal(found, houses(), check_dtype=False)
    np.testing.assert_array_equal(found["price"].to_numpy(), houses()["price"].to_numpy())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == (0 if locale in ("plain", "blank lines", "old Mac") else 1)
    assert all(line.startswith("t.csv: ") and "\n" not in line for line in lines)


def test_an_experiment_has_the_rows_of_the_table():
    settings = {"target": "sold", "without": ("town",)}
    plain = Table(file=str(written(houses())), **settings).load()
    for locale in ("German, thousands", "UTF-16 without a mark"):
        found = Table(file=str(written(houses(), **LOCALES[locale])), **settings).load()
        assert found.fingerprint == plain.fingerprint


@pytest.mark.parametrize(
    "given",
    [
        {"separator": ";", "decimal": ",", "thousands": ".", "encoding": "utf-8"},
        {"decimal": ","},
        {"thousands": "."},
    ],
)
def test_a_format_may_be_given(given):
    path = written(houses(), sep=";", decimal=",", thousands=".")
    pd.testing.assert_frame_equal(read(path, given).frame, houses(), check_dtype=False)
    assert Table(file="t.csv", target="sold", **given).n_classes == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decimal": ",", "thousands": ","}, "`thousands` must differ from `decimal`, got ','."),
        ({"encoding": "klingon"}, "`encoding` must be one that Python knows, got 'klingon'."),
        ({"encoding": "ascii"}, "`encoding` must be that of t.csv, whose byte "),
        ({"decimal": ","}, "t.csv, row 1: column `area` must be a number, got "),
    ],
)
def test_a_format_that_is_not_that_of_the_file(settings, message):
    with pytest.raises(DataError, match=re.escape(message)):
        Table(file=str(written(houses())), target="sold", **settings).check()


def test_how_a_file_is_read_is_in_no_identity():
    from pmbnn.experiment.plan import _spec_text

    plain = Table(file="t.csv", target="y")
    for field, value in (("decimal", ","), ("thousands", "."), ("encoding", "utf-8")):
        assert field not in _spec_text(plain, None)
        changed = plain.model_copy(update={field: value})
        assert _spec_text(changed, None) == _spec_text(plain, None)


# Numbers of two values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a;y\n1,234;ja\n2,345;nein\n", 1.234),
        ('a,b,y\n"1,234",1.5,ja\n"2,345",2.5,nein\n', 1234),
        ('a,y\n"1,234,567",ja\n"2,345",nein\n', 1234567),
        ('a,b,y\n"1,234","2,5",ja\n"2,345","3,25",nein\n', 1.234),
        ("a;b;y\n1.234;2,5;ja\n2.345;3,25;nein\n", 1234),
        ("a;y\n1.234;ja\n2.345;nein\n", 1.234),
        ("a;y\n1.200;ja\n950;nein\n", 1200),
        ("a;y\n1.200;ja\nNA;ja\n950;nein\n", 1200),
        ("a;y\n1.200;ja\n1000;nein\n", 1.2),
        ("a;y\n1.234;ja\n950;nein\n", 1.234),
        ("a,y\n1.2,ja\n950,nein\n", 1.2),
        ("a;b;y\n1.200;0.5;ja\n950;2.25;nein\n", 1.2),
    ],
)
def test_a_fraction_or_thousands(text, value):
    Path("t.csv").write_text(text)
    assert read("t.csv").frame["a"][0] == value


def test_what_may_be_either_must_be_said():
    Path("t.csv").write_text('a,y\n"1,234",ja\n"2,345",nein\n')
    message = "`decimal` must be given: '1,234' of t.csv may be a fraction, or thousands."
    with pytest.raises(DataError, match=re.escape(message)):
        read("t.csv")
    assert read("t.csv", {"decimal": ","}).frame["a"][0] == 1.234
    assert read("t.csv", {"decimal": "."}).frame["a"][0] == 1234
    assert read("t.csv", {"thousands": ","}).frame["a"][0] == 1234
    assert read("t.csv", decimal=",").frame["a"][0] == 1.234


@pytest.mark.parametrize("separator", [",", "\t"])
def test_points_that_must_separate_thousands(separator):
    Path("t.csv").write_text(f"a{separator}y\n950{separator}ja\n1.200{separator}nein\n")
    with pytest.raises(DataError, match=re.escape("`decimal` must be given: '1.200' of t.csv")):
        read("t.csv")
    assert read("t.csv", {"decimal": "."}).frame["a"].tolist() == [950, 1.2]
    assert read("t.csv", {"decimal": ","}).frame["a"].tolist() == [950, 1200]


@pytest.mark.parametrize("text", ["a;y\n1.234;ja\n", "a;b\n950;0.5\n1.200;2.25\n"])
def test_points_that_may_separate_thousands_are_named(text):
    Path("t.csv").write_text(text)
    (note,) = read("t.csv").notes[1:]
    assert note.startswith("column `a` has '1.2") and "`decimal: ','`" in note
    assert not read("t.csv", {"decimal": "."}).notes[1:]


def test_new_rows_in_the_notation_of_the_training_rows():
    Path("t.csv").write_text("a;y\n1.234;ja\n")
    assert read("t.csv", decimal=",").frame["a"][0] == 1234
    Path("t.csv").write_text("a;y\n1,234;ja\n")
    assert read("t.csv", decimal=".").frame["a"][0] == 1234
    Path("t.csv").write_text("a,y\n1.234,ja\n")
    assert read("t.csv", decimal=",").frame["a"][0] == 1.234


def test_rows_of_missing_words_are_rows():
    Path("t.csv").write_text("id,x\n1,2.5\nNA,NA\n,\n3,4.5\n")
    as_numbers, as_text = read("t.csv").frame, read("t.csv", texts=frozenset(["id"])).frame
    assert as_numbers["x"].tolist() == pytest.approx([2.5, np.nan, 4.5], nan_ok=True)
    assert as_text["id"].tolist() == ["1", "NA", "3"]
    with pytest.raises(DataError, match="row 2: target `x` is missing"):
        _ = Table(file="t.csv", target="x", task="regression").n_features


def test_numbers_of_every_notation():
    assert [n for n in NOTATIONS if is_number("1,000", n)] == [(".", ","), *NOTATIONS[4:]]
    for wrong in ("", "1.2.3", "12a", "1,00,000", "1 2", "e5", "--1", "1-2", "0x1F", "1_000"):
        assert not any(is_number(wrong, notation) for notation in NOTATIONS), wrong


# Missing values and words


@pytest.mark.parametrize("word", [*sorted(MISSING_WORDS), "NA", "NaN", "None", "NULL", ""])
def test_words_are_missing_in_columns_of_numbers_only(word):
    size = [f"{i}.5" for i in range(ROWS)]
    region = [word if i % 3 else "south" for i in range(ROWS)]
    size[0] = size[4] = word
    frame = pd.DataFrame({"size": size, "region": region, "y": np.arange(ROWS) / 7})
    found = read(written(frame)).frame
    assert np.flatnonzero(found["size"].isna()).tolist() == [0, 4]
    assert found["size"].dtype == np.float64
    assert set(found["region"].dropna()) == {"south", word} - {""}
    assert found["region"].isna().sum() == (0 if word else 20)


def test_classes_and_categories_called_none_are_none_the_less():
    frame = pd.DataFrame(
        {
            "x": np.arange(60) / 7,
            "region": ["NA", "EU", "null"] * 20,
            "stage": np.where(np.arange(60) < 35, "None", "late"),
        }
    )
    made = Table(file=str(written(frame)), target="stage").load()
    assert made.classes == ("None", "late")
    assert made.features == ("x", "region=EU", "region=NA", "region=null")
    assert len(made.y_train) + len(made.y_test) == 60
    assert made.fingerprint == pb.Dataset.from_frame(frame, "stage").fingerprint
    new = pd.DataFrame({"x": [0.5, 1], "region": ["NA", "null"]})
    found = inputs_of_frame(read(written(new)).frame, made.encoder, "new")
    np.testing.assert_array_equal(found, [[0.5, 0, 1, 0], [1, 0, 0, 1]])


@pytest.mark.parametrize(
    "codes", [[1234567, 1234568, 5], [1234567.0, 1234568.0, 5.0], [0.12345678, 0.12345679, 5.0]]
)
def test_categories_that_differ_in_their_last_digits(codes):
    frame = pd.DataFrame({"code": codes * 10, "y": np.arange(30) / 7})
    made = pb.Dataset.from_frame(frame, "y", categorical=["code"])
    assert len(set(made.features)) == 3
    for new in (frame[:3], frame[:3].astype(str)):
        found = inputs_of_frame(new, made.encoder, "new")
        assert sorted(found.tolist()) == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]


def test_rows_of_messages_are_those_of_the_frame():
    """Also where rows before them are dropped."""
    frame = pd.DataFrame({"x": np.arange(30.0), "y": np.arange(30) / 7})
    frame.loc[3, "y"], frame.loc[9, "y"] = np.nan, np.inf
    frame["z"] = frame["y"] + 1
    for targets, name in (("y", "y"), (["y", "z"], "y"), (["z", "y"], "z")):
        with pytest.raises(DataError, match=f"row 10: target `{name}` must be finite, got inf"):
            pb.Dataset.from_frame(frame, targets, missing="drop")


def test_missing_targets_of_arrays_are_no_class():
    x = np.arange(20.0)[:, None]
    for gap in (None, np.nan, pd.NA):
        y = np.array(["a", "b"] * 10, dtype=object)
        y[3] = gap
        with pytest.raises(DataError, match="x, row 4: target `y` is missing"):
            pb.Dataset.from_arrays(x, y)


@pytest.mark.parametrize("word", ["", "NA"])
def test_truth_values_with_gaps_are_truth_values(word):
    garden = ["TRUE", word, "false", *["True"] * 27]
    found = read(written(houses().assign(garden=garden))).frame["garden"]
    assert found[:3].tolist() == [True, pd.NA, False]
    Table(file="t.csv", target="area", missing="mean", features=("garden", "rooms")).check()


def test_spaces_around_words_make_no_category():
    town = ["  Köln", "Köln ", "Bonn\u00a0", "   ", "Bonn", *["Ulm"] * 25]
    found = read(written(houses().assign(town=town))).frame["town"]
    assert set(found.dropna()) == {"Köln", "Bonn", "Ulm"}
    assert found.isna().sum() == 1


def test_words_that_differ_in_case_are_doubtful():
    notes = read(written(houses().assign(town=["Yes", "yes", "no"] * 10))).notes
    assert notes == ("column `town` has categories that differ in case only: 'Yes' and 'yes'",)


def test_lines_of_totals_and_missing_quotes_are_doubtful():
    path = written(houses())
    path.write_text(path.read_text() + ",12345.5,,,\n")
    assert read(path).notes == ("row 31 has one entry only: is it a line of totals?",)
    Path("t.csv").write_text("a,y\n" + "".join(f'{i}.5,"x{i % 2}\n' for i in range(4)))
    assert "column `y` has a line break in " in read("t.csv").notes[0]


# Columns that are no categories


NO_NUMBERS = {
    "currency": "$1,200",
    "currency behind": "3,50 €",
    "code": "EUR 12",
    "percent": "12 %",
    "negative": "(1,200)",
    "minus behind": "120-",
    "unit": "5 kg",
    "Indian": "1,00,000",
    "address": "1.2.3.4",
}


@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_what_looks_like_a_number_is_no_category(kind):
    """Few different values in many rows, which one-hot columns would take."""
    value = NO_NUMBERS[kind]
    column = [value if i % 3 else value.replace("1", "2") for i in range(ROWS)]
    column[0] = ""
    path = written(houses().assign(odd=column))
    shown = read(path).frame["odd"][1]
    message = f"t.csv, row 2: column `odd` must be a number, got {shown!r}; name it under"
    with pytest.raises(DataError, match=re.escape(message)):
        Table(file=str(path), target="sold", missing="mean").check()
    Table(file=str(path), target="sold", missing="mean", categorical=("odd",)).check()
    with pytest.raises(DataError, match="row 2: target `odd` must be a number"):
        Table(file=str(path), target="odd", missing="drop").check()


TIMES = [
    *("12:30", "9:05 pm", "2020-01-02", "02.01.2020", "1/2/20", "2020-01-02T10:00:00Z", "2020-01"),
    *("2 January 2020", "Jan 2, 2020", "Mon, 2 Jan 2020", "2. März 2020", "2 févr. 2020"),
    *("Dez 2020", "2. 1. 2020"),
]


@pytest.mark.parametrize("time", TIMES)
def test_dates_and_times_are_no_categories(time):
    column = [time if i % 3 else time.replace("2", "1") for i in range(ROWS)]
    path = written(houses().assign(when=column))
    with pytest.raises(DataError, match="column `when` must hold numbers or categories, got dates"):
        Table(file=str(path), target="sold").check()
    with pytest.raises(DataError, match="target `when` must hold numbers or categories, got dates"):
        Table(file=str(path), target="when").check()


@pytest.mark.parametrize(
    "words",
    [
        *(["18-25", "26-40", "40+"], ["<18", "18-65", ">65"], ["1st", "2nd", "3rd"]),
        *(["Octane 95", "Octane 98", "Diesel"], ["yes", "no", "-"], ["Jan", "Feb", "Mar"]),
        *(["3 rooms", "4 rooms", "5 rooms"], ["May 5", "Mark 12", "Room 7"], ["2019/20"] * 3),
    ],
)
def test_words_with_digits_may_be_categories(words):
    path = written(houses().assign(what=words * 10))
    made = Table(file=str(path), target="sold", redundant="keep").raw().features
    assert {f"what={word}" for word in words} <= set(made)


def test_a_typo_is_named_in_the_notation_of_the_file():
    path = written(houses(), sep=";", decimal=",", thousands=".")
    lines = path.read_text().split("\n")
    lines[7] = "17o,5;" + lines[7].partition(";")[2]
    path.write_text("\n".join(lines))
    with pytest.raises(
        DataError, match="t.csv, row 7: column `area` must be a number, got '17o,5'"
    ):
        Table(file="t.csv", target="sold").check()


@pytest.mark.parametrize("numbers", [["173,5", "180,25", "165,1"], ["$5", "$7", "$9"]])
def test_frames_that_were_read_wrongly(numbers):
    """A German file read by pandas without a word about its decimals."""
    frame = houses().assign(area=numbers * 10)
    with pytest.raises(DataError, match="frame, row 1: column `area` must be a number, got"):
        pb.Dataset.from_frame(frame, "sold")


# Headers


def test_row_names_of_r():
    for text in (
        '"a" "y"\n"Mazda" 1 "x"\n"Fiat" 2 "z"\n',
        '"","a","y"\n"Mazda",1,"x"\n"Fiat",2,"z"\n',
    ):
        Path("t.csv").write_text(text)
        found = read("t.csv")
        assert found.frame.to_dict("list") == {"a": [1, 2], "y": ["x", "z"]}
        assert "the first column has no name" in found.notes[-1]


def test_an_index_that_was_read_and_written_again():
    path = written(houses().rename_axis("Unnamed: 0"), index=True)
    assert list(read(path).frame) == list(houses())


@pytest.mark.parametrize(
    "text", ["a,y,\n1,2,\n3,4,\n", "a,y\n1,2,\n3,4,\n", "a;y;;\n1;2;;\n\n;;;\n3;4;;\n"]
)
def test_separators_at_the_ends_of_lines(text):
    Path("t.csv").write_text(text)
    assert read("t.csv").frame.to_dict("list") == {"a": [1, 3], "y": [2, 4]}


@pytest.mark.parametrize("start", [",,\n", ',"",\n , ,\n\n'])
def test_lines_without_entries_above_the_header(start):
    """The header must not become a row, nor its names categories."""
    Path("t.csv").write_text(start + "a,b,y\n1,u,x\n2,v,z\n")
    assert read("t.csv").frame.to_dict("list") == {"a": [1, 2], "b": ["u", "v"], "y": ["x", "z"]}
    Path("t.csv").write_text(start + "a,b,y\n1,u\n")
    with pytest.raises(DataError, match=f"t.csv, line {start.count(chr(10)) + 2}: must have 3"):
        read("t.csv")


def test_an_empty_first_row_of_a_sheet():
    book = openpyxl.Workbook()
    for row in ([None, None], ["a", "y"], [1, "u"], [2, "v"]):
        book.active.append(row)
    book.save("t.xlsx")
    assert read("t.xlsx").frame.to_dict("list") == {"a": [1, 2], "y": ["u", "v"]}


def test_a_header_as_numpy_writes_it():
    np.savetxt("t.csv", [[1, 2], [3, 4.5]], header="a b")
    assert read("t.csv").frame.to_dict("list") == {"a": [1, 3], "b": [2, 4.5]}


def test_commas_in_names_do_not_separate():
    Path("t.csv").write_text("Höhe, cm;Masse, kg\n1,5;2,5\n3,5;4,25\n")
    assert read("t.csv").frame.to_dict("list") == {"Höhe, cm": [1.5, 3.5], "Masse, kg": [2.5, 4.25]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", "the first line looks like data"),
        (" 0.1  18.0 \n 0.2  11.0 \n", "the first line looks like data"),
    ],
)
def test_a_first_line_of_data(text, message):
    Path("t.csv").write_text(text)
    assert message in read("t.csv").notes[-1]


def test_a_note_on_a_file_is_said_once(caplog):
    """Also if the file is read in several formats, as by ``pmbnn new`` and ``pmbnn predict``."""
    Path("t.csv").write_text("5.1,3.5,setosa\n4.9,3.0,setosa\n")
    for decimal, title in ((None, "t.csv"), (".", "./t.csv")):
        read_table(stamp_of(Path("t.csv")), title, Format(",", decimal))
    assert [record.getMessage() for record in caplog.records] == [
        "t.csv: the first line looks like data: it must name the columns."
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,y\n", "t.csv: has no rows."),
        ("a,y\n,\n\n", "t.csv: has no rows."),
        ("  \n\n", "t.csv: is empty."),
        (
            "5.1,5.1,a\n1,2,b\n",
            "must be there once, got it twice: is the first line a row of data?",
        ),
        ("a, a,y\n1,2,b\n", "t.csv: column `a` must be there once, got it twice."),
        ("a,y\n1,2\ntotal\n", "t.csv, line 3: must have 2 entries, one for each column, got 1."),
        ("#1\nsep\na,y\n1,2\n", "t.csv, line 3: must have 1 entries"),
        ("a,y\n1,2\n1,2,3\n", "t.csv, line 3: must have 2 entries, one for each column, got 3."),
        ("a,y\n1,2,3\n1,2\n", "t.csv, line 3: must have 2 entries, one for each column, got 2."),
        (",y\n1.5,2\n2.5,3\n", "t.csv: column 1 must have a name in the first line."),
    ],
)
def test_tables_that_cannot_be_read(text, message):
    Path("t.csv").write_text(text)
    with pytest.raises(DataError, match=re.escape(message)):
        read("t.csv")


def test_files_that_are_no_text():
    Path("t.csv").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    with pytest.raises(DataError, match=r"t.csv: must be a table, got a binary file."):
        read("t.csv")


# Excel


def workbook(frame, **sheets):
    book = openpyxl.Workbook()
    for name, table in {"Sheet": frame, **sheets}.items():
        sheet = book.active if name == "Sheet" else book.create_sheet(name)
        for row in [list(table), *table.to_numpy(object).tolist()]:
            sheet.append(row)
    book.save("t.xlsx")
    return Path("t.xlsx")


def test_a_sheet_of_excel_is_the_table():
    frame = houses().assign(garden=[True, False] * 15)
    pd.testing.assert_frame_equal(read(workbook(frame)).frame, frame, check_dtype=False)
    assert Table(file="t.xlsx", target="sold").n_classes == 2


def test_dates_of_excel_are_no_categories():
    workbook(houses().assign(when=pd.Timestamp("2020-01-02").to_pydatetime()))
    with pytest.raises(DataError, match="column `when` must hold numbers or categories, got dates"):
        Table(file="t.xlsx", target="sold").check()


def test_which_sheet_must_be_clear():
    with pytest.raises(DataError, match="t.xlsx: must have one sheet, got `Sheet`, `More`"):
        read(workbook(houses(), More=houses()))


def test_excel_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    Path("t.xlsx").write_bytes(b"")
    with pytest.raises(DataError, match=r"t.xlsx: to read it, pip install \'\.\[excel\]\'"):
        read("t.xlsx")
    for name in ("t.xls", "t.ods"):
        Path(name).write_bytes(b"")
        with pytest.raises(DataError, match=f"{name}: cannot be read: save it as .xlsx or CSV."):
            read(name)


def test_a_damaged_workbook():
    Path("t.xlsx").write_bytes(b"PK no archive")
    with pytest.raises(DataError, match="t.xlsx: cannot be read: "):
        read("t.xlsx")


# New rows


def test_categories_of_new_rows_are_read_as_text():
    """A column of codes may look like numbers where only some of them occur."""
    frame = pd.DataFrame({"x": np.arange(20) / 7, "code": ["007", "A1", "B2", "C3", "true"] * 4})
    made = Table(file=str(written(frame.assign(y=frame["x"]))), target="y", redundant="keep")
    encoder = made.load().encoder
    features = encoder.features
    for code in ("007", "true"):
        path = written(pd.DataFrame({"x": [1.5], "code": [code]}))
        new = read(path, texts=frozenset({"code"})).frame
        found = inputs_of_frame(new, encoder, "new")
        assert found[0].tolist() == [1.5, *[float(name == f"code={code}") for name in features[1:]]]


def test_new_rows_without_rows():
    with pytest.raises(DataError, match="new: has no rows."):
        inputs_of_frame(pd.DataFrame({"x": []}), Encoder(("x",)), "new")


def test_missing_words_of_new_numbers():
    """In a table of one row, a word is all that the column holds."""
    for word in ("NA", "?"):
        new = read(written(pd.DataFrame({"x": [word], "b": [1]}))).frame
        with pytest.raises(DataError, match="new, row 1: column `x` is missing"):
            inputs_of_frame(new, Encoder(("x",)), "new")
        filled = Encoder(("x",), fill=np.array([2.5]))
        assert inputs_of_frame(new, filled, "new").tolist() == [[2.5]]
