"""Everything public says what it is in a few lines, and in a table whose text is escaped."""

import dataclasses
import importlib
import pkgutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from makers import MOONS, plane_trace, record, store

import pmbnn as pb
from pmbnn.core.display import Summarised
from pmbnn.inference.result import Fit, History, PrngKeys, Snapshot
from pmbnn.inference.samplers.chains import Chains, Convergence, Samples
from pmbnn.prediction.density import Mixture
from pmbnn.prediction.draws import KeptDraws

MOST = 1_000
"""Characters of a text."""

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

MANY = np.zeros((400, 30))
LONG = np.zeros(12_000)


def fit():
    history = History(LONG, LONG, LONG, LONG)
    snapshots = tuple(Snapshot(i, {"loc": LONG}, LONG, 0.0) for i in range(50))
    keys = PrngKeys(*np.zeros((4, 4), np.uint32))
    return Fit({"loc": LONG}, LONG, history, -1.0, "converged", "flat", keys, snapshots=snapshots)


def data():
    names = tuple(f"a feature of some name {i}" for i in range(30))
    x = np.random.default_rng(0).normal(size=MANY.shape)
    return pb.Dataset.from_arrays(x, x[:, 0], features=names)


def density():
    return pb.Density(*[MANY] * 8)


def samples():
    chains = Chains(np.zeros((4, 300, 20)), {"lp": MANY}, np.zeros(4, bool))
    return Samples(chains, "converged", "", Convergence(1.0, 1.0, 300), {"step_size": 0.1})


OBJECTS = {
    "Fit": fit,
    "History": lambda: fit().history,
    "KeptDraws": lambda: KeptDraws(MANY),
    "Samples": samples,
    "Dataset": data,
    "Rows": lambda: data().training,
    "Standardisation": lambda: data().standardisation,
    "ClassProbabilities": lambda: pb.ClassProbabilities(9, MANY, MANY, LONG, MANY, MANY),
    "Density": density,
    "Mixture": lambda: Mixture(object(), LONG),
    "Agreement": lambda: pb.Agreement("mean of a", 0.1, 0.01, 0.02, "differs", "converged", "up"),
    "Experiment": lambda: pb.load_experiment(EXPERIMENTS / "priors.yaml"),
    "Sweep": lambda: pb.load_experiment(EXPERIMENTS / "priors.yaml").sweeps[0],
    "Cell": lambda: pb.load_experiment(EXPERIMENTS / "priors.yaml").cells[0],
    "estimator": lambda: pb.BNNClassifier(prior=pb.priors.StudentT(), steps=5),
    "specification": lambda: pb.Inference(steps=5),
    "sections of a specification": lambda: pb.Predict(),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_text_is_short(name):
    found = OBJECTS[name]()
    assert 0 < len(repr(found)) < MOST and len(str(found)) < MOST
    assert "\n" not in repr(found) or name == "estimator"
    well_formed(found._repr_html_())


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    trace = plane_trace(resolution=(6, 5), points=20)
    cells = [
        (record(prior, dataset=MOONS | {"seed": seed}, accuracy=0.8), trace)
        for prior in ("normal", "laplace")
        for seed in range(3)
    ]
    return pb.load_results(store(tmp_path_factory.mktemp("results"), cells).folder)


def test_results_are_a_table_and_cells_have_their_figures(results):
    for found in (results, results.cell(name=results.records[0].name), results.records):
        assert len(repr(found)) < MOST
    assert "6 converged" in repr(results)
    html = results._repr_html_()
    well_formed(html)
    assert "laplace" in html and "moons" not in html, "only what varies is shown"
    cell = results.cell(prior="normal", dataset_seed=0)
    assert "accuracy" in cell._repr_html_() and "<img" not in cell._repr_html_()
    for number in range(3):
        (cell.folder / f"map-{number}.png").write_bytes(b"picture")
    assert cell._repr_html_().count("<img ") == 2


def test_html_is_escaped(tmp_path):
    bad = "<script>alert(1)</script>"
    changed = record("normal", sweep=bad).model_copy(update={"reason": bad, "name": bad})
    assert bad not in changed._repr_html_()
    assert bad not in pb.Agreement(bad, 0.1, 0.1, 0.1, "agrees", bad, bad)._repr_html_()
    assert bad not in pb.Table(file=bad, target=bad)._repr_html_()
    trace = plane_trace(resolution=(6, 5), points=20)
    stored = store(tmp_path, [(record("normal", sweep=bad), trace)])
    assert "<script" not in pb.load_results(stored.folder)._repr_html_()


class _Balanced(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in ("img", "br", "input", "meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def well_formed(html):
    parser = _Balanced()
    parser.feed(html)
    assert parser.open == []


ROOMS = ("data", "inference", "prediction", "experiment", "results", "estimators")

INSIDE = {"RawRows", "GraphKey", "Walk", "Curve", "Moments", "NormalComponents", "UserImage"}
INSIDE |= {"StudentTComponents", "StoredRanks", "Landscape", "Expectations", "Polished"}
"""Classes with arrays that no public function returns, nor an attribute of what it returns."""


def test_every_class_that_holds_arrays_is_summarised():
    found = {}
    for room in ROOMS:
        package = importlib.import_module(f"pmbnn.{room}")
        for info in pkgutil.walk_packages(package.__path__, f"pmbnn.{room}."):
            for cls in vars(importlib.import_module(info.name)).values():
                if isinstance(cls, type) and dataclasses.is_dataclass(cls):
                    types = [str(field.type) for field in dataclasses.fields(cls)]
                    if any("ndarray" in text for text in types):
                        found[cls.__name__] = cls
    found = {name: cls for name, cls in found.items() if not name.startswith("_")}
    assert len(found) > 10
    silent = {name for name, cls in found.items() if not issubclass(cls, Summarised)}
    assert silent <= INSIDE
    assert issubclass(pb.Posterior, Summarised)
