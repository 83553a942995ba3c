"""How many data seeds a comparison needs: the smallest difference that it finds, by simulation.

    uv run python benchmarks/smallest_effect.py

Three contrasts on two data sets, whose differences vary between data seeds by a standard deviation
of 0.5, 0.8 and 1.2 thousandths of a nat under the posterior and of 2.3 under ADVI; half of the
variance is the data seed's. A difference is found where its whole interval, of a family of 18 that
hold together, is beyond the margin of one thousandth. Intervals move with the data: what a
simulation without differences shows tells at which one it would have been found.

``--routines`` instead compares, in the same simulation, the routines that give intervals: the
hierarchical model of `joint_intervals`, a bootstrap as rankings have it, t tests, and t tests with
Bonferroni's correction. Besides, differences vary 25 times as much on the second data set, and what
is found is that on the first.

``--ranking`` instead compares the procedures by which a ranking of 2 to 13 combinations may call
some significantly worse than the best: how often it does where none differs, and the smallest
difference that is found. Combinations vary by the same amount, or one, or half of them, five times
as much as the others.
"""

import argparse
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from pmbnn.compare import intervals
from pmbnn.compare.intervals import joint_intervals
from pmbnn.experiment.cells import MARGIN
from pmbnn.results.ranking import LEVEL, pairwise_half_widths

SEEDS = (3, 5, 8, 10, 15, 20)
BOOTSTRAP = 2_000
POSTERIOR_SDS, ADVI_SD = (0.5e-3, 0.8e-3, 1.2e-3), 2.3e-3
DATA_SETS, SHARE, POWER = 2, 0.5, 0.8
UNLIKE = 25.0
"""How much more differences may vary on the second data set than on the first."""


def differences(rng, sds, seeds: int, unlike: float = 1.0) -> pd.Series:
    """Differences without a mean: the seed's own effect and the rest."""
    shape = (len(sds), DATA_SETS, seeds)
    effect, rest = rng.normal(size=(1, *shape[1:])), rng.normal(size=shape)
    values = np.reshape(sds, (-1, 1, 1)) * (SHARE**0.5 * effect + (1 - SHARE) ** 0.5 * rest)
    values *= np.array([1.0, unlike])[:, None]
    index = pd.MultiIndex.from_product(map(range, shape), names=["contrast", "data", "seed"])
    return pd.Series(values.ravel(), index)


def family(seeds: int, number: int, unlike: float = 1.0) -> dict[str, pd.Series]:
    """Differences of one comparison in which nothing differs, by quantity."""
    rng = np.random.default_rng([seeds, number])
    reference = differences(rng, POSTERIOR_SDS, seeds, unlike)
    advi = differences(rng, [ADVI_SD] * len(POSTERIOR_SDS), seeds, unlike)
    return {"reference": reference, "advi": advi, "delta": advi - reference}


def bootstrap(quantities: dict[str, pd.Series]) -> pd.DataFrame:
    """Parametric bootstrap of the largest studentised difference, as `pairwise_half_widths`.

    The variance of a difference is the mean of its own and that of all of its quantity.
    """
    table = pd.concat(quantities, names=["name"]).unstack("seed").T
    seeds, (names, data) = len(table), map(table.columns.get_level_values, ("name", "data"))
    rng, residuals = np.random.default_rng(0), (table - table.mean()).to_numpy()

    def errors(values: np.ndarray) -> np.ndarray:
        variance = values.var(axis=-2, ddof=1)
        typical = [variance[..., names == name].mean(axis=-1) for name in names]
        return np.sqrt((variance + np.moveaxis(typical, 0, -1)) / 2 / seeds)

    simulated = np.empty((BOOTSTRAP, *table.shape))
    for name in data.unique():
        factor = np.linalg.qr(residuals[:, data == name], mode="r") / np.sqrt(seeds - 1)
        normals = rng.normal(size=(BOOTSTRAP, seeds, len(factor)))
        simulated[..., data == name] = normals @ factor
    largest = (np.abs(simulated.mean(axis=1)) / errors(simulated)).max(axis=1)
    reach, mean = np.quantile(largest, LEVEL) * errors(residuals), table.mean()
    return pd.DataFrame({"mean": mean, "low": mean - reach, "high": mean + reach})


def t_tests(quantities: dict[str, pd.Series], corrected: bool = False) -> pd.DataFrame:
    """Intervals of t tests, with Bonferroni's correction for their number or without."""
    groups = pd.concat(quantities).groupby(level=[0, "contrast", "data"], sort=False)
    mean, error, seeds = groups.mean(), groups.sem(), groups.size()
    level = 1 - (1 - LEVEL) / len(mean) if corrected else LEVEL
    low, high = stats.t.interval(level, seeds - 1, mean, error)
    return pd.DataFrame({"mean": mean, "low": low, "high": high})


def corrected_t_tests(quantities: dict[str, pd.Series]) -> pd.DataFrame:
    """As `t_tests`, corrected."""
    return t_tests(quantities, corrected=True)


ROUTINES: dict[str, Callable[[dict[str, pd.Series]], pd.DataFrame]] = {
    "hierarchical": joint_intervals,
    "bootstrap": bootstrap,
    "t": t_tests,
    "t, corrected": corrected_t_tests,
}


def measures(
    seeds: int,
    simulations: int,
    routine: Callable[..., pd.DataFrame] = joint_intervals,
    unlike: float = 1.0,
) -> list[dict]:
    """What is found with so many data seeds, a row a standard deviation."""
    tables = [routine(family(seeds, i, unlike)).sort_index() for i in range(simulations)]
    covered = np.mean([((one["low"] <= 0) & (one["high"] >= 0)).all() for one in tables])
    data = [0, 1] if unlike == 1 else [0]
    rows = []
    for quantity, contrast, sd in (
        *(("reference", i, sd) for i, sd in enumerate(POSTERIOR_SDS)),
        ("delta", slice(None), ADVI_SD),
    ):
        own = pd.concat([one.loc[(quantity, contrast, data), :] for one in tables])
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


def paired_t(scores: np.ndarray, comparisons: int = 1) -> np.ndarray:
    """Half-widths of paired t tests, with Bonferroni's correction for a number of comparisons."""
    seeds, differences = len(scores), scores[:, :, None] - scores[:, None]
    critical = stats.t.ppf(1 - (1 - LEVEL) / 2 / comparisons, seeds - 1)
    return critical * differences.std(axis=0, ddof=1) / np.sqrt(seeds)


def paired_t_of_all_pairs(scores: np.ndarray) -> np.ndarray:
    """As `paired_t`, corrected for all pairs."""
    return paired_t(scores, scores.shape[1] * (scores.shape[1] - 1) // 2)


def tukey(scores: np.ndarray) -> np.ndarray:
    """Half-widths of Tukey's test, by the residual variance of a randomised block design."""
    seeds, methods = scores.shape
    rest = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    freedom = (seeds - 1) * (methods - 1)
    error = np.sqrt((rest**2).sum() / freedom / seeds)
    return np.full((methods, methods), error * studentized_range(methods, freedom))


@cache
def studentized_range(methods: int, freedom: int) -> float:
    """Its quantile; SciPy integrates it anew each time."""
    return float(stats.studentized_range.ppf(LEVEL, methods, freedom))


PROCEDURES = {
    "paired t tests": paired_t,
    "Bonferroni, all pairs": paired_t_of_all_pairs,
    "Tukey": tukey,
    "bootstrap": pairwise_half_widths,
}

DEVIATIONS = {"equal": 0.0, "one of five": 0.01, "half of five": 0.5}
"""Share of the combinations, at least one, that vary five times as much as the others."""

SEED_SD = 10.0
"""Data seeds differ far more than combinations do on each."""


def ranking(seeds: int, methods: int, share: float, simulations: int) -> dict[str, str]:
    """How often each procedure is wrong where none differs, and the smallest difference found.

    Half-widths do not depend on true means: what is missing to a call tells the difference at which
    the last combination would have been called worse.
    """
    sds = np.ones(methods)
    sds[: int(np.ceil(share * methods))] = 5.0
    wrong: dict[str, list[bool]] = {name: [] for name in PROCEDURES}
    needed: dict[str, list[float]] = {name: [] for name in PROCEDURES}
    for number in range(simulations):
        rng = np.random.default_rng([seeds, methods, number])
        scores = rng.normal(0, SEED_SD, (seeds, 1)) + sds * rng.normal(size=(seeds, methods))
        mean = scores.mean(axis=0)
        best, best_of_others = mean.argmin(), mean[:-1].argmin()
        for name, procedure in PROCEDURES.items():
            half_widths = procedure(scores)
            others = np.arange(methods) != best
            wrong[name].append((mean - mean[best] > half_widths[best])[others].any())
            needed[name].append(half_widths[best_of_others, -1] - mean[-1] + mean[best_of_others])
    return {
        name: f"{np.mean(wrong[name]):.1%} {np.quantile(needed[name], POWER):.2f}"
        for name in PROCEDURES
    }


def compare_procedures(simulations: int) -> str:
    """Table of the procedures of a ranking."""
    intervals.BOOTSTRAP = 1_000
    rows = []
    for methods in (2, 5, 13):
        for seeds in (3, 5, 10, 20):
            for name, share in DEVIATIONS.items():
                row = {"combinations": methods, "data seeds": seeds, "deviations": name}
                rows.append(row | ranking(seeds, methods, share, simulations))
                print(rows[-1], flush=True)
    return pd.DataFrame(rows).to_string(index=False)


def compare_routines(simulations: int) -> str:
    """Table of the routines."""
    families = []
    for unlike, seeds, name in product((1.0, UNLIKE), (3, 5, 10), ROUTINES):
        head = {"routine": name, "data sets": "alike" if unlike == 1 else "unlike"}
        families += [head | row for row in measures(seeds, simulations, ROUTINES[name], unlike)]
        print(pd.DataFrame(families[-4:]).to_string(index=False), flush=True)
    return pd.DataFrame(families).to_string(index=False)


def main() -> None:
    """Print the table, and write it beside this file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".txt"))
    parser.add_argument("--routines", action="store_true", help="compare the routines instead")
    parser.add_argument("--ranking", action="store_true", help="compare rankings instead")
    arguments = parser.parse_args()
    error = np.sqrt(LEVEL * (1 - LEVEL) / arguments.simulations)
    if arguments.ranking:
        head = (
            "How often some combination is called significantly worse than the best where none\n"
            "differs, and the smallest difference found with power 0.8, in standard deviations of\n"
            f"a combination on one data seed; {4 * arguments.simulations} rankings each.\n"
            "uv run python benchmarks/smallest_effect.py --ranking\n\n"
        )
        path = arguments.out.with_name("smallest_effect_ranking.txt")
        path.write_text(f"{head}{compare_procedures(4 * arguments.simulations)}\n")
        return
    if arguments.routines:
        head = (
            "Thousandths of a nat, as in smallest_effect.txt. Unlike: differences vary 25 times\n"
            "as much on the second data set, and what is found is that on the first. All hold:\n"
            f"share of {arguments.simulations} simulations; standard error at 95 %: {error:.1%}.\n"
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
        f"{arguments.simulations} simulations in which all 18 intervals hold, with a standard\n"
        f"error of {error:.1%} at 95 %.\n"
        "uv run python benchmarks/smallest_effect.py\n\n"
    )
    arguments.out.write_text(f"{head}{pd.DataFrame(rows).to_string(index=False)}\n")


if __name__ == "__main__":
    main()
