"""Our table of published numbers: all there, each with its mark, and a place for ours."""

from functools import cache
from pathlib import Path

import pytest

from pmbnn.compare.claims import CLAIMS
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.published import are_meant, read_published
from pmbnn.report.images import repeated_figures
from pmbnn.report.published_table import MARKS, value_at
from pmbnn.results.names import settings_row

ROOT = Path(__file__).parents[2]

# Copied from the description of the four systems, by mark. Numbers only: what they are of is in
# the file.
PUBLISHED = {
    ("S1", "stated"): "700 300 5 5 2 0.735 0.851 2 50000 10000 32 5 2 32 5 2 64 10 100 0",
    ("S1", "ours"): "700 300 0.4 0.5 0.35 2.0:2.5 50000 0.2:1.5 0.5:0.9",
    ("S1", "elsewhere"): "89.81 246 92.26 286 98.03 760 95.0",
    ("S1", "bound"): """
        0.863 0.749
        0.9711 0.9436 0.9146 0.8873 0.8630 0.8233 0.0763 0.1434 0.2103 0.2693 0.3189 0.3936
        0.9504 0.8899 0.8340 0.7873 0.7489 0.7173 0.2609 0.3705 0.4515 0.5106 0.5539
        0.7460 0.6893 0.6525 0.6270 0.6082 0.5937""",
    ("S2", "stated"): """
        784 64 64 10 -7 0.001 26.4 1 0.001 60000 10000
        0.122 0.095 -94.269 -176.826 26.404 -67.865 -150.422 0 0 0.37
        0.104 0.093 -5.796 -5.610 2.516 -3.280 -3.095 0.560 0.571
        0.979 0.995 -0.421 -0.341 318.357 -0.103 -0.022 0.959 0.966
        100 0 8 57 0.45 99 0.37""",
    ("S2", "ours"): "55050 10180 784 64 10 0.077 0.94 6 1000",
    ("S3", "stated"): """
        32 -0.5 0.5 10 1 20 20 1.0 0.1 0.2 1 1500 0.03 1000 -1.5:1.5 500 2
        2 2 84 0.001 128 6000 50 400 6000 0.2""",
    ("S3", "elsewhere"): "6 16 120 5 10 98.5 0.048 0.010 99.0 0.034 99.1 0.037",
    ("S4", "stated"): """
        0.5 2 2 3 0.5 0 1 1.9070 4.5561 -3.4920 -11.2981 -74.9450 82.7511 53.4541 89.3733 0.01
        -0.0345 1.1063
        6 -2 -1.8 -1 1 1.8 2 -1 3 1 16 16 0.01 30000 6.119 4.2e-5 -13
        32 10 0.1 0 0.1 2000 1 3808.87 278.11 100 95 -5:5 -100:100
        400 400 0.001 128 10 98.27 98.00 0.0878 512 512 6 0.6 -6 0.001 1.1 128 1 1 20 91.07 97.25
        9806.67 4913.42 1000 100 0.1446 0.9909 6.85 7 28 8""",
    ("S4", "elsewhere"): "1.82 1.36 1.34 1.32 1.33:1.55 2.60 2.38 2.28",
}


TABLE = ROOT / "experiments" / "reproduction" / "published.yaml"


IN_BETWEEN = TABLE.with_name("in_between.yaml")


@pytest.fixture(scope="module")
def table():
    return read_published(TABLE.read_text(encoding="utf-8"), TABLE.name)


@pytest.fixture(scope="module")
def numbers(table):
    return table.numbers


def number_of(words):
    ends = tuple(map(float, words.split(":")))
    return ends if len(ends) > 1 else ends[0]


@pytest.mark.parametrize("which", PUBLISHED, ids="-".join)
def test_every_number_is_there_under_its_mark(numbers, which):
    held = [n.value for n in numbers if (n.study, n.mark) == which]
    missing = []
    for value in map(number_of, PUBLISHED[which].split()):
        if value in held:
            held.remove(value)
        else:
            missing.append(value)
    assert missing == []


def test_all_marks_are_used_and_explained(numbers):
    assert {number.mark for number in numbers} == set(MARKS)


def test_ours_is_of_an_experiment_that_has_such_cells(numbers):
    assert [n.id for n in numbers if n.path and not any(fitting(n))] == []


@cache
def records_of(experiment):
    """Settings of every cell of an experiment as a record has them, with its sweep."""
    cells = load_experiment(ROOT / "experiments" / f"{experiment}.yaml").cells
    return [
        {
            "sweep": c.sweep,
            "settings": {s: v.model_dump(mode="json") for s, v in c.settings.items()},
        }
        for c in cells
    ]


def fitting(number):
    """Those records that a number's selector names."""
    for record in records_of(number.experiment):
        row = settings_row(record["settings"]) | {"sweep": record["sweep"]}
        if number.where.items() <= row.items():
            yield record


def test_what_is_said_to_be_held_by_a_test_is(numbers):
    files = {number.held_by for number in numbers if number.held_by}
    assert [file for file in sorted(files) if not (ROOT / file).is_file()] == []


def test_settings_of_ours_are_the_published_ones(numbers):
    """Where a setting has a place in the experiment file, it says what the write-up says."""
    different = {}
    for number in numbers:
        if number.kind == "setting" and (number.path or "").startswith("settings/"):
            ours = value_at(next(fitting(number)), number.path)
            text = isinstance(ours, str)
            if (ours if text else pytest.approx(ours * number.factor)) != number.value:
                different[number.id] = ours
    assert different == {}


def test_the_experiments_that_the_table_is_of_name_it(table):
    concerned = {number.experiment for number in table.numbers if number.experiment}
    concerned |= {name for figure in table.figures for name in figure.experiments}
    text = TABLE.read_text(encoding="utf-8")
    named = {
        file.stem
        for file in (ROOT / "experiments").glob("*.yaml")
        if load_experiment(file).published == text
    }
    assert named == concerned


def test_every_claim_is_tested_by_a_comparison(table):
    assert set(table.claims) == set(CLAIMS)


def test_every_study_is_explained(table):
    assert {number.study for number in table.numbers} == set(table.studies)


def test_the_index_of_figures_names_every_figure_and_its_command(table):
    """The same index as on the page, to be read beside the table."""
    text = (TABLE.parent / "README.md").read_text(encoding="utf-8")
    for figure in repeated_figures(table, {}):
        assert f"| {figure.name} | {figure.shows} | `{figure.command}` |" in text
    for figure in table.figures:
        for experiment in figure.experiments:
            for pattern in figure.files:
                assert f"`results/{experiment}/figures/{pattern}.png`" in text


# The table of in-between uncertainty


def test_in_between_numbers_and_curves_are_of_cells_of_their_experiment():
    text = IN_BETWEEN.read_text(encoding="utf-8")
    table, file = read_published(text, IN_BETWEEN.name), ROOT / "experiments" / "in_between.yaml"
    assert load_experiment(file).published == text
    one_layer, two_layers = [0.015, 0.018, 0.342, 1.014], [0.019, 0.021, 0.715, 2.391]
    assert sorted(number.value for number in table.numbers) == sorted(one_layer + two_layers)
    assert all(len(list(fitting(number))) == 1 for number in table.numbers)
    assert {number.study for number in table.numbers} == set(table.studies)
    rows = [
        settings_row(record["settings"]) | {"sweep": record["sweep"]}
        for record in records_of("in_between")
    ]
    for curve in table.curves:
        # Fits by ADVI and, of one layer, by Laplace's approximation; cells of two samplers.
        expected = 4 if curve.where["sweep"] == "one_layer" else 3
        assert sum(are_meant(curve.where, row) for row in rows) == expected
    assert len(table.curves) == 4
