"""Tables of published numbers: their format, their errors, and how an experiment names one."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pmbnn.core.errors import ConfigError
from pmbnn.experiment.load import load_experiment, resolved_text
from pmbnn.experiment.published import FILE, Published, are_meant, read_published
from pmbnn.sweep.cells import prepare, write_header

TABLE = """
studies: {smith: "Smith and others (2024)"}
groups:
  - study: smith
    source: table 2
    experiment: priors
    where: {sweep: synthetic, dataset.noise: 0.4}
    numbers:
      - {quantity: accuracy, value: 0.851, path: results/accuracy, where: {prior.kind: normal}}
      - {quantity: range, value: [1, 2.5], unit: points, mark: bound, note: no such number of ours}
      - {quantity: words, value: much wider, held_by: tests/test_x.py, where: {dataset.noise: 0.2}}
"""

EXPERIMENT = """
name: own
published: {file}
sweeps:
  - name: toys
    dataset: {{kind: moons, noise: 0.3, train: 20, test: 20}}
    network: dense
    prior: normal
"""


def test_numbers_take_what_their_group_says():
    table = read_published(TABLE, "own.yaml")
    assert table.studies == {"smith": "Smith and others (2024)"}
    accuracy, values, words = table.numbers
    assert accuracy.where == {"sweep": "synthetic", "dataset.noise": 0.4, "prior.kind": "normal"}
    assert (accuracy.study, accuracy.source, accuracy.experiment) == ("smith", "table 2", "priors")
    assert (accuracy.mark, accuracy.kind, accuracy.choose) == ("stated", "result", "mean")
    assert (values.value, values.mark) == ((1.0, 2.5), "bound")
    assert (words.value, words.where["dataset.noise"]) == ("much wider", 0.2)


def test_an_experiment_need_not_be_named():
    (number, *_) = read_published(TABLE.replace("    experiment: priors\n", ""), "a").numbers
    assert number.experiment is None


def test_curves():
    text = (
        TABLE
        + """
curves:
  - {study: smith, source: his sampler, file: in_between/a.csv, position: lambda,
     where: {network.hidden: "50", hyperprior.scale: 4}}
"""
    )
    (curve,) = read_published(text, "own.yaml").curves
    assert (curve.file, curve.position) == ("in_between/a.csv", "lambda")
    row = {"network.hidden": "50", "hyperprior.scale": 4.0, "prior.kind": "normal"}
    assert are_meant(curve.where, row)
    assert not are_meant(curve.where, row | {"hyperprior.scale": 3.0})
    assert not are_meant(curve.where, {"network.hidden": "50"})
    with pytest.raises(ConfigError, match=r"^own.yaml: `curves\[0\].file` is missing\."):
        read_published(text.replace("file: in_between/a.csv, ", ""), "own.yaml")


FIRST = "groups[0].numbers[0]"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("value: 0.851, ", "", f"own.yaml: `{FIRST}.value` is missing."),
        ("0.851", "[1, 2, 3]", f"`{FIRST}.value` must be a number, a pair of numbers, or text"),
        ("0.851", ".inf", f"`{FIRST}.value` must be a number, a pair of numbers, or text, got inf"),
        ("mark: bound", "mark: guess",
         "`groups[0].numbers[1].mark` must be one of bound, elsewhere, ours, stated, got 'guess'"),
        ("quantity: range", "quantity: 3", "`groups[0].numbers[1].quantity` must be text, got 3."),
        ("unit: points", "units: points",
         "`groups[0].numbers[1].units` is no key of a table of published numbers."),
        ("path: results/accuracy", "over: b, note: n",
         f"`{FIRST}.over` must be the id of another number, got 'b'"),
        (", path: results/accuracy", "", f"`{FIRST}` must have a path of ours, or a note or test"),
        ("{prior.kind: normal}", "{prior.kind: [1]}",
         f"`{FIRST}.where.prior.kind` must be a number, text, or true or false, got [1]."),
        ("groups:", "groups: 3\nother:", "`groups` must be a list, got 3."),
        ("    source: table 2\n", "", "`groups[0].source` is missing."),
        ("groups:", "figures: [{name: a, shows: b, experiments: [], files: [c]}]\ngroups:",
         "`figures[0].experiments` must have at least 1 entries, got []."),
        ("groups:", "figures: [{name: a, shows: b, experiments: [x], files: [c/d]}]\ngroups:",
         "`figures[0].files[0]` must be the name of a figure without its folder, got 'c/d'."),
        ("    source: table 2", "    source: a\n    source: b", "key `source` appears twice"),
    ],
)  # fmt: skip
def test_errors_name_file_and_place(old, new, message):
    assert old in TABLE
    with pytest.raises(ConfigError, match=re.escape(message)) as raised:
        read_published(TABLE.replace(old, new, 1), "own.yaml")
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("own.yaml")


def test_the_documented_table_and_its_error():
    text = (Path(__file__).parents[2] / "docs" / "experiment_files.md").read_text(encoding="utf-8")
    (shown,) = (b for b in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "studies:" in b)
    accuracy, nll, _ = read_published(shown, FILE).numbers
    assert accuracy.where["prior.kind"] == "normal" and nll.choose == "best"
    with pytest.raises(ConfigError) as raised:
        read_published(shown.replace("mark: elsewhere", "mark: guess"), FILE)
    assert f"error: {raised.value}" in text
    for key in Published.model_fields:
        assert f"`{key}`" in text or f"`{key}:" in text, key


def test_no_id_twice():
    text = TABLE.replace("{quantity", "{id: a, quantity")
    with pytest.raises(ConfigError, match=r"`groups\[0\].numbers\[0\].id` must not repeat .* 'a'"):
        read_published(text, "own.yaml")


def test_a_table_must_be_a_mapping():
    with pytest.raises(ConfigError, match="`the table` must be a mapping, got"):
        read_published("- 3", "own.yaml")


@pytest.fixture
def named(tmp_path):
    """An experiment file that names a table beside it."""
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "smith.yaml").write_text(TABLE)
    file = tmp_path / "own.yaml"
    file.write_text(EXPERIMENT.format(file="tables/smith.yaml"))
    return file


def test_the_table_goes_into_the_results_folder(named, tmp_path):
    experiment = load_experiment(named)
    run = prepare(experiment, tmp_path / "out")
    write_header(run)
    assert (tmp_path / "out" / FILE).read_text() == TABLE
    again = load_experiment(tmp_path / "out" / "experiment.yaml")
    assert again == experiment
    assert resolved_text(again) == resolved_text(experiment)
    write_header(prepare(replace(experiment, published=None), tmp_path / "out"))
    assert not (tmp_path / "out" / FILE).exists()


def test_the_table_is_no_part_of_a_cell(named):
    without = named.with_name("without.yaml")
    without.write_text(named.read_text().replace("published: tables/smith.yaml\n", ""))
    assert load_experiment(named).cells == load_experiment(without).cells
    tasks = [prepare(load_experiment(file), named.parent).tasks for file in (named, without)]
    assert tasks[0] == tasks[1]


@pytest.mark.parametrize("file", ["none.yaml", "tables", "3", "null"])
def test_a_table_that_is_not_there(named, file):
    named.write_text(EXPERIMENT.format(file=file))
    if file == "null":
        assert load_experiment(named).published is None
        return
    with pytest.raises(ConfigError, match=f"`published`.*{file}"):
        load_experiment(named)


def test_a_bad_table_is_found_before_anything_is_fitted(named, tmp_path):
    (tmp_path / "tables" / "smith.yaml").write_text("groups: 3")
    with pytest.raises(ConfigError, match="`groups` must be a list, got 3"):
        prepare(load_experiment(named), tmp_path / "out")
    assert not (tmp_path / "out").exists()
