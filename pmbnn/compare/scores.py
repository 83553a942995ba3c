"""Scores of a cell, and the ranking of combinations of prior and hyperprior by them."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pandas as pd

from pmbnn.results.ranking import BEST, DIFFERENCE_COLUMNS, differences_to_best
from pmbnn.results.record import CellRecord, is_unrepeated
from pmbnn.results.tables import NATS, OF_TARGET, Combinations, mean_and_error

HELD_OUT = "held_out.nll"
"""Negative log-likelihood of images that no fit has seen and nothing was chosen by."""


NLL_METRICS = ("excess_nll", "nll")
"""Results that posteriors are compared by, nats an observation: at fresh points where every cell of
a data set has it, of the test rows otherwise. The first differs from the NLL by the same number in
all cells."""


class Column(NamedTuple):
    """A result with a column of its own: its name, decimals, what it is in full, and its unit."""

    title: str
    decimals: int
    note: str = ""
    unit: str = ""

    @property
    def heading(self) -> str:
        """The heading with the unit."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


class Scores(NamedTuple):
    """What is known of the cells whose predictions are of one type.

    Attributes
    ----------
    main
        Result that stands for a cell where there is room for one, and its format.
    ranked_by
        Scores by which combinations are ranked, less being better; the first that cells have is
        taken. None is of the test rows.
    paired
        Name, result and sign of what learned scales are compared with fixed ones by: less is
        better. The first two that cells have are taken, so test rows decide only where the
        distribution of the data is not known.
    columns
        Results with a column in tables of cells.
    """

    main: tuple[str, str]
    ranked_by: tuple[str, ...]
    paired: tuple[tuple[str, str, float], ...]
    columns: Mapping[str, Column]


ELBO = Column("ELBO", 1, "evidence lower bound of the best restart", NATS)
NLL = Column("NLL", 4, "negative log-likelihood of the test rows, an observation", NATS)
CONFORMAL = Column("conformal coverage 95", 3, "share of test rows, by rows set aside")

SCORES: Mapping[str, Scores] = {
    "class_probabilities": Scores(
        main=("accuracy", "{:.3f}"),
        ranked_by=("excess_nll", HELD_OUT, "validation_nll"),
        paired=(
            ("excess error", "excess_error", 1.0),
            ("excess NLL", "excess_nll", 1.0),
            ("error", "accuracy", -1.0),
            ("NLL", "nll", 1.0),
        ),
        columns={
            "accuracy": Column("accuracy", 4, "± standard error on so many test rows"),
            "excess_error": Column(
                "excess error", 4, "above the best possible classifier, on fresh points"
            ),
            "nll": NLL,
            "expected_calibration_error": Column("ECE", 4, "expected calibration error"),
            "set_coverage_95": Column("set coverage 95", 3, "share of test rows in 95 % sets"),
            "set_size_95": Column("set size 95", 2, "mean number of classes in 95 % sets"),
            "conformal_coverage_95": CONFORMAL,
            "conformal_size_95": Column("conformal size 95", 2, "classes in conformal 95 % sets"),
            "elbo": ELBO,
        },
    ),
    "density": Scores(
        main=("rmse", "RMSE {:.3g}"),
        ranked_by=("validation_nll",),
        paired=(("NLL", "nll", 1.0),),
        columns={
            "rmse": Column("RMSE", 4, "root-mean-square error of the test rows", OF_TARGET),
            "nll": NLL,
            "crps": Column("CRPS", 4, "continuous ranked probability score", OF_TARGET),
            "coverage_50": Column("coverage 50", 3, "share of test rows in the central 50 %"),
            "coverage_90": Column("coverage 90", 3, "share of test rows in the central 90 %"),
            "coverage_95": Column("coverage 95", 3, "share of test rows in the central 95 %"),
            "width_95": Column("width 95", 4, "mean width of the central 95 %", OF_TARGET),
            "conformal_coverage_95": CONFORMAL,
            "conformal_width_95": Column(
                "conformal width 95", 4, "mean width of conformal 95 % intervals", OF_TARGET
            ),
            "elbo": ELBO._replace(unit=f"{NATS}, standardised targets"),
        },
    ),
}
"""By the key of a predictive type, as records name it."""

RANKING_SCORE_NAMES = {
    "excess_nll": "excess NLL at fresh points",
    HELD_OUT: "NLL of images set aside",
    "validation_nll": "NLL of held-out training rows",
}
"""What combinations are ranked by, in words; all in nats an observation."""


def scores_of(records: Iterable[CellRecord]) -> list[Scores]:
    """What is known of each type of predictions among some cells, in order of appearance."""
    return [SCORES[kind] for kind in dict.fromkeys(r.predictive for r in records) if kind in SCORES]


def score(record: CellRecord, name: str) -> float | None:
    """A score of a cell, if it has it."""
    if name == HELD_OUT:
        return ((record.images or {}).get("held_out") or {}).get("nll")
    return record.results.get(name)


def ranking_score(records: Iterable[CellRecord]) -> str | None:
    """The score by which some cells are ranked; None where nothing was held out for it."""
    records = list(records)
    names = [name for scores in scores_of(records) for name in scores.ranked_by]
    return next((n for n in names if any(score(r, n) is not None for r in records)), None)


# Which combinations of prior and hyperprior are best on a data set, and how certain that is

NO_SCORE = "no score"
"""Verdict on a combination that failed, or for which nothing was held out."""

COLUMNS = ("prior", "hyperprior", "row", "column", "mean", "se", "seeds", *DIFFERENCE_COLUMNS)
"""Of every combination: its score with its standard error over data seeds, and its difference to
the best."""


def rank_combinations(combinations: Combinations, margin: float | None = None) -> pd.DataFrame:
    """Every combination that was run, the best first; see `COLUMNS`.

    Lower scores are better. The best, intervals and verdicts are those of `differences_to_best`.
    Several fits of one data seed count as one, by their mean.

    Parameters
    ----------
    margin
        Of practical equivalence; see there.
    """
    scores, overlap = _scores(combinations), combinations.overlap
    unrepeated = [place for place, cells in combinations.records.items() if is_unrepeated(cells)]
    table = differences_to_best(scores, overlap, margin, unrepeated=unrepeated)
    compared = table.to_dict("index")
    rows = []
    for place in combinations.records:
        values = list(scores[place].dropna()) if place in scores else []
        mean, error = mean_and_error(values, overlap)
        row = {"mean": mean, "se": error, "seeds": len(values), "verdict": NO_SCORE}
        rows.append(_names(combinations, place) | row | compared.get(place, {}))
    table = pd.DataFrame(rows, columns=COLUMNS).sort_values("mean", kind="stable")
    return table.sort_values(
        "verdict", key=lambda verdict: verdict != BEST, kind="stable", ignore_index=True
    )


def _scores(combinations: Combinations) -> pd.DataFrame:
    """Scores: a row a data seed, a column a place; missing where a combination has none."""
    name = ranking_score(r for group in combinations.records.values() for r in group)
    cells = combinations.cells
    cells = cells.assign(score=[score(r, name) if name else None for r in cells["record"]])
    known = cells.astype({"score": float}).dropna(subset="score")
    means = known.groupby(["row", "column", "seed"])["score"].mean()
    return means.unstack(["row", "column"])


def _names(combinations: Combinations, place: tuple[int, int]) -> dict[str, object]:
    row, column = place
    no_scale = row in combinations.without_scale
    hyperprior = "no scale" if no_scale else combinations.columns[column]
    prior = combinations.rows[row]
    return {"prior": prior, "hyperprior": hyperprior, "row": row, "column": column}
