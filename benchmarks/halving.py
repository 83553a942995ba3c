"""Does halving find a higher ELBO than six long fits? Of ``experiments/restarts.yaml``.

Run: ``uv run python benchmarks/halving.py`` (six minutes of one core). Each cell of four
combinations, two data sets and twenty data seeds starts 24 fits of 1,000 steps at a rate of .05;
the eight of highest ELBO go on for 3,000 steps at .05, the best three of these for 9,000 at .02,
each rung with a one-cycle schedule of its own. ELBOs, here as there, are means over the last tenth
of the steps. The settings were written down before anything was run. Compared with the stored fits
of ``results/reference/restarts``, whose best of all is the reference; of six fits of 10,000 steps,
the processor time is measured here as well, on the first two data seeds.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

import jax
import measuring
import numpy as np
import pandas as pd

from pmbnn.experiment.cells import Cell
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import settings_digest
from pmbnn.fitting.programs import graph_model
from pmbnn.inference import advi
from pmbnn.inference.convergence import TAIL
from pmbnn.inference.flat import model_graphs
from pmbnn.inference.program import Program, reported
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.models.build import model_data


class Rung(NamedTuple):
    """Fits that run side by side, their steps, and the highest learning rate."""

    fits: int
    steps: int
    rate: float


HALVING = (Rung(24, 1_000, 0.05), Rung(8, 3_000, 0.05), Rung(3, 9_000, 0.02))
SIX = (Rung(6, 10_000, 0.02),)
TIMED = 2
"""Data seeds on which six long fits are timed."""
NEAR = 0.5
"""Nats from the best of all fits that count as found."""


def main() -> None:
    """Fit every cell and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="data seeds")
    parser.add_argument("--out", type=Path, default=measuring.HERE / "halving.txt")
    given = parser.parse_args()
    measuring.use_one_core()
    cells = load_experiment(measuring.PROJECT / "experiments" / "restarts.yaml").cells
    cells = [cell for cell in cells if cell.sweep == "many" and cell.data_seed < given.seeds]
    programs: dict[tuple, list[Program]] = {}
    found = pd.DataFrame([row_of(cell, programs) for cell in cells])
    lines = [
        "2-5-5-2 tanh network, Normal and Laplace priors, fixed and half-normal scales,",
        f"{given.seeds} data seeds each. Gain: mean best ELBO of halving less that of the",
        "stored six (sixteen) fits, nats, with its standard error over data seeds. Near: share of",
        "cells within half a nat of the best of all 86 fits and halving. Time: processor seconds",
        f"of halving over those of six fits, median of data seeds below {TIMED}.",
        measuring.machine_text(),
        "",
        measuring.table(summary(found.join(stored(), on=KEYS, how="inner"))),
    ]
    measuring.report("\n".join(lines), given.out)


KEYS = ["dataset", "prior", "hyperprior", "seed"]


def stored() -> pd.DataFrame:
    """Best ELBO of each stored setting, by cell."""
    folder = measuring.PROJECT / "results" / "reference" / "restarts"
    table = pd.read_csv(folder / "metrics.csv")
    settings = {"settings 6": "six", "settings 16": "sixteen", "many 64": "many"}
    names = table["sweep"] + " " + table["inference.restarts"].astype(str)
    table["dataset"] = table["dataset"].str.split(",").str[0]
    table["hyperprior"] = table["hyperprior"].replace(
        {"fixed 1": "fixed", "half-normal": "half_normal"}
    )
    table["prior"] = table["prior"].str.lower()
    return table.assign(setting=names.map(settings)).pivot(
        index=KEYS, columns="setting", values="elbo"
    )


def row_of(cell: Cell, programs: dict[tuple, list[Program]]) -> dict[str, object]:
    """Best ELBO of a cell by halving, and processor seconds of both ways."""
    rows = cell.dataset.load().training
    combination = cell.prior.kind, cell.hyperprior.kind
    data = model_data(cell.hyperprior.candidates[0], rows, cell.likelihood)

    def fitted(rungs: Sequence[Rung], name: str) -> tuple[float, float]:
        key = (*combination, name, len(rows))
        if key not in programs:
            graphs = model_graphs(graph_model(cell, rows))
            programs[key] = [built(cell, rung, graphs, len(rows)) for rung in rungs]
            best_elbo(programs[key], rungs, data, f"{settings_digest(cell)}/compile")
        start = process_time()
        elbo = best_elbo(programs[key], rungs, data, f"{settings_digest(cell)}/{name}")
        return elbo, process_time() - start

    elbo, seconds = fitted(HALVING, "halving")
    six = fitted(SIX, "six")[1] if cell.data_seed < TIMED else np.nan
    names = (cell.dataset.kind, *combination, cell.data_seed)
    print(*names, f"{elbo:.2f}", f"{seconds:.1f} s", flush=True)
    return dict(zip(KEYS, names, strict=True)) | {
        "halving": elbo,
        "seconds": seconds,
        "six seconds": six,
    }


def built(cell: Cell, rung: Rung, graphs, rows: int) -> Program:
    """Program of a rung: as many replicas as it has fits."""
    changes = {"steps": rung.steps, "learning_rate": rung.rate, "restarts": rung.fits}
    return advi.build_program(graphs, cell.inference.model_copy(update=changes), rows, rung.fits)


def best_elbo(programs: Sequence[Program], rungs: Sequence[Rung], data, name: str) -> float:
    """Highest ELBO of the fits of the last rung."""
    chosen, elbo = None, np.empty(0)
    for number, (program, rung) in enumerate(zip(programs, rungs, strict=True)):
        replicas = [
            Replica(data, derive_keys(f"{name}/{number}/{fit}"), rung.rate)
            for fit in range(rung.fits)
        ]
        if chosen is None:
            state = advi.init(replicas, program)
        else:
            best = np.argsort(elbo)[-rung.fits :]
            state = program.compiled_start(jax.tree.map(lambda p: p[best], chosen))  # noqa: B023
        keys = np.stack([replica.key for replica in replicas])
        prepared, last = advi.prepare(replicas, program), round(TAIL * rung.steps)
        state, _ = advi.run(keys, state, program, prepared, rung.steps - last)
        state, sums = advi.run(keys, state, program, prepared, last)
        elbo = np.asarray((sums.log_likelihood - sums.kl) / last)
        elbo = np.where(np.isfinite(elbo), elbo, -np.inf)
        chosen = reported(state, program)
    return float(elbo.max())


def summary(found: pd.DataFrame) -> list[list[str]]:
    """Rows of the table: each data set, then both."""
    rows = [["", "gain on six", "on sixteen", "near: halving", "six", "sixteen", "64", "time"]]
    for name, part in [*found.groupby("dataset"), ("both", found)]:
        elbo = part[["halving", "six", "sixteen", "many"]]
        near = elbo.ge(elbo.max(axis=1) - NEAR, axis=0).mean()
        gains = []
        for other in ("six", "sixteen"):
            gain = (part["halving"] - part[other]).groupby(part["seed"]).mean()
            gains.append(f"{gain.mean():+.2f} ± {gain.sem():.2f}")
        time = (part["seconds"] / part["six seconds"]).median()
        rows.append([name, *gains, *(f"{share:.2f}" for share in near), f"{time:.2f}"])
    return rows


if __name__ == "__main__":
    main()
