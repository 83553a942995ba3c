"""The page as text: what is on it, what is escaped, and what is rejected."""

import base64
import hashlib
import re
from html import unescape
from html.parser import HTMLParser

import pytest
from makers import list_present
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.experiment.published import read_published
from pmbnn.results.store import Results


class Parsed(HTMLParser):
    """Elements of a page with their attributes, and all text but style and script."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.is_code = [], [], False
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.is_code = tag in ("style", "script")

    def handle_endtag(self, tag):
        self.is_code = False

    def handle_data(self, data):
        if not self.is_code:
            self.words.append(data)

    def attributes(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text(page):
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def parsed(text):
    return Parsed(text)


@pytest.fixture(autouse=True)
def without_figures(page, monkeypatch):
    """Draw and compare nothing but for the page that all tests share."""
    monkeypatch.setattr("pmbnn.report.rebuild.rebuild", lambda folder, *_: folder)
    monkeypatch.setattr("pmbnn.core.machine.cores", lambda: 1)


def run(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


# What is on it


def test_every_cell_can_be_opened_from_table_and_gallery(parsed, make):
    opened = [a["data-cell"] for a in parsed.attributes("button") if "data-cell" in a]
    templates = [a["id"] for a in parsed.attributes("template")]
    assert len(templates) == len(make.records())
    for key in templates:
        assert opened.count(key) >= 2
    assert set(opened) == set(templates)


def test_names_on_the_page_are_unique_and_meant(parsed):
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [a["href"][1:] for a in parsed.attributes("a")]
    assert set(links) <= set(ids)


def test_where_numbers_come_from(parsed):
    for words in ("2026-01-02T03:04:05+0000", "3.12.1", "a machine, 2 cores", "ab12ab12ab12ab12"):
        assert words in parsed.text


def test_numbers_with_errors(parsed):
    # sqrt(0.8 * 0.2 / 300), and the standard error of 0.80 and 0.84 over two seeds.
    assert "0.800 ± 0.023" in parsed.text
    assert "0.820 ± 0.020" in parsed.text


def test_every_published_number_has_a_row(parsed, folder):
    text = (folder / "published.yaml").read_text(encoding="utf-8")
    for number in read_published(text, "published.yaml").numbers:
        assert " ".join(number.quantity.split()) in parsed.text
    assert "not among these results" in parsed.text


def test_sections_stand_in_the_order_of_what_a_reader_asks(parsed):
    sections = [a["id"] for a in parsed.attributes("section") if "id" in a]
    assert sections == [
        f"{name}-section"
        for name in (
            "answer", "predictions", "baselines", "cells", "comparisons", "figures", "diagnostics",
            "runs", "published", "glossary",
        )
    ]  # fmt: skip
    assert "#baselines-section" in [a["href"] for a in parsed.attributes("a")]
    assert "By NLL the network is better than random forest" in parsed.text
    assert "−0.20 (−0.30 to −0.10) better" in parsed.text


def test_maps_are_inside_the_page(parsed):
    sources = [attributes["src"] for attributes in parsed.attributes("img")]
    assert len(sources) > 20
    assert all(source.startswith("data:image/webp;base64,") for source in sources)


def test_drawings_of_a_cell(parsed):
    labels = [attributes.get("aria-label", "") for attributes in parsed.attributes("svg")]
    assert "densities of 4 weights of the last layer" in labels
    assert any(label.startswith("ELBO from") for label in labels)
    assert "of 2 the central 90 % interval leaves out zero" in parsed.text


# What it asks for, and what is escaped


def test_nothing_is_asked_of_anyone(text):
    without_data = re.sub(r"data:image/webp;base64,[A-Za-z0-9+/=]*", "", text)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", without_data)
    assert {a.get("href") for a in Parsed(text).attributes("link")} == {"data:,"}


def test_the_policy_lets_in_style_and_script_by_their_hashes(text):
    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1])
    for tag in ("style", "script"):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_what_a_file_says_is_escaped(text, make):
    assert make.hostile not in text
    assert text.count("<script") == 1
    assert text.count("</template>") == len(make.records())
    assert make.hostile in Parsed(text).text


def test_hostile_settings_are_escaped_too(make, tmp_path):
    record = make.record(accuracy=0.8, dataset={"kind": make.hostile}, sweep=make.hostile)
    folder = make.results(tmp_path / "hostile", [record], experiment=make.hostile)
    assert run(folder).exit_code == 0
    text = (folder / "index.html").read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</template>") == 1
    assert 'alert("' not in text


# The command


def test_default_place_and_message(make, tmp_path):
    folder = make.results(tmp_path / "few", [make.record(accuracy=0.8)])
    done = run(folder)
    assert done.stdout.startswith(f"page {folder / 'index.html'} (")
    assert not list(folder.glob(".part-*"))


def test_several_folders_on_one_page(make, tmp_path):
    folders = [
        make.results(tmp_path / name, [make.record(accuracy=0.8)], experiment=name)
        for name in ("one", "two")
    ]
    assert run(*folders, "--out", tmp_path / "page").exit_code == 0
    parsed = Parsed((tmp_path / "page" / "index.html").read_text(encoding="utf-8"))
    assert [a["id"] for a in parsed.attributes("template")] == ["cell-0", "cell-1"]
    assert "2 cells" in parsed.text


def test_two_folders_of_one_experiment_are_answered_one_by_one(make, tmp_path):
    """As a run with another number of steps: its cells are no second half of the grid."""
    folders = [tmp_path / name for name in ("one", "two")]
    own = OWN.replace("where:", "experiment: priors\n    where:", 1).replace("[own]", "[priors]")
    for folder, accuracies in zip(folders, ((0.8, 0.7), (0.6, 0.75)), strict=True):
        records = zip(("normal", "laplace"), accuracies, strict=True)
        cells = [make.record(prior, "half_normal", accuracy=a) for prior, a in records]
        make.results(folder, cells, published=own)
    assert run(*folders, "--out", tmp_path / "page").exit_code == 0
    parsed = Parsed((tmp_path / "page" / "index.html").read_text(encoding="utf-8"))
    for folder in folders:
        assert f"priors ({folder})" in parsed.text
        assert f"Beside priors ({folder})" in parsed.text
        assert parsed.text.count(f"{folder.name}/figures/synthetic-moons-noise-0.4-maps.png") >= 2
    assert "4 cells" in parsed.text
    assert parsed.text.count("2 of 2 fits converged") == 2
    assert "−0.13" in parsed.text and "−0.08" in parsed.text  # less the published 0.83


def test_cells_without_anything_but_numbers(make, tmp_path):
    """No trace, no figure, no provenance, and results of a regression."""
    record = make.record(rmse=1.25, crps=0.5, coverage_90=0.875, predictive="density")
    results = Results(tmp_path / "bare")
    results.prepare()
    results.save_cell(record, {})
    list_present(results)
    assert run(results.folder).exit_code == 0
    parsed = Parsed((results.folder / "index.html").read_text(encoding="utf-8"))
    for words in ("1.25", "0.875", "RMSE", "coverage 90", "provenance.json is missing", "bare"):
        assert words in parsed.text


def error_of(*arguments):
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    [line] = done.stderr.splitlines()
    assert line.startswith("error: ")
    return line


def test_a_folder_that_is_not_there(tmp_path):
    assert error_of(tmp_path / "none").endswith("none` does not exist.")


def test_a_file_in_place_of_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    assert error_of(tmp_path / "file").endswith("file` is not a folder.")


def test_a_folder_without_results(tmp_path):
    assert "holds no finished cell (cells/<name>/metrics.json)" in error_of(tmp_path)


def test_a_place_that_cannot_be_written(make, tmp_path):
    folder = make.results(tmp_path / "few", [make.record(accuracy=0.8)])
    (tmp_path / "file").write_text("")
    assert "cannot be written: Not a directory" in error_of(
        folder, "--out", tmp_path / "file" / "a"
    )


@pytest.mark.parametrize("content", ["{", "groups: 3"])
def test_published_numbers_that_cannot_be_read(make, tmp_path, content):
    folder = make.results(tmp_path / "few", [make.record(accuracy=0.8)], published=content)
    assert "published.yaml` cannot be read: " in error_of(folder)


def test_a_figure_that_is_cut_short(make, tmp_path):
    folder = make.results(tmp_path / "cut", [make.record(accuracy=0.8)])
    [path] = folder.glob("cells/*/map.png")
    path.write_bytes(path.read_bytes()[:20])
    done = run(folder)
    assert done.exit_code == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ") and "map.png` cannot be read" in line


# A study of one's own


OWN = """
studies: {smith: "Smith and others (2024)"}
groups:
  - study: smith
    source: table 2
    where: {sweep: synthetic}
    numbers:
      - {quantity: Laplace prior, value: 0.83, unit: accuracy, path: results/accuracy,
         where: {prior.kind: laplace, hyperprior.kind: half_normal}}
figures:
  - {name: figure 3, shows: maps, experiments: [own], files: ["*-maps"]}
"""


def page_of(make, folder, **named):
    make.results(folder, make.records(), experiment="own", **named)
    done = run(folder)
    assert done.exit_code == 0, done.output
    return Parsed((folder / "index.html").read_text(encoding="utf-8"))


def test_a_page_without_published_numbers_says_nothing_of_any_study(make, tmp_path):
    splits = "splits: [{method: other, file: other.csv}]"
    parsed = page_of(make, tmp_path / "own", published=splits)
    words = parsed.text.lower()
    for word in ("publi", "write-up", "the report", "claimed", "study", "wiecki", "experiments/"):
        assert word not in words, word
    assert not re.search(r"\b[RS]\d\b", parsed.text)
    sections = [a["id"] for a in parsed.attributes("section") if "id" in a]
    assert sections[0] == "answer-section" and "published-section" not in sections


def test_a_table_of_ones_own_stands_last(make, tmp_path):
    parsed = page_of(make, tmp_path / "own", published=OWN)
    sections = [a["id"] for a in parsed.attributes("section") if "id" in a]
    assert sections[-2:] == ["published-section", "glossary-section"]
    assert "Smith and others (2024)" in parsed.text
    assert "0.850 ± 0.020 +0.02 table 2" in parsed.text
    assert "pmbnn sweep own.yaml" in parsed.text
    assert "own/figures/synthetic-moons-noise-0.4-maps.png" in parsed.text


@pytest.mark.slow
def test_tables_of_several_folders(make, tmp_path):
    """Equal tables stand together; a number without an experiment is of those that name it."""
    other = OWN.replace("smith", "jones")
    for name, table in {"one": OWN, "two": OWN, "three": other}.items():
        make.results(tmp_path / name, make.records(), experiment=name, published=table)
    done = run(*(tmp_path / n for n in ("one", "two", "three")), "--out", tmp_path)
    assert done.exit_code == 0, done.output
    parsed = Parsed((tmp_path / "index.html").read_text(encoding="utf-8"))
    tables = {a["id"] for a in parsed.attributes("div") if a.get("class") == "data-table"}
    assert {"published", "published-1"} <= tables and "published-2" not in tables
    assert "Beside one, two" in parsed.text and "Beside three" in parsed.text
    assert "4 cells" in parsed.text and "2 cells" in parsed.text
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
