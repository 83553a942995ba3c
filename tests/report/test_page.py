"""The page as text: what is on it, what is escaped, and what is refused."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from pmbnn.report.command import app
from pmbnn.report.published import load_published


class Parsed(HTMLParser):
    """Elements of a page with their attributes, and all text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words = [], []
        self.feed(text)
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)

    def attributes(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def text(page):
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def parsed(text):
    return Parsed(text)


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


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
    assert "0.8000 ± 0.0231" in parsed.text
    assert "0.8200 ± 0.0200" in parsed.text


def test_every_published_number_has_a_row(parsed):
    for number in load_published():
        assert " ".join(number.quantity.split()) in parsed.text
    assert "not among these results" in parsed.text


def test_maps_are_inside_the_page(parsed):
    sources = [attributes["src"] for attributes in parsed.attributes("img")]
    assert len(sources) > 20
    assert all(source.startswith("data:image/png;base64,") for source in sources)


def test_drawings_of_a_cell(parsed):
    labels = [attributes["aria-label"] for attributes in parsed.attributes("svg")]
    assert "densities of 4 weights of the last layer" in labels
    assert any(label.startswith("ELBO from") for label in labels)
    assert "of 2 the central 90 % interval leaves out zero" in parsed.text


# What it asks for, and what is escaped


def test_nothing_is_asked_of_anyone(text):
    without_data = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]*", "", text)
    assert not re.search(r"https?:|//[a-z]|@import|url\(", without_data)
    assert {a.get("href") for a in Parsed(text).attributes("link")} == {"data:,"}


def test_the_policy_lets_in_style_and_script_by_their_hashes(text):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace(
        "&#x27;", "'"
    )
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
    record = make.record(accuracy=0.8)
    record["settings"]["dataset"]["kind"] = make.hostile
    record |= {"sweep": make.hostile, "status": make.hostile}
    folder = make.results(tmp_path / "hostile", [record], experiment=make.hostile)
    assert run(folder).exit_code == 0
    text = (folder / "report.html").read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</template>") == 1
    assert 'alert("' not in text


# The command


def test_default_place_and_message(make, tmp_path):
    folder = make.results(tmp_path / "few", [make.record(accuracy=0.8)])
    done = run(folder)
    assert done.stdout.startswith(f"page {folder / 'report.html'} (")
    assert not list(folder.glob(".part-*"))


def test_several_folders_on_one_page(make, tmp_path):
    folders = [
        make.results(tmp_path / name, [make.record(accuracy=0.8)], experiment=name)
        for name in ("one", "two")
    ]
    assert run(*folders, "--out", tmp_path / "page").exit_code == 0
    parsed = Parsed((tmp_path / "page" / "report.html").read_text(encoding="utf-8"))
    assert [a["id"] for a in parsed.attributes("template")] == ["cell-0", "cell-1"]
    assert "2 cells" in parsed.text


def test_cells_without_anything_but_numbers(make, tmp_path):
    """No trace, no picture, no provenance, and results of a regression."""
    record = make.record(rmse=1.25, crps=0.5, coverage_90=0.875)
    folder = tmp_path / "bare"
    cell = folder / "cells" / record["name"]
    cell.mkdir(parents=True)
    (cell / "metrics.json").write_text(json.dumps(record), encoding="utf-8")
    assert run(folder).exit_code == 0
    parsed = Parsed((folder / "report.html").read_text(encoding="utf-8"))
    for words in ("1.2500", "0.875", "RMSE", "coverage 90", "provenance.json is missing", "bare"):
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


def test_a_place_that_cannot_be_written(folder, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be written: Not a directory" in error_of(
        folder, "--out", tmp_path / "file" / "a"
    )


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_numbers_that_cannot_be_read(tmp_path, content):
    cell = tmp_path / "cells" / "a"
    cell.mkdir(parents=True)
    (cell / "metrics.json").write_text(content)
    assert "metrics.json`" in error_of(tmp_path)


@pytest.mark.parametrize("file", ["trace.nc", "map.png"])
def test_files_that_are_cut_short(make, tmp_path, file):
    folder = make.results(tmp_path / "cut", [make.record(accuracy=0.8)])
    [path] = folder.glob(f"cells/*/{file}")
    path.write_bytes(path.read_bytes()[:20])
    done = run(folder)
    assert done.exit_code == 2
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ") and f"{file}` cannot be read" in line
