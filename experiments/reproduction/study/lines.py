"""The function along a line across a gap, as each method estimates it, posterior by posterior.

Methods are the fitted and sampled cells of one posterior, the limit of infinitely wide layers where
it is known, and published moments where the table of published numbers of a results folder names
them and their file is in the local folder of data. The function is the output of the network,
without noise.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from pmbnn.data import DataError
from pmbnn.data.base import local_folder, read_columns
from pmbnn.experiment.published import FILE, PublishedCurve, are_meant, read_published
from pmbnn.models.likelihoods import Normal
from pmbnn.prediction.chain_errors import jackknife_error, means_without_each, moments_about, sd_of
from pmbnn.results.names import distinct, grouped, method_name, posterior_key, settings_row
from pmbnn.results.reading import load_groups, stored_variables, target_standardisation
from pmbnn.results.record import CellRecord
from pmbnn.results.specifications import stored_specifications
from pmbnn.results.store import Results

from .infinite_width import limit_of

LINE, ROWS = "curve_1", ("constant_data", "observed_data")
"""Groups of a trace: predictions along the line, and the rows that were fitted."""

ROUNDING = 1e-6
"""Share of a line's length that published positions may lack at its ends."""

LIMIT, PUBLISHED = "gaussian_process", "published"
"""Methods that are no cell's."""


class CurveEstimate(NamedTuple):
    """The function along a line, as one method estimates it.

    Attributes
    ----------
    method
        Guide or engine of a cell, with what sets it apart from others of the same (``mclmc, thin
        50``), or one of the names above.
    mean, sd
        Of the function, ``(point,)``, in the targets' units.
    error
        Monte-Carlo standard error of ``sd``, where chains give one, ``(point,)``.
    record
        The cell that it is of, if it is of one.
    """

    method: str
    mean: np.ndarray
    sd: np.ndarray
    error: np.ndarray | None = None
    record: CellRecord | None = None


class AlongLine(NamedTuple):
    """One posterior along a line, as every method estimates it.

    Attributes
    ----------
    record
        A cell of that posterior, for its settings.
    position, name, gap
        Where the points are, ``(point,)``; what a position is called; and the gap's.
    rows
        Positions of the training rows, and their targets, ``(2, observation)``.
    estimates
        By each method: fits, samplers, the limit, what was published.
    """

    record: CellRecord
    position: np.ndarray
    name: str
    gap: float
    rows: np.ndarray
    estimates: tuple[CurveEstimate, ...]

    @property
    def reference(self) -> CurveEstimate | None:
        """What the others are compared with: the published moments, else those of a sampler."""
        sampled = [e for e in self.estimates if e.record is not None and e.record.cell.is_sampled]
        sampled.sort(key=lambda e: e.record.status != "converged")
        return next((e for e in self.estimates if e.method == PUBLISHED), next(iter(sampled), None))


def along_lines(results: Results, records: Sequence[CellRecord]) -> list[AlongLine]:
    """Every posterior with a cell that predicts along a line across a gap, in order."""
    densities = (r for r in records if r.results and r.predictive == "density")
    with_line = (
        r for r in densities if "direction" in stored_variables(results, r.name).get(LINE, ())
    )
    posteriors, path = grouped(with_line, posterior_key), results.folder / FILE
    curves = ()
    if posteriors and path.is_file():
        curves = read_published(path.read_text(encoding="utf-8"), FILE).curves
    lines = [_along_line(results, cells, curves) for cells in posteriors.values()]
    return [line for line in lines if line is not None]


def _along_line(
    results: Results, cells: Sequence[CellRecord], curves: Sequence[PublishedCurve]
) -> AlongLine | None:
    """One posterior along its line; None where that crosses no gap."""
    traces = {cell.name: load_groups(results, cell.name, (LINE, *ROWS)) for cell in cells}
    record, trace = cells[0], traces[cells[0].name]
    line, inputs = trace[LINE].dataset, trace["constant_data"].dataset
    if "gap" not in line.attrs:
        return None
    position, direction = line["x"].values, line["direction"].values
    ordered = sorted(cells, key=lambda record: record.cell.is_sampled)
    methods = distinct([record.cell.inference for record in ordered], method_name)
    estimates = []
    for method, cell in zip(methods, ordered, strict=True):
        own = traces[cell.name][LINE].dataset
        moments = own["mean"].values, own["epistemic_sd"].values, _error_of_sd(own)
        estimates.append(CurveEstimate(method, *moments, cell))
    estimates += _limit(results, record, trace, position[:, None] * direction)
    settings = settings_row(record.settings) | {"sweep": record.sweep}
    estimates += [_published(c, position) for c in curves if are_meant(c.where, settings)]
    x = inputs["x"].values * inputs["standardisation_sd"].values
    x = x + inputs["standardisation_mean"].values
    targets = target_standardisation(trace).undo(trace["observed_data"]["y"].values)
    return AlongLine(
        record,
        position,
        name=str(line.attrs["position"]),
        gap=float(line.attrs["gap"]),
        rows=np.stack([x @ direction, targets]),
        estimates=tuple(filter(None, estimates)),
    )


def _error_of_sd(line: xr.Dataset) -> np.ndarray | None:
    """Jackknife over chains of the standard deviation of all their draws, ``(point,)``."""
    if "chain_sd" not in line:
        return None
    mean, sd = line["chain_mean"].values, line["chain_sd"].values
    moments = moments_about(mean.mean(axis=0, dtype=np.float64), mean, sd)
    return jackknife_error([sd_of(left) for left in means_without_each(moments)])


def _limit(
    results: Results, record: CellRecord, trace: xr.DataTree, inputs: np.ndarray
) -> list[CurveEstimate]:
    """Moments of the limiting Gaussian process, given the rows; empty where there is none."""
    sections = ("network", "prior", "hyperprior", "likelihood")
    if any(not set(sections).isdisjoint(plugin.sections) for plugin in record.plugins):
        return []  # it is known of parts of the package alone
    specs = stored_specifications(results.cells / record.name, record, sections)
    process = limit_of(specs["network"], specs["prior"], specs["hyperprior"])
    likelihood = specs["likelihood"]
    if process is None or type(likelihood) is not Normal or not likelihood.is_known:
        return []
    stored, units = trace["constant_data"].dataset, target_standardisation(trace)
    at = (inputs - stored["standardisation_mean"].values) / stored["standardisation_sd"].values
    x, y = stored["x"].values.astype(np.float64), trace["observed_data"]["y"].values
    mean, sd = process.condition(x, y, likelihood.sd, at)
    return [CurveEstimate(LIMIT, units.undo(mean), units.sd * sd)]


def _published(curve: PublishedCurve, position: np.ndarray) -> CurveEstimate | None:
    """Published moments at positions on the line; None where their file is not there.

    Raises
    ------
    DataError
        If it is damaged, or does not reach as far as the line.
    """
    folder = local_folder()
    path = folder and folder / curve.file
    if path is None or not path.is_file():
        return None
    at, mean, variance = read_columns(path, (curve.position, "mean", "variance")).T
    reach = position[[0, -1]] * (1 - ROUNDING)
    if (np.diff(at) <= 0).any() or at[0] > reach[0] or at[-1] < reach[1]:
        span = f"from {position[0]:.3g} or below to {position[-1]:.3g} or above, ascending"
        raise DataError(f"`{path}` must have `{curve.position}` {span}.")
    moments = (np.interp(position, at, values) for values in (mean, np.sqrt(variance)))
    return CurveEstimate(PUBLISHED, *moments)
