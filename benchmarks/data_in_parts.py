"""Data that come in parts: the posterior of one half as the prior of the other, against all rows.

Run: ``PMBNN_DATA=FOLDER uv run python benchmarks/data_in_parts.py`` (an hour of one core). The
training rows of five standard splits of boston and energy are halved at random. A linear model, and
one hidden layer of 50 rectified units, both with Normal weights of scale 1 and learned noise, are
fitted to the first half, to the second, to the second with the first half's posterior as prior
(``prior: cell``, 1,000 draws), and to all rows at once: by one mean-field fit and by four chains of
MCLMC, which need not agree. The table has mean NLLs of the test rows, in nats and original units,
and the mean difference of the two halves one after the other from all rows, with its standard error
over splits.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import measuring
import numpy as np
import pandas as pd

import pmbnn as pb

NETWORKS = {
    "linear": {"kind": "dense", "hidden": [[]]},
    "50 units": {"kind": "dense", "hidden": [[50]], "activation": "relu"},
}
METHODS = {
    "mean field": {"steps": 10_000, "batch": 128, "learning_rate": 0.01, "initial_scale": 0.01,
                   "estimator": "local_reparameterisation"},
    "MCLMC": {"engine": "mclmc", "chains": 4, "draws": 400, "doublings": 0, "start": "fit"},
}  # fmt: skip
FIRST, SECOND, AFTER, ALL = "first half", "second half", "one after the other", "all rows"


def main() -> None:
    """Fit every part by every method and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", default=["boston", "energy"])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--out", type=Path, default=measuring.HERE / "data_in_parts.txt")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = pd.DataFrame(
            row
            for data in given.data
            for split in range(given.splits)
            for row in scores(data, split, Path(folder) / f"{data}{split}")
        )
    head = f"{given.splits} standard splits, mean NLL of test rows"
    measuring.report("\n".join([head, "", measuring.table([*lines(found)])]), given.out)


def scores(data: str, split: int, folder: Path) -> Iterator[dict[str, object]]:
    """Test NLLs of a split by network, method and part."""
    parts = datasets(data, split, folder)
    for network, method in ((n, m) for n in NETWORKS for m in METHODS):
        settings = {"network": NETWORKS[network], "inference": METHODS[method]}
        settings |= {
            "hyperprior": {"kind": "fixed", "scale": 1},
            "likelihood": {"kind": "normal", "sd": "half_cauchy"},
            "predict": {"draws": 400, "trace_draws": 1000},
        }
        out, cells = folder / f"{network} {method}", {}
        for part in (FIRST, SECOND, ALL, AFTER):
            prior = {"kind": "cell", "path": cells[FIRST].folder} if part == AFTER else "normal"
            rows = parts[SECOND if part == AFTER else part]
            one = {
                "name": "parts",
                "sweeps": [{"name": "parts", **settings, "dataset": rows, "prior": prior}],
            }
            cells[part] = pb.run(one, out=out / part, workers=1, quiet=True).cell()
        values = {part: cell.record.results["nll"] for part, cell in cells.items()}
        statuses = {f"{part} status": cell.record.status for part, cell in cells.items()}
        yield {"data": data, "network": network, "method": method, **values, **statuses}


def datasets(data: str, split: int, folder: Path) -> dict[str, pb.Dataset]:
    """Both halves of a split's training rows and all of them, each with its test rows."""
    uci = Path(os.environ["PMBNN_DATA"]) / "uci"
    frame = pd.read_csv(uci / f"{data}.csv.gz")
    test = np.load(uci / f"{data}_splits.npz")[f"test_{split}"]
    train = np.random.default_rng(split).permutation(np.setdiff1d(np.arange(len(frame)), test))
    half = len(train) // 2
    folder.mkdir()
    found = {}
    for part, rows in ((FIRST, train[:half]), (SECOND, train[half:]), (ALL, train)):
        np.savetxt(
            last := folder / f"{part}.txt", np.arange(len(rows), len(rows) + len(test)), "%d"
        )
        found[part] = pb.Dataset.from_frame(
            frame.iloc[[*rows, *test]],
            "y",
            task="regression",
            redundant="keep",
            split=pb.Indices(file=str(last)),
            name=data,
        )
    return found


def lines(found: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    """Rows of the table."""
    parts = (FIRST, SECOND, AFTER, ALL)
    yield "data, network, method", *parts, "less all rows", "not converged"
    for names, group in found.groupby(["data", "network", "method"], sort=False):
        more = group[AFTER] - group[ALL]
        means = (f"{group[part].mean():.3f}" for part in parts)
        doubtful = sum((group[f"{part} status"] != "converged").sum() for part in parts)
        difference = f"{more.mean():+.3f} ± {more.sem():.3f}"
        yield ", ".join(names), *means, difference, f"{doubtful} of {4 * len(group)}"


if __name__ == "__main__":
    main()
