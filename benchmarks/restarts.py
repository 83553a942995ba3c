"""Few long fits or many short ones: which finds the highest ELBO? Of `experiments/restarts.yaml`.

``python benchmarks/restarts.py results/restarts`` prints, for each data set and combination, the
mean over data seeds of the best ELBO of six fits of 10,000 steps and of sixteen of 4,000, their
difference with its standard error, and on how many data seeds each is within half a nat of the best
of all fits that were made; the same for each data set, with the rule's numbers; and the standard
deviation over data seeds of the difference of NLL that the learned scales make.
"""

import argparse
from pathlib import Path

import pandas as pd

SETTINGS = {10_000: "six", 4_000: "sixteen"}
"""The two settings by their steps; those of the sweep `many` are the reference alone."""

NEAR = 0.5
"""Nats from the best of 64 that count as found."""


def main() -> None:
    """Print the tables of a results folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="results of experiments/restarts.yaml")
    cells = cells_of(parser.parse_args().folder)
    print(elbos(cells).to_string(), end="\n\n")
    print(by_data(cells).to_string(), end="\n\n")
    print(differences(cells).to_string())


def cells_of(folder: Path) -> pd.DataFrame:
    """A row for each cell: where it is of, its setting, ELBO, excess NLL and status."""
    table = pd.read_csv(folder / "metrics.csv")
    table["setting"] = table["inference.steps"].map(SETTINGS).where(table["sweep"] == "settings")
    table["setting"] = table["setting"].fillna("many")
    keys = ["dataset", "prior", "hyperprior", "seed", "setting"]
    return table[[*keys, "elbo", "excess_nll", "status", "seconds"]]


def elbos(cells: pd.DataFrame) -> pd.DataFrame:
    """Best ELBOs of both settings by data set and combination, and how often they are the best."""
    place = ["dataset", "prior", "hyperprior"]
    elbo = cells.pivot(index=[*place, "seed"], columns="setting", values="elbo")
    best = elbo.max(axis=1)
    gain = elbo["sixteen"] - elbo["six"]
    near = elbo[["six", "sixteen"]].ge(best - NEAR, axis=0).groupby(place).sum()
    near = near[elbo["many"].notna().groupby(place).all()].add_suffix(" near the best of 64")
    by_place = gain.groupby(place)
    rows = elbo[["six", "sixteen"]].groupby(place).mean()
    rows = rows.assign(gain=by_place.mean(), se=by_place.sem(), least=by_place.min())
    return rows.join(near).round(2)


def by_data(cells: pd.DataFrame) -> pd.DataFrame:
    """Numbers of each data set and of both, means over combinations.

    Gain of ELBO of sixteen fits with its standard error over data seeds; shares of cells more than
    two nats from the better setting; shares within half a nat of the best of all fits, where there
    are 64 more; mean difference of excess NLL in thousandths of a nat; ratio of seconds.
    """
    index = ["dataset", "prior", "hyperprior", "seed"]
    wide = cells.pivot(index=index, columns="setting")
    rows = {}
    for name, part in [*wide.groupby("dataset"), ("both", wide)]:
        elbo, seconds = part["elbo"], part["seconds"].sum()
        gain = (elbo["sixteen"] - elbo["six"]).groupby("seed").mean()
        missed = elbo[["six", "sixteen"]].rsub(elbo[["six", "sixteen"]].max(axis=1), axis=0) > 2
        known = elbo.dropna()
        near = known.ge(known.max(axis=1) - NEAR, axis=0).mean()
        nll = (part["excess_nll"]["sixteen"] - part["excess_nll"]["six"]).mean()
        rows[name] = {
            "gain": gain.mean(),
            "se": gain.sem(),
            **missed.mean().add_prefix("missed, "),
            **near.add_prefix("near, "),
            "nll": 1000 * nll,
            "seconds": seconds["sixteen"] / seconds["six"],
        }
    return pd.DataFrame(rows).T.round(3)


def differences(cells: pd.DataFrame) -> pd.DataFrame:
    """Learned less fixed scales in excess NLL, thousandths of a nat: mean and spread over seeds."""
    both = cells[cells["setting"] != "many"]
    place = ["dataset", "prior", "setting"]
    nll = both.pivot(index=[*place, "seed"], columns="hyperprior", values="excess_nll")
    (fixed,) = (name for name in nll if name.startswith("fixed"))
    delta = 1000 * nll.drop(columns=fixed).sub(nll[fixed], axis=0)
    stacked = delta.stack().groupby([*place, "hyperprior"])
    return stacked.agg(["mean", "std", "min", "max"]).unstack("setting").round(1)


if __name__ == "__main__":
    main()
