"""How many data seeds a comparison needs: the smallest difference that it finds, by simulation.

    uv run python benchmarks/smallest_effect.py

Three contrasts on two data sets, whose differences vary between data seeds by a standard deviation
of 0.5, 0.8 and 1.2 thousandths of a nat under the posterior and of 2.3 under ADVI; half of the
variance is the data seed's. A difference is found where its whole interval, of a family of 18 that
hold together, is beyond the margin of one thousandth. Intervals move with the data: what a
simulation without differences shows tells at which one it would have been found.

``--routines`` instead compares, in the same simulation, the routines that give intervals: the joint
model of `joint_intervals`, t tests, and t tests with Bonferroni's correction; and, for a ranking of
13 combinations that do not differ, how often some are called significantly worse than the best.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from pmbnn.compare.intervals import LEVEL, joint_intervals
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


def family(seeds: int, number: int) -> dict[str, pd.Series]:
    """Differences of one comparison in which nothing differs, by quantity."""
    rng = np.random.default_rng([seeds, number])
    reference = differences(rng, POSTERIOR_SDS, seeds)
    advi = differences(rng, [ADVI_SD] * len(POSTERIOR_SDS), seeds)
    return {"reference": reference, "advi": advi, "delta": advi - reference}


def t_tests(quantities: dict[str, pd.Series], _: int, corrected: bool = False) -> pd.DataFrame:
    """Intervals of t tests, with Bonferroni's correction for their number or without."""
    groups = pd.concat(quantities).groupby(level=[0, "contrast", "data"], sort=False)
    mean, error, seeds = groups.mean(), groups.sem(), groups.size()
    level = 1 - (1 - LEVEL) / len(mean) if corrected else LEVEL
    low, high = stats.t.interval(level, seeds - 1, mean, error)
    return pd.DataFrame({"mean": mean, "low": low, "high": high})


def corrected_t_tests(quantities: dict[str, pd.Series], number: int) -> pd.DataFrame:
    """As `t_tests`, corrected."""
    return t_tests(quantities, number, corrected=True)


ROUTINES: dict[str, Callable[[dict[str, pd.Series], int], pd.DataFrame]] = {
    "joint": joint_intervals,
    "t": t_tests,
    "t, corrected": corrected_t_tests,
}


def measures(
    seeds: int, simulations: int, routine: Callable[..., pd.DataFrame] = joint_intervals
) -> list[dict]:
    """What is found with so many data seeds, a row a standard deviation."""
    found = [routine(family(seeds, number), number).sort_index() for number in range(simulations)]
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


COMBINATIONS, SEED_SD, OWN_SD = 13, 10.0, 1.0
"""Of a ranking: its data seeds differ far more than its combinations do on each."""


def ranking(seeds: int, simulations: int, routine: Callable[..., pd.DataFrame]) -> dict[str, str]:
    """How often some combination is called worse than the best where none differs."""
    wrong, widths, begun = [], [], time.perf_counter()
    for number in range(simulations):
        rng = np.random.default_rng([seeds, number])
        scores = rng.normal(0, SEED_SD, seeds) + rng.normal(0, OWN_SD, (COMBINATIONS, seeds))
        best = scores.mean(axis=1).argmin()
        values = np.delete(scores, best, axis=0) - scores[best]
        levels = [range(COMBINATIONS - 1), range(1), range(seeds)]
        index = pd.MultiIndex.from_product(levels, names=["contrast", "data", "seed"])
        intervals = routine({"difference": pd.Series(values.ravel(), index)}, number)
        wrong.append((intervals["low"] > 0).any())
        widths.append((intervals["high"] - intervals["low"]).mean() / 2)
    return {
        "some called worse": f"{np.mean(wrong):.0%}",
        "half-width": f"{np.mean(widths):.2f}",
        "seconds a ranking": f"{(time.perf_counter() - begun) / simulations:.2g}",
    }


def compare_routines(simulations: int) -> str:
    """Both tables of the routines."""
    families, rankings = [], []
    for seeds in (5, 10):
        for name, routine in ROUTINES.items():
            rows = measures(seeds, simulations, routine)
            families += [{"routine": name} | row for row in rows]
            number = simulations if routine is joint_intervals else 20 * simulations
            head = {"data seeds": seeds, "routine": name, "rankings": number}
            rankings.append(head | ranking(seeds, number, routine))
            print(pd.DataFrame(families[-4:]).to_string(index=False), rankings[-1], flush=True)
    return "\n\n".join(pd.DataFrame(t).to_string(index=False) for t in (families, rankings))


def main() -> None:
    """Print the table, and write it beside this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".txt"))
    parser.add_argument("--routines", action="store_true", help="compare the routines instead")
    arguments = parser.parse_args()
    if arguments.routines:
        head = (
            "Thousandths of a nat, as in smallest_effect.txt; below, a ranking of 13 combinations\n"
            "that do not differ, in their standard deviation on one data seed.\n"
            "uv run python benchmarks/smallest_effect.py --routines\n\n"
        )
        path = arguments.out.with_name("smallest_effect_routines.txt")
        path.write_text(f"{head}{compare_routines(arguments.simulations)}\n")
        return
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
