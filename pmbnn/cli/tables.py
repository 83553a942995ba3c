"""The tables that commands print of comparisons: with the posterior, of priors, of baselines."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.table import Table
from rich.text import Text

from pmbnn.compare.agreement import KINDS, Kind
from pmbnn.compare.baselines import metric_columns, row_caveats, tally
from pmbnn.compare.claims import ALL, CLAIMS, HYPERPRIORS, KEYS, unit_of_measure
from pmbnn.compare.contrasts import COLUMN, METHODS, VERDICT_TEXT, judged_method
from pmbnn.compare.intervals import POWER
from pmbnn.core.numbers import difference_text, interval_text, number_text, p_value_text
from pmbnn.report.glossary import verdict_text
from pmbnn.results.names import (
    OF_POSTERIOR,
    setting_words,
)
from pmbnn.results.record import (
    AT_GRID_END,
    NOT_CONVERGED,
)
from pmbnn.results.tables import (
    error_note,
    score_text,
    with_unit,
)

VERDICTS = ("agrees", "differs", "undecided")


def make_table(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Iterable[object]],
    right: Collection[str] = (),
    caption: str = "",
) -> Table:
    """A table of plain text: brackets in it are no markup.

    Parameters
    ----------
    right
        Headings of the columns that are aligned to the right.
    """
    below = Text(caption) if caption else None
    table = Table(title=Text(title), title_justify="left", caption=below, caption_justify="left")
    for heading in headings:
        table.add_column(Text(heading), justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    return table


# Agreement with the posterior


def agreement_tables(agreement: pd.DataFrame) -> list[Table]:
    """A table for each kind of prediction in the agreement of fits with the posterior."""
    kinds = [kind for kind in KINDS.values() if kind.name in agreement.columns]
    return [_agreement_table(kind, agreement[agreement[kind.name].notna()]) for kind in kinds]


def _agreement_table(kind: Kind, agreement: pd.DataFrame) -> Table:
    """Distance at test rows, mean and largest over data seeds, of each posterior and guide."""
    keys = ["dataset.kind", "prior.kind", "hyperprior.kind", "guide"]
    others = [
        name
        for name in agreement.columns
        if name.split(".")[0] in (*OF_POSTERIOR, "mixture")
        and name not in (*keys, "dataset.seed")
        and agreement[name].nunique(dropna=False) > 1
    ]
    rows = []
    for values, group in agreement.groupby([*keys, *others], sort=False, dropna=False):
        key, more = values[: len(keys)], dict(zip(others, values[len(keys) :], strict=True))
        settings = ", ".join(
            setting_words(n, value) for n, value in more.items() if pd.notna(value)
        )
        distance, floor = group[kind.name], group[f"{kind.name}_floor"]
        lost = f"{group['fit_status'].isin(NOT_CONVERGED).sum()} of {len(group)}"
        means = distance.mean(), distance.max(), floor.mean()
        numbers = [number_text(mean, decimals=4) for mean in means]
        numbers.append(number_text(group["sd_ratio"].median(), decimals=2))
        counts = [(group["verdict"] == verdict).sum() for verdict in VERDICTS]
        rows.append([*key, settings, lost, *numbers, *counts])
    left = ["data", "prior", "hyperprior", "guide", "settings"]
    right = ["not converged", "mean", "largest", "floor", "sd ratio", *VERDICTS]
    return make_table(f"{kind.title}, test rows", [*left, *right], rows, right)


# Contrasts


def contrasts_table(name: str, contrasts: pd.DataFrame) -> Table:
    """A line a contrast and data set: differences in nats, and verdicts."""
    exploratory = contrasts["exploratory"].any()
    kind = "exploratory: the experiment file names none" if exploratory else "named"
    title = f"{name}: contrasts ({kind}), first less second, nats"
    titles = "reference", "ADVI", "ADVI less reference", "ensemble"
    numbers = dict(zip(COLUMN, titles, strict=True))
    says = "posterior says", "ADVI says", "ensemble says"
    verdicts = dict(zip(VERDICT_TEXT, says, strict=True))
    # Without its cells a method has no numbers and no verdict.
    numbers = {name: text for name, text in numbers.items() if contrasts[name].notna().any()}
    verdicts = {name: text for name, text in verdicts.items() if contrasts[name].any()}
    entries = contrasts.to_dict("records")
    judged = [judged_method(row) for row in entries]
    rows = (
        [row["data"], row["contrast"], row["seeds"]]
        + [_interval(row, quantity) for quantity in numbers]
        + [number_text(row[f"{method}_detectable"], digits=2)]
        + [verdict_text(row[name]) for name in verdicts]
        for row, method in zip(entries, judged, strict=True)
    )
    right = [*numbers.values(), "detectable"]
    headings = ["data", "contrast", "seeds", *right, *verdicts.values()]
    methods = [METHODS[name] for name in METHODS if name in judged]
    caption = (
        f"detectable: the smallest true difference that as many data seeds find with probability "
        f"{POWER}, under {' or '.join(methods)}."
    )
    return make_table(title, headings, rows, right, caption)


def _interval(row: Mapping[str, Any], name: str) -> str:
    """Mean and both ends of its interval, as far as they are finite."""
    return difference_text(*(row[name + end] for end in ("", "_low", "_high")))


def over_data_table(name: str, means: pd.DataFrame) -> Table:
    """A line a contrast and method: the mean over data sets like these, in nats."""
    right = ["data sets", "mean", "sd between"]
    rows = (
        [
            *(row["contrast"], METHODS[row["method"]], row["data_sets"]),
            difference_text(*(row[end] for end in ("mean", "low", "high"))),
            number_text(row["sd_between"], digits=2),
            verdict_text(row["verdict"]),
        ]
        for row in means.to_dict("records")
    )
    caption = (
        "By a random-effects meta-analysis: a second answer, which takes the data sets as a "
        "sample. The intervals allow for splits that share rows, and hold together with "
        "probability 95 %."
    )
    title = f"{name}: contrasts over data sets, first less second, nats"
    return make_table(title, ["contrast", "of", *right, "verdict"], rows, right, caption)


def row_errors_table(name: str, errors: pd.DataFrame) -> Table:
    """A line a contrast, data set and method: the difference in nats, and both standard errors."""
    kind = "exploratory: the experiment file names none" if errors["exploratory"].any() else "named"
    title = f"{name}: contrasts ({kind}) of the test NLL by row, first less second, nats"
    left = ["data", "contrast", "of"]
    right = ["seeds", "rows", "difference", "se by rows", "se by splits"]
    rows = (
        [
            *(row["data"], row["contrast"], METHODS[row["method"]], row["seeds"], row["rows"]),
            difference_text(*(row[end] for end in ("difference", "low", "high"))),
            *(number_text(row[se], digits=2) for se in ("se_rows", "se_nadeau_bengio")),
            verdict_text(row["verdict"]),
        ]
        for row in errors.to_dict("records")
    )
    caption = (
        "Intervals by rows hold together with probability 95 %, for the training sets that were "
        "drawn. Standard errors by splits allow for other training sets (Nadeau and Bengio 2003)."
    )
    return make_table(title, [*left, *right, "verdict by rows"], rows, right, caption)


def regret_table(name: str, regret: pd.DataFrame) -> Table:
    """A line a data set and criterion: what choosing a combination by it costs."""
    title = f"{name}: regret of choosing a combination by, nats under the posterior"
    left = ["data", "chosen by", "of"]
    right = ["seeds", "not converged", "regret", "largest", "right", "by chance"]
    rows = (
        [
            *(row["data"], row["criterion"], row["source"].replace("_", " "), row["seeds"]),
            f"{row['not_converged']} of {row['cells']}",
            number_text(row["regret"], row["regret_se"], decimals=5),
            number_text(row["regret_largest"], decimals=5),
            f"{row['right']:.0%}",
            number_text(row["by_chance"], decimals=5),
        ]
        for row in regret.to_dict("records")
    )
    has_errors = regret["regret_se"].notna().any()
    overlaps = regret.loc[regret["seeds"] > 1, "overlap"]
    caption = error_note("data seeds", *overlaps) if has_errors else ""
    return make_table(title, [*left, *right], rows, right, caption)


# Priors and hyperpriors


def claims_tables(claims: pd.DataFrame) -> Iterator[Table]:
    """A table for every comparison and data set: a line a combination, a column a measure."""
    for claim in CLAIMS:
        places = ["experiment", "sweep", "data", "variant"]
        groups = claims[claims["claim"] == claim].groupby(places, sort=False)
        for (experiment, sweep, *data), rows in groups:
            title = f"{claim}: {experiment}, {sweep}, {'; '.join(filter(None, data))}"
            yield _claims_table(title, rows)


def _claims_table(title: str, rows: pd.DataFrame) -> Table:
    names = [name for name in ("prior", "hyperprior", "against") if rows[name].any()]
    measures = rows["measure"].drop_duplicates().tolist()
    lines = rows.assign(entry=rows.apply(_mean_and_marks, axis=1)).pivot_table(
        index=names, columns="measure", values="entry", aggfunc="last", sort=False, fill_value=""
    )
    units = map(unit_of_measure, measures)
    right = [f"{m} ({u})" if u else m for m, u in zip(measures, units, strict=True)]
    shown = lines[measures].reset_index().itertuples(index=False)
    with_error = rows["se"].notna()
    repeated = "data seeds" if (rows["seeds"] > 1).any() else "fits"
    notes = {
        error_note(repeated, rows["overlap"].max()): with_error,
        "† some fits not converged": rows["not_converged"] > 0,
        f"‡ some fixed scales {AT_GRID_END}": rows["at_grid_end"] > 0,
    }
    caption = "; ".join(note for note, marked in notes.items() if marked.any())
    return make_table(title, [*names, *right], shown, right, caption)


def _mean_and_marks(row: pd.Series) -> str:
    """Mean ± standard error, in three digits, with the marks of the caption."""
    marks = "†" * bool(row["not_converged"]) + "‡" * bool(row["at_grid_end"])
    return number_text(row["mean"], row["se"], digits=3) + marks


def grid_end_lines(claims: pd.DataFrame) -> Iterator[str]:
    """How many pairs have a fixed scale at an end of its grid, a line an experiment."""
    pairs = claims[(claims["claim"] == HYPERPRIORS) & (claims["prior"] != ALL)]
    # All measures are of the same pairs.
    pairs = pairs.drop_duplicates([n for n in KEYS if n != "measure"])
    for experiment, rows in pairs.groupby("experiment", sort=False):
        if at_end := int(rows["at_grid_end"].sum()):
            yield (
                f"{experiment}: in {at_end} of {int(rows['cells'].sum())} pairs the fixed scale is "
                "at an end of its grid (marked ‡): where the learned one is better, a fixed one "
                "beyond may be better still"
            )


# Baselines


def baselines_tables(name: str, means: pd.DataFrame, paired: pd.DataFrame) -> Iterator[Table]:
    """Means and paired differences of each data set, and counts over several data sets."""
    has_several = not paired.empty and paired["data"].nunique() > 1
    for data, rows in means.groupby("data", sort=False):
        yield means_table(f"{name}, {data}", rows.dropna(axis=1, how="all"))
        differences = paired if paired.empty else paired[paired["data"] == data]
        if not differences.empty:
            yield _paired_table(f"{name}, {data}", differences, has_several)
    if has_several:
        yield tally_table(name, paired)


def means_table(title: str, means: pd.DataFrame) -> Table:
    """Means of networks and baseline models, with standard errors over data seeds."""
    metrics = metric_columns(means)
    rows = []
    for row in means.to_dict("records"):
        method = ": ".join(filter(None, (row["method"], row["combination"])))
        numbers = [score_text(metric, row[metric], row.get(f"{metric}_se")) for metric in metrics]
        rows.append(["\n".join([method, *row_caveats(row)]), row["seeds"], *numbers])
    right = ["seeds", *(with_unit(metric.replace("_", " "), metric) for metric in metrics)]
    seeds = means["seeds"].max()
    caption = error_note(f"{seeds} data seeds", means["overlap"].max()) if seeds > 1 else ""
    title = f"{title}: networks and baseline models"
    return make_table(title, ["method", *right], rows, right, caption)


def _paired_table(title: str, paired: pd.DataFrame, has_holm: bool) -> Table:
    """Differences of a network and every other method on the same data seeds."""
    rows = []
    for row in paired.to_dict("records"):
        rows.append(
            [
                *(row["method"], with_unit(row["metric"], row["metric"]), row["seeds"]),
                score_text(row["metric"], row["difference"], row["se"], signed=True),
                interval_text(row["low"], row["high"]),
                p_value_text(row["p_value"]),
                *([p_value_text(row["p_holm"])] if has_holm else []),
                f"{row['ahead']}/{row['level']}/{row['behind']}",
                verdict_text(row["verdict"]),
            ]
        )
    title = f"{title}: {paired['network'].iloc[0]} less other methods, below zero it is better"
    p_values = ["p", "p, Holm"] if has_holm else ["p"]
    right = ["seeds", "difference", "95 % interval", *p_values, "ahead/level/behind", "verdict"]
    return make_table(title, ["method", "metric", *right], rows, right)


def tally_table(name: str, paired: pd.DataFrame) -> Table:
    """Verdicts on the chosen network over data sets."""
    counts = tally(paired)
    verdicts = [verdict for verdict in counts.columns[2:] if counts[verdict].any()]
    rows = counts[["method", "metric", *verdicts]].itertuples(index=False)
    title = f"{name}: over data sets, the network against"
    return make_table(title, ["method", "metric", *verdicts], rows, verdicts)
