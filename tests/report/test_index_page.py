"""The page of a results folder."""

from html.parser import HTMLParser
from pathlib import Path

from pmbnn.report.rendering import index_page
from pmbnn.results.record import CellRecord


class Page(HTMLParser):
    """Addresses and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses, self.words = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("href", "src")]

    def handle_data(self, data):
        self.words.append(data)


def record(name, status="converged", reason="", predictive="class_probabilities", **results):
    settings = {
        "dataset": {"kind": "moons", "noise": 0.4, "seed": 3},
        "prior": {"kind": "laplace"},
        "hyperprior": {"kind": "fixed", "scale": 0.1},
    }
    return CellRecord(
        sweep="synthetic",
        name=name,
        status=status,
        reason=reason,
        settings=settings,
        predictive=predictive if results else None,
        results=results,
    )


def drawn(folder, name, figure):
    """Folder of cells, one of which has a figure of its own."""
    (folder / name).mkdir()
    (folder / name / figure).touch()
    return folder


def test_page_links_figures_cells_and_tables(tmp_path):
    cells = [
        record("a", accuracy=0.8125, excess_error=0.01),
        record("b", accuracy=0.9),
        record("c", "diverged", 'not "finite" <here>'),
    ]
    figures = [Path("out/figures/x-maps.png")]
    text = index_page("a < b", figures, cells, drawn(tmp_path, "a", "map.png"))
    page = Page(text)
    assert page.addresses == [
        "metrics.csv",
        "summary.csv",
        "experiment.yaml",
        "provenance.json",
        "figures/x-maps.png",
        "cells/a/map.png",
        "cells/b/metrics.json",
        "cells/c/metrics.json",
    ]
    words = {word.strip() for word in page.words}
    assert {"a < b", "0.8125", "0.0100", "diverged"} <= words
    assert "synthetic: moons, noise 0.4, seed 3, laplace × fixed 0.1" in page.words
    assert "&lt;here&gt;" in text
    assert "http" not in text


def test_classifiers_of_images_have_a_table_more(tmp_path):
    cells = [
        record("a", accuracy=0.9),
        record("b", accuracy=0.9).model_copy(update={"images": {"confidence_threshold": 0.2}}),
    ]
    assert Page(index_page("digits", [], cells, tmp_path)).addresses[:3] == [
        "metrics.csv",
        "summary.csv",
        "ood.csv",
    ]


def test_columns_are_those_of_what_cells_predict(tmp_path):
    density = {"rmse": 1.25, "crps": 0.5, "coverage_95": 0.9375}
    cells = [record(name, predictive="density", **density) for name in "ab"]
    text = index_page("curves", [], cells, drawn(tmp_path, "a", "curves.png"))
    page = Page(text)
    assert page.addresses[-2:] == ["cells/a/curves.png", "cells/b/metrics.json"]
    headings = {"rmse (target's units)", "crps (target's units)", "coverage_95"}
    assert headings | {"1.2500", "0.9375"} <= set(page.words)
    assert "accuracy" not in text


def test_hostile_names_are_text(tmp_path):
    hostile = '<script>alert("1")</script>'
    records = [record(hostile, reason=hostile)]
    text = index_page(hostile, [Path(f"{hostile}.png")], records, tmp_path)
    assert "<script" not in text and 'alert("' not in text
    assert hostile in Page(text).words
