"""Every guide against the posterior of three small networks: distance, loss and cost.

Run: ``uv run python benchmarks/guides.py`` (five minutes of one core). The 2-5-5-2 network on 700
moons and 700 circles under a Normal prior, and on moons under Student's t, all with scale 1. Every
guide is the best of six restarts of 10,000 steps, in a process of its own on one core; so is
MCLMC, by its defaults. Of the class probabilities at 2,000 new points: the median total variation
from those of a longer run of MCLMC with another seed, the median ratio of the standard deviations
over draws, and the mean excess of the loss. Processor time includes compilation; that of a second
fit in the same process stands beside it.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import measuring
import numpy as np

POSTERIORS = (("moons", "normal"), ("circles", "normal"), ("moons", "student_t"))

FIT = {"steps": 10_000, "restarts": 6, "learning_rate": 0.02}
METHODS = {
    "map": FIT | {"guide": "map"},
    "mean-field": FIT,
    "low-rank": FIT | {"guide": "low_rank"},
    "full-rank": FIT | {"guide": "full_rank"},
    "laplace": FIT | {"guide": "laplace"},
    "dropout 0.1": FIT | {"guide": "dropout", "dropout_rate": 0.1},
    "MCLMC": {},
}
REFERENCE = {"draws": 4_000, "random_seed": 1}
"""Arguments of the run of MCLMC that all are compared with."""

NEW = 2_000


def main() -> None:
    """Run every method on every posterior and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=3, metavar=("DATA", "PRIOR", "METHOD"))
    parser.add_argument("--folder", type=Path, help="keep runs there, and take what is there")
    parser.add_argument("--out", type=Path, default=measuring.HERE / "guides.txt")
    given = parser.parse_args()
    measuring.use_one_core()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if given.one:
            run(*given.one, folder)
            return
        for data, prior in POSTERIORS:
            for method in ("reference", *METHODS):
                if not file_of(folder, data, prior, method).exists():
                    command = [sys.executable, __file__, "--folder", str(folder), "--one"]
                    subprocess.run([*command, data, prior, method], check=True)
        head = ("posterior, method", "status", "distance", "sd ratio", "loss", "CPU s", "again")
        parts = ["2-5-5-2 tanh network, 700 rows, scale 1", measuring.machine_text(), ""]
        table = measuring.table([head, *rows(folder)])
        measuring.report("\n".join([*parts, table]), given.out)


def file_of(folder: Path, data: str, prior: str, method: str) -> Path:
    """Where a run is kept."""
    return folder / f"{data}-{prior}-{method}.npz"


def run(data: str, prior: str, method: str, folder: Path) -> None:
    """Fit or sample one posterior, twice unless it is the reference, and keep its predictions."""
    import pmbnn as pb

    model, new, _ = model_and_points(data, prior)
    arguments, seconds = METHODS.get(method, REFERENCE) | {"progress": False}, []
    for _ in range(1 if method == "reference" else 2):
        start = time.process_time()
        found = (pb.fit if "steps" in arguments else pb.sample)(model, **arguments)
        predictive = found.predict(new)
        seconds.append(time.process_time() - start)
    kept = {"mean": predictive.mean, "sd": predictive.sd[:, 0], "seconds": seconds}
    np.savez(file_of(folder, data, prior, method), **kept, status=found.status)


def model_and_points(data: str, prior: str) -> tuple:
    """A model, new points and their labels."""
    import sklearn.datasets

    import pmbnn as pb

    given = {"moons": {"noise": 0.4}, "circles": {"noise": 0.35, "factor": 0.5}}[data]
    make = getattr(sklearn.datasets, f"make_{data}")
    x, y = make(700, random_state=0, **given)
    new, labels = make(NEW, random_state=1, **given)
    return pb.dense_classifier(x, y, prior=prior, hyperprior="fixed"), new, labels


def rows(folder: Path) -> Iterator[tuple[str, ...]]:
    """Lines of the table."""
    for data, prior in POSTERIORS:
        _, _, labels = model_and_points(data, prior)
        reference = np.load(file_of(folder, data, prior, "reference"))
        for method in METHODS:
            one = np.load(file_of(folder, data, prior, method))
            distance = np.median(np.abs(one["mean"] - reference["mean"]).sum(axis=1) / 2)
            ratio = np.median(one["sd"] / reference["sd"])
            excess = loss(one["mean"], labels) - loss(reference["mean"], labels)
            cold, again = one["seconds"]
            numbers = f"{distance:.4f}", f"{ratio:.2f}", f"{excess:+.4f}"
            name = f"{data}, {prior}: {method}"
            yield (name, str(one["status"]), *numbers, f"{cold:.1f}", f"{again:.1f}")


def loss(probability: np.ndarray, labels: np.ndarray) -> float:
    """Mean negative logarithm of the probability of the label, in nats."""
    return float(-np.log(probability[np.arange(len(labels)), labels]).mean())


if __name__ == "__main__":
    main()
