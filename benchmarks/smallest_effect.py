"""How many data seeds a comparison needs: the smallest difference that it finds, by simulation.

    uv run python benchmarks/smallest_effect.py

Three contrasts on two data sets, whose differences vary between data seeds by a standard deviation
of 0.5, 0.8 and 1.2 thousandths of a nat under the posterior and of 2.3 under ADVI; half of the
variance is the data seed's. A difference is found where its whole interval, of a family of 18 that
hold together, is beyond the margin of one thousandth. Intervals move with the data: what a
simulation without differences shows tells at which one it would have been found.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from pmbnn.compare.intervals import joint_intervals
from pmbnn.experiment.cells import MARGIN

SEEDS = (3, 5, 8, 10, 15, 20)
POSTERIOR_SDS, ADVI_SD = (0.5e-3, 0.8e-3, 1.2e-3), 2.3e-3
DATA_SETS, SHARE, POWER = 2, 0.5, 0.8


def differences(rng, sds, seeds: int) -> pd.Series:
    """Differences without a mean: the seed's own effect and the rest."""
    shape = (len(sds), DATA_SETS, seeds)
    effect, rest = rng.normal(size=(1, *shape[1:])), rng.normal(size=shape)
    values = np.reshape(sds, (-1, 1, 1)) * (SHARE**0.5 * effect + (1 - SHARE) ** 0.5 * rest)
    index = pd.MultiIndex.from_product(map(range, shape), names=["contrast", "data", "seed"])
    return pd.Series(values.ravel(), index)


def simulated(seeds: int, number: int) -> pd.DataFrame:
    """Intervals of one comparison in which nothing differs."""
    rng = np.random.default_rng([seeds, number])
    reference = differences(rng, POSTERIOR_SDS, seeds)
    advi = differences(rng, [ADVI_SD] * len(POSTERIOR_SDS), seeds)
    series = {"reference": reference, "advi": advi, "delta": advi - reference}
    return joint_intervals(series, number)


def measures(seeds: int, simulations: int) -> list[dict]:
    """What is found with so many data seeds, a row a standard deviation."""
    found = [simulated(seeds, number) for number in range(simulations)]
    covered = np.mean([((one["low"] <= 0) & (one["high"] >= 0)).all() for one in found])
    rows = []
    for quantity, contrast, sd in (
        *(("reference", i, sd) for i, sd in enumerate(POSTERIOR_SDS)),
        ("delta", slice(None), ADVI_SD),
    ):
        own = pd.concat([one.loc[(quantity, contrast), :] for one in found])
        # Differences of either sign: an interval has to move as far as its other end.
        needed = np.concatenate([-own["low"], own["high"]]) + MARGIN
        within = ((own["low"] > -MARGIN) & (own["high"] < MARGIN)).mean()
        what = "first less second, posterior" if quantity == "reference" else "ADVI less posterior"
        rows.append(
            {
                "data seeds": seeds,
                "what": what,
                "sd": f"{1e3 * sd:.1f}",
                "half-width": f"{1e3 * ((own['high'] - own['low']) / 2).mean():.2f}",
                "smallest found": f"{1e3 * np.quantile(needed, POWER):.2f}",
                "equivalence found": f"{within:.0%}",
                "all hold": f"{covered:.0%}",
            }
        )
    return rows


def main() -> None:
    """Print the table, and write it beside this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".txt"))
    arguments = parser.parse_args()
    rows = []
    for seeds in SEEDS:
        rows += measures(seeds, arguments.simulations)
        print(pd.DataFrame(rows[-4:]).to_string(index=False), flush=True)
    head = (
        "Thousandths of a nat; margin 1. Smallest found: the smallest difference found with power\n"
        "0.8. Equivalence found: how often, where nothing differs. All hold: share of the\n"
        f"{arguments.simulations} simulations in which all 18 intervals hold.\n"
        "uv run python benchmarks/smallest_effect.py\n\n"
    )
    arguments.out.write_text(f"{head}{pd.DataFrame(rows).to_string(index=False)}\n")


if __name__ == "__main__":
    main()
