"""The page of a results folder."""

from html.parser import HTMLParser
from pathlib import Path

from pmbnn.index_page import index_page


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


def record(name, status="converged", reason="", **results):
    settings = {
        "dataset": {"kind": "moons", "noise": 0.4, "seed": 3},
        "prior": {"kind": "laplace"},
        "hyperprior": {"kind": "fixed", "scale": 0.1},
    }
    return {
        "sweep": "synthetic",
        "name": name,
        "status": status,
        "reason": reason,
        "settings": settings,
        "results": results,
    }


def test_page_links_figures_cells_and_tables():
    cells = [
        record("a", accuracy=0.8125, excess_error=0.01),
        record("b", accuracy=0.9),
        record("c", "diverged", 'not "finite" <here>'),
    ]
    text = index_page("a < b", [Path("out/figures/x-maps.png")], cells)
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
    assert {"a < b", "0.8125", "0.0100", "diverged"} <= set(page.words)
    assert "synthetic: moons, noise 0.4, seed 3, laplace × fixed 0.1" in page.words
    assert "&lt;here&gt;" in text
    assert "http" not in text


def test_classifiers_of_pictures_have_a_table_more():
    cells = [record("a", accuracy=0.9), record("b", accuracy=0.9) | {"pictures": {"cutoff": 0.2}}]
    assert Page(index_page("digits", [], cells)).addresses[:3] == [
        "metrics.csv",
        "summary.csv",
        "unfamiliar.csv",
    ]
