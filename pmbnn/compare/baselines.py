"""Networks beside baseline models and published results, paired by data seed.

The network that stands for the cells is chosen on each data seed by its own held-out training rows,
or by ELBO: no test row of that seed decides. One combination chosen for all seeds would have been
chosen by test rows too, as rows held out on one split are test rows on others.

`baseline_models` has the models that are fitted beside them. Cells with dropout are a baseline,
too, if there are others: their combination is chosen as that of the network is.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

import pandas as pd

from pmbnn.compare.baseline_models import BASELINES, KEYS
from pmbnn.compare.intervals import holm, interval_verdict, t_interval
from pmbnn.compare.published_splits import PublishedMethod
from pmbnn.core.errors import ConfigError
from pmbnn.core.numbers import NEGLIGIBLE
from pmbnn.data import DataError
from pmbnn.data.arrays import Dataset
from pmbnn.experiment.cells import LOCATIONS, Cell, file_label
from pmbnn.experiment.selection import select_cells
from pmbnn.results.names import (
    RANKED_BY,
    bounds_evidence,
    dataset_label,
    distinct,
    distinct_names,
    fit_title,
    group_by_settings,
    grouped,
    valid_cells,
)
from pmbnn.results.present import counted
from pmbnn.results.ranking import BETTER, EQUIVALENT, UNDECIDED, WORSE
from pmbnn.results.record import AT_GRID_END, CellRecord, choices_at_end, has_converged
from pmbnn.results.specifications import stored_specifications
from pmbnn.results.store import Results, ResultsError
from pmbnn.results.tables import SEED, mean_and_error

FILE, PAIRED_FILE = "baselines.csv", "paired_baselines.csv"
"""Files of a results folder that hold the tables."""

SHOWN = {
    "class_probabilities": ("accuracy", "nll", "brier_score", "expected_calibration_error"),
    "density": ("rmse", "nll", "crps", "coverage_90"),
}
"""Results in the table, by type of predictions."""

PAIRED = {"nll": ("nll", 1.0), "rmse": ("rmse", 1.0), "error": ("accuracy", -1.0)}
"""Result and sign of every metric that differences are taken of: less is better."""

CHOSEN = "network chosen by held-out rows"
BY_ELBO = "network chosen by ELBO"
"""Methods that stand for the cells, a combination chosen on each data seed."""

DROPOUT = "Monte-Carlo dropout chosen by held-out rows"
"""The baseline that stands for cells with dropout, if there are others."""

NAMED_NETWORK = "network named beforehand"
"""The method that stands for them instead, if the user names a combination."""

CHOSEN_KIND, SINGLE, BASELINE, PUBLISHED = (
    "chosen network", "combination", "baseline", "published",
)  # fmt: skip
"""Kinds of methods: a combination is the same on every data seed."""

NEAREST = 3
"""Combinations that the chosen network is paired with: those of lowest mean held-out score."""

NAMED = 3
"""Combinations that are named among those that were chosen."""

CAVEATS = {"not_converged": "not converged", "at_grid_end": f"a choice {AT_GRID_END}"}
"""Columns of networks that count the data seeds on which a fit did not converge, or a tuned scale
or learning rate is at an end of its candidates."""

VERDICTS = (BETTER, EQUIVALENT, UNDECIDED, WORSE)
"""Verdicts on the network, less the other method: the interval of the difference is below zero,
both score the same on every data seed, the interval holds zero, it is above; there is none."""

PAIRED_COLUMNS = (
    "data", "network", "method", "kind", "metric", "seeds", "difference", "se", "low", "high",
    "p_value", "p_holm", "ahead", "level", "behind", "verdict", "overlap",
)  # fmt: skip
"""Of every method that a network is paired with, the network less the method: mean over data seeds,
standard error, 95 % interval and p-value, without and with Holm's correction for the number of data
sets; the number of data seeds on which the network is ahead, level and behind; the verdict; and the
overlap of the data seeds, for which errors and intervals are corrected."""


class Method(NamedTuple):
    """Results of a method on a data set.

    ``scores`` has a row a data seed and a column a result; ``combination`` says which
    combinations were chosen.
    """

    name: str
    kind: str
    scores: pd.DataFrame
    combination: str = ""


class Baselines(NamedTuple):
    """Means of every method, a row each, and paired differences (see `PAIRED_COLUMNS`).

    Standard errors are corrected for overlapping splits where ``overlap`` is above zero
    (`mean_and_error`).
    """

    means: pd.DataFrame
    paired: pd.DataFrame


def make_baselines(
    results: Results,
    records: Sequence[CellRecord],
    models: Collection[str] = KEYS,
    published: Sequence[PublishedMethod] = (),
    on_progress: Callable[[str], None] = lambda message: None,
    network: Sequence[str] = (),
) -> Baselines:
    """Networks, baseline models and published methods on every data set.

    Parameters
    ----------
    records
        Of the cells; those of `invalid_chains` are passed over.
    models
        Names of the baseline models to fit, of `KEYS`.
    published
        Methods with published results, of which those on data seeds of the cells count.
    on_progress
        Called with what is fitted next.
    network
        Conditions ``KEY=VALUE`` that one combination on each data set meets (see `select_cells`):
        it is paired with all others then. By default combinations are chosen by held-out rows.

    Raises
    ------
    ConfigError
        If a condition is wrong, or several combinations on a data set meet all.
    DataError
        If a data set is no longer available, or has several targets and a baseline model is to be
        fitted; or if a published method has no split in common.
    """
    usable = valid_cells([r for r in records if r.results and r.predictive in SHOWN])
    by_data = grouped(usable, lambda record: record.cell.without_seeds.dataset)
    labels = distinct_names(by_data, dataset_label)
    _check_common(published, {labels[data]: cells for data, cells in by_data.items()})
    named = set(select_cells([r.cell for r in usable], network, "--network")) if network else None
    means, paired = [], []
    for number, (dataset, label) in enumerate(labels.items(), 1):
        cells = by_data[dataset]
        overlap = max(record.overlap for record in cells)
        place = f"{label} ({number} of {len(by_data)})"
        by_title = _by_title(cells)
        singles = {title: _by_seed(group) for title, group in by_title.items()}
        dropout = _dropout(by_title)
        networks = {title: scores for title, scores in singles.items() if title not in dropout}
        # Sampled cells have no ELBO, and of improper and tempered posteriors it says nothing.
        with_elbo = [r for r in cells if bounds_evidence(r) and not r.cell.is_sampled]
        singles_with_elbo = {t: _by_seed(group) for t, group in _by_title(with_elbo).items()}
        methods = [
            *(() if named is None else _named(label, by_title, named)),
            _chosen(CHOSEN, networks, RANKED_BY),
            _chosen(BY_ELBO, singles_with_elbo, "elbo", sign=-1.0),
            _chosen(DROPOUT, {title: singles[title] for title in dropout}, RANKED_BY, BASELINE),
            *_baselines(results, cells, models, lambda m, at=place: on_progress(f"{at}, {m}")),
            *(Method(p.name, PUBLISHED, _published_scores(p, label, cells)) for p in published),
            *(Method(title, SINGLE, scores) for title, scores in singles.items()),
        ]
        methods = [method for method in methods if len(method.scores)]
        shown = SHOWN[cells[0].predictive]
        means += [{"data": label} | _mean_row(method, shown, overlap) for method in methods]
        paired += [{"data": label} | row for row in _paired_rows(methods, overlap)]
    table = pd.DataFrame(paired, columns=PAIRED_COLUMNS)
    tests = table.groupby(["method", "metric"])["p_value"]
    table["p_holm"] = tests.transform(holm)
    return Baselines(pd.DataFrame(means), table)


def write_baselines(results: Results, baselines: Baselines) -> list[str]:
    """Names of the files written; a table without rows leaves none.

    Raises
    ------
    OSError
        If one cannot be written.
    """
    tables = zip((FILE, PAIRED_FILE), baselines, strict=True)
    return [file for file, table in tables if results.replace_table(file, table)]


def read_baselines(results: Results) -> Baselines:
    """The tables that a folder holds, without rows where there are none.

    Raises
    ------
    ResultsError
        If a verdict is not one of `VERDICTS`.
    """
    paths = (results.folder / file for file in (FILE, PAIRED_FILE))
    # Data sets may be called `NA` or `null`: only empty entries are missing.
    settings = {"keep_default_na": False, "na_values": [""]}
    means, paired = (pd.read_csv(p, **settings) if p.is_file() else pd.DataFrame() for p in paths)
    unknown = [verdict for verdict in paired.get("verdict", ()) if verdict not in VERDICTS]
    if unknown:
        raise ResultsError(
            f"`{results.folder / PAIRED_FILE}`: `verdict` must be one of "
            f"{', '.join(sorted(VERDICTS))}, got {unknown[0]!r}: run `pmbnn baselines` again."
        )
    if len(means):
        means["combination"] = means["combination"].fillna("")
    paired = paired.reindex(columns=PAIRED_COLUMNS)
    paired["network"] = paired["network"].fillna(CHOSEN)  # files of earlier versions
    return Baselines(means, paired)


def metric_columns(means: pd.DataFrame) -> list[str]:
    """Results that a table of means has, in its order."""
    metrics = {name for names in SHOWN.values() for name in names}
    return [column for column in means if column in metrics]


def tally(paired: pd.DataFrame) -> pd.DataFrame:
    """On how many data sets there is which verdict on the chosen network, by method and metric.

    Single combinations are left out: which are paired differs between data sets.
    """
    rows = paired[paired["kind"] != SINGLE]
    counts = rows.groupby(["method", "metric", "verdict"], sort=False).size().unstack(fill_value=0)
    counts = counts.reindex(columns=VERDICTS, fill_value=0)
    return counts.reindex(rows["method"].unique(), level="method").reset_index()


# Networks


def _by_title(records: Iterable[CellRecord]) -> dict[str, list[CellRecord]]:
    """Records of each combination, which differ in seeds only.

    They are named by prior, hyperprior and what else sets them apart.
    """
    groups = group_by_settings(records)
    cells = [replace(group[0].cell.without_seeds, dataset=None) for group in groups]
    by_title: dict[str, list[CellRecord]] = {}
    for title, group in zip(distinct(cells, fit_title), groups, strict=True):
        by_title.setdefault(title, []).extend(group)
    return by_title


def _by_seed(records: Sequence[CellRecord]) -> pd.DataFrame:
    """Results by data seed: means over its fits; of `CAVEATS`, the share of these fits."""
    seeds = pd.Index([record.cell.data_seed for record in records], name=SEED)
    rows = [
        record.results
        | {"not_converged": not has_converged(record), "at_grid_end": bool(choices_at_end(record))}
        for record in records
    ]
    return pd.DataFrame(rows, seeds, dtype=float).groupby(level=0).mean()


def _dropout(by_title: Mapping[str, Sequence[CellRecord]]) -> list[str]:
    """Titles of combinations with dropout; none if there are no others."""
    titles = [title for title, records in by_title.items() if records[0].cell.is_dropout]
    return titles if len(titles) < len(by_title) else []


def _chosen(
    name: str,
    candidates: Mapping[str, pd.DataFrame],
    by: str,
    kind: str = CHOSEN_KIND,
    sign: float = 1.0,
) -> Method:
    """On every data seed the candidate of which ``sign`` times a result is lowest."""
    values = {title: scores[by] for title, scores in candidates.items() if by in scores}
    values = sign * pd.DataFrame(values).dropna(how="all")
    if values.empty:
        return Method(name, kind, pd.DataFrame())
    chosen = values.idxmin(axis=1).sort_index()
    scores = pd.DataFrame({seed: candidates[title].loc[seed] for seed, title in chosen.items()}).T
    return Method(name, kind, scores, _times(chosen))


def _named(
    label: str, by_title: Mapping[str, Sequence[CellRecord]], named: Set[Cell]
) -> Iterator[Method]:
    """The combination whose cells were named; none on a data set without one.

    Raises
    ------
    ConfigError
        If there are several.
    """
    titles = [
        title
        for title, group in by_title.items()
        if named.intersection(record.cell for record in group)
    ]
    if len(titles) > 1:
        raise ConfigError(
            f"`--network` must leave one combination on each data set, got {len(titles)} on "
            f"{label}: {'; '.join(titles)}."
        )
    for title in titles:
        scores = _by_seed(by_title[title])
        yield Method(NAMED_NETWORK, CHOSEN_KIND, scores, f"{title} ({len(scores)})")


def _times(chosen: pd.Series) -> str:
    """How often which combination was chosen, those chosen most often first."""
    counts = chosen.value_counts()
    parts = [f"{title} ({times})" for title, times in counts.head(NAMED).items()]
    others = counts.iloc[NAMED:]
    if len(others):
        parts.append(f"{counted(len(others), 'other')} ({others.sum()})")
    return ", ".join(parts)


# Others


def _baselines(
    results: Results,
    records: Sequence[CellRecord],
    keys: Collection[str],
    on_progress: Callable[[str], None],
) -> list[Method]:
    """Baseline models, each fitted to the training rows of every data seed."""
    models = [model for model in BASELINES[records[0].predictive] if model.key in keys]
    scores: dict[str, dict[int, dict[str, float]]] = {model.name: {} for model in models}
    by_seed = {record.cell.data_seed: record for record in records} if models else {}
    for seed, record in sorted(by_seed.items()):
        dataset = _stored_dataset(results, record)
        for model in models:
            if model.max_rows is None or len(dataset.x_train) <= model.max_rows:
                on_progress(f"data seed {seed}: {model.name}")
                scores[model.name][seed] = model.scores(dataset, seed)
    return [Method(n, BASELINE, pd.DataFrame(s).T.astype(float)) for n, s in scores.items()]


def _stored_dataset(results: Results, record: CellRecord) -> Dataset:
    """The data that a cell was fitted on."""
    specs = stored_specifications(results.cells / record.name, record, ["dataset"])
    dataset = specs["dataset"].load()
    if dataset.fingerprint != record.fingerprint:
        raise DataError(
            f"The data of cell `{record.name}` are not those that it was fitted on: run the "
            "experiment again, or bring them back."
        )
    if dataset.target_names:
        names = ", ".join(dataset.target_names)
        label = dataset_label(record.cell.dataset)
        raise DataError(f"{label}: baseline models are of one target, got {names}.")
    return dataset


def _published_scores(
    method: PublishedMethod, label: str, records: Sequence[CellRecord]
) -> pd.DataFrame:
    names = _published_names(label, records[0])
    return method.on(names, {record.cell.data_seed for record in records})


def _published_names(label: str, record: CellRecord) -> set[str]:
    """Names that the data set of a record may have in a file of published results."""
    dataset = record.cell.dataset
    files = (getattr(dataset, name, None) for name in LOCATIONS)
    return {label, dataset_label(dataset), *(file_label(file) for file in files if file)}


def _check_one(method: PublishedMethod, groups: Mapping[str, Sequence[CellRecord]]) -> None:
    """Raise DataError where a set names several targets, or several splits of the same rows."""
    for name in method.scores.index.get_level_values(0).unique():
        meant: dict[tuple, str] = {}
        for label, records in groups.items():
            if name in _published_names(label, records[0]):
                dataset = records[0].cell.dataset
                parts = (getattr(dataset, part, None) for part in ("target", "y", "split"))
                meant.setdefault(tuple(parts), label)
        if len(meant) > 1:
            raise DataError(
                f"{method.file}: the set `{name}` must be one data set, with one target and split, "
                f"got several: write which is meant, {' or '.join(meant.values())}."
            )


def _check_common(
    published: Sequence[PublishedMethod], groups: Mapping[str, Sequence[CellRecord]]
) -> None:
    """Raise DataError where a method has no split of any data set here, or is there twice.

    Parameters
    ----------
    groups
        Records by the label of their data set.
    """
    names = [method.name for method in published]
    for method in published:
        if names.count(method.name) > 1:
            raise DataError(
                f"{method.file}: the method `{method.name}` must be named once, got it twice, "
                "perhaps by the experiment's table of published numbers: it would count twice in "
                "p-values corrected for several tests."
            )
        _check_one(method, groups)
        if all(_published_scores(method, *group).empty for group in groups.items()):
            every = (_published_names(label, records[0]) for label, records in groups.items())
            names = sorted(set().union(*every))
            published_names = ", ".join(method.scores.index.get_level_values(0).unique())
            raise DataError(
                f"{method.file}: must have a set and split of the cells ({', '.join(names)}), "
                f"got {published_names}."
            )


# Tables


def _mean_row(method: Method, shown: Sequence[str], overlap: float) -> dict[str, Any]:
    scores = method.scores
    row = {"method": method.name, "kind": method.kind, "seeds": len(scores), "overlap": overlap}
    for name in shown:
        values = list(scores[name]) if name in scores else []
        row[name], row[f"{name}_se"] = mean_and_error(values, overlap)
    row |= {name: int((scores[name] > 0).sum()) for name in CAVEATS if name in scores}
    return row | {"combination": method.combination}


def row_caveats(row: Mapping[str, Any]) -> list[str]:
    """Caveats of the networks of a row: on how many data seeds."""
    return [
        f"{caveat} on {row[name]:g} of {row['seeds']} data seeds"
        for name, caveat in CAVEATS.items()
        if row.get(name, 0) > 0
    ]


def _paired_rows(methods: Sequence[Method], overlap: float) -> Iterator[dict[str, Any]]:
    """Differences of the named network, or the one chosen by held-out rows, less other methods."""
    networks = {m.name: m for m in methods if m.kind == CHOSEN_KIND}
    network = networks.get(NAMED_NETWORK, networks.get(CHOSEN))
    if network is None:
        return
    others = [m for m in methods if m is not network and m.kind != SINGLE]
    singles = [
        m
        for m in methods
        if m.kind == SINGLE and network.combination != f"{m.name} ({len(m.scores)})"
    ]
    for method in others + (_nearest(network, singles) if network.name == CHOSEN else singles):
        names = {"network": network.name, "method": method.name, "kind": method.kind}
        for metric, (result, sign) in PAIRED.items():
            if result in network.scores and result in method.scores:
                # Rows are matched by data seed.
                scores = sign * network.scores[result], sign * method.scores[result]
                found = _difference(*scores, overlap)
                yield names | {"overlap": overlap, "metric": metric} | found


def _nearest(network: Method, singles: Iterable[Method]) -> list[Method]:
    """Combinations of lowest mean held-out score, without one that was chosen everywhere.

    Those that lack a score on some data seed are left out.
    """
    chosen = network.scores[RANKED_BY]
    means = []
    for method in singles:
        if RANKED_BY in method.scores:
            scores = method.scores[RANKED_BY].reindex(chosen.index)
            if scores.notna().all() and not scores.equals(chosen):
                means.append((scores.mean(), method))
    return [method for _, method in sorted(means, key=lambda pair: pair[0])[:NEAREST]]


def _difference(ours: pd.Series, theirs: pd.Series, overlap: float) -> dict[str, Any]:
    """Mean difference with its interval, and on how many data seeds it is below zero, zero, above.

    Where both methods score the same on every data seed, there is no spread and no difference.
    """
    differences = (ours - theirs).dropna()
    # But for rounding; errors of targets in units of their own may be of any size.
    level = (differences == 0) | (differences.abs() < NEGLIGIBLE * theirs[differences.index].abs())
    row = t_interval(differences, overlap) | {
        "ahead": int((differences[~level] < 0).sum()),
        "level": int(level.sum()),
        "behind": int((differences[~level] > 0).sum()),
    }
    if math.isinf(row["difference"]):  # a score that is infinite once is so on average
        row |= dict.fromkeys(("low", "high"), row["difference"])
    if 1 < row["level"] == row["seeds"]:
        return row | {"verdict": EQUIVALENT}
    return row | {"verdict": interval_verdict(row["low"], row["high"])}
