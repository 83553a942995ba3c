"""The posterior of a stored cell as a prior, for data that come in parts."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import PrivateAttr, model_validator

from pmbnn.core.errors import SettingError
from pmbnn.core.spec import Specification, digests_of
from pmbnn.data.base import DataError, DataSettingError, NamesFiles, current_folders, find
from pmbnn.models.prior_base import Prior

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

    from pmbnn.data.arrays import Rows, Standardisation

RECORD, TRACE = "metrics.json", "trace.nc"
"""Files of a stored cell."""

PARAMETER = re.compile(r"(?:weight|bias)_(\d+)")
"""Names of weights and biases, with the number of their layer."""

EQUAL = 1e-6
"""Largest relative difference of two standardisations that count as one."""

KEPT = 4
"""Cells whose draws a process keeps."""

_READ: "dict[str, CellDraws]" = {}
"""Cells that were read last, by digest."""


class CellPosterior(NamesFiles, Prior):
    """Normal prior of every weight with the moments of a stored cell's posterior draws.

    The stored cell is of the same network, fitted to earlier data. Mean and standard deviation are
    those of the draws of each weight in its ``trace.nc``, of which ``predict.trace_draws`` sets the
    number; correlations between weights are left out. A network of more than 2,000 multiply-adds a
    row stores the draws of its last layer only, and a point, such as that of the guide ``map``, has
    no spread: neither can be used.

    Weights belong to standardised inputs and targets. Each draw is transformed to the
    standardisation of the new rows first, so that it is the same function of inputs in their own
    units. That needs a first layer that is dense.

    There is no scale, and no hyperprior. Learned scales and the noise of the stored cell are not
    taken over.

    Parameters
    ----------
    path
        Folder of the cell, ``results/NAME/cells/CELL``, looked up like files of data.
    sha256
        Digest of what is read of the cell, in hexadecimal; by default that of its present content,
        which is filled in when the setting is read. If the content is another one when a model is
        built, that is an error.
    """

    kind: Literal["cell"] = "cell"
    path: str
    sha256: str | None = None

    has_scale: ClassVar[bool] = False
    is_proper: ClassVar[bool] = True
    is_smooth: ClassVar[bool] = True
    locations: ClassVar[dict[str, Any]] = {"path": True}

    _may_lack: bool = PrivateAttr(default=False)
    """Whether the cell need not be there."""

    @model_validator(mode="before")
    @classmethod
    def _with_digest(cls, settings: Any) -> Any:
        if not isinstance(settings, Mapping):
            return settings
        path = settings.get("path")
        if not isinstance(path, str) or settings.get("sha256") is not None:
            return settings
        try:
            folder = find(path, current_folders(), "prior.path")
            return {**settings, "sha256": _read(folder).sha256}
        except DataSettingError as error:
            raise SettingError("path", error.rule) from error

    @property
    def for_predictions(self) -> "CellPosterior":
        """The same prior, whose densities are not numbers where the cell is no longer there."""
        copy = self.model_copy()
        copy._may_lack = True
        return copy

    def why_not_of(self, network: Specification) -> str | None:
        """What the prior must be if its cell, once it was read, is of another network."""
        stored, given = _READ.get(self.sha256), network.model_dump(mode="json")
        if stored is None:
            return None
        if stored.network == given:
            is_same = digests_of(network) == stored.plugins.get("network", set())
            return (
                None if is_same else "must be a cell of the same network, whose plugin has changed"
            )
        return f"must be a cell of network {given}, got one of {stored.network}"

    def constants(self, rows: "Rows") -> "Mapping[str, np.ndarray]":
        """Means and standard deviations of all weights, for rows of a standardisation."""
        try:
            return self._draws().moments(rows)
        except DataError:
            if self._may_lack:
                return {}
            raise

    def variable(self, name, scale, dims, shared):  # noqa: D102
        import numpy as np
        import pymc as pm

        model = pm.modelcontext(None)
        if self._may_lack and mean_of(name) not in model.named_vars:
            return pm.Normal(name, np.nan, np.nan, dims=dims)
        self._draws().check(name, {dim: model.coords[dim] for dim in dims})
        return pm.Normal(name, model[mean_of(name)], model[sd_of(name)], dims=dims)

    def _draws(self) -> "CellDraws":
        if self.sha256 not in _READ:
            _read(find(self.path, self._folders, "prior.path"))
        if self.sha256 not in _READ:
            rule = "must be as it was when its `sha256` was taken, but the cell has changed since"
            raise DataSettingError("prior.path", f"{rule}, got {self.path!r}")
        return _READ[self.sha256]


def mean_of(name: str) -> str:
    """Name of the data variable with the prior means of a weight."""
    return f"prior_mean_{name}"


def sd_of(name: str) -> str:
    """Name of the data variable with the prior standard deviations of a weight."""
    return f"prior_sd_{name}"


@dataclass(frozen=True, repr=False)
class CellDraws:
    """What is read of a stored cell.

    Attributes
    ----------
    title
        Its folder, for messages.
    draws
        Draws of every weight and bias by name, ``(draw, ...)``, float64.
    labels
        Labels of their dims by name, in the order of the axes.
    inputs, targets
        Its standardisations.
    network
        Settings of its network.
    plugins
        SHA-256 of the plugins of each section of its settings that is made of some.
    """

    title: str
    draws: "Mapping[str, np.ndarray]"
    labels: Mapping[str, Mapping[str, list[str]]]
    inputs: "Standardisation"
    targets: "Standardisation"
    network: Mapping[str, Any]
    plugins: Mapping[str, frozenset[str]]

    @property
    def sha256(self) -> str:
        """Digest of all of it but the folder, in hexadecimal."""
        import numpy as np

        plugins = {section: sorted(digests) for section, digests in self.plugins.items()}
        content = [self.network, plugins, [[n, self.labels[n]] for n in self.draws]]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
        maps = (self.inputs, self.targets)
        for array in (*self.draws.values(), *(a for m in maps for a in (m.mean, m.sd))):
            digest.update(np.asarray(array, np.float64).tobytes())
        return digest.hexdigest()

    def check(self, name: str, coords: Mapping[str, Any]) -> None:
        """Raise DataSettingError unless a weight of a model is one of the cell's."""
        given = {dim: [*map(str, labels)] for dim, labels in coords.items()}
        stored = self.labels.get(name)
        if stored == given:
            return
        if stored is None:
            self._refuse(f"must have draws of `{name}`")
        shapes = [tuple(map(len, labels.values())) for labels in (given, stored)]
        rule = f"must be a cell of the same network: `{name}` has shape {shapes[0]} here"
        if shapes[0] != shapes[1] or [*given] != [*stored]:
            self._refuse(f"{rule}, and {shapes[1]} there")
        dim = next(dim for dim in given if given[dim] != stored[dim])
        self._refuse(f"must have the same {dim} names: {given[dim]} here, {stored[dim]} there")

    def moments(self, rows: "Rows") -> "dict[str, np.ndarray]":
        """Means and standard deviations of weights for the standardisation of some rows."""
        draws = self._transformed(rows)
        means = {mean_of(name): array.mean(axis=0) for name, array in draws.items()}
        return means | {sd_of(name): array.std(axis=0, ddof=1) for name, array in draws.items()}

    def _transformed(self, rows: "Rows") -> "dict[str, np.ndarray]":
        """Draws of the weights that make the same functions of inputs in their own units."""
        features = self.labels.get("weight_1", {}).get("feature", list(rows.features))
        if features != list(rows.features):
            names = f"{[*rows.features]} here, {features} there"
            self._refuse(f"must have the same feature names: {names}")
        inputs, targets = rows.standardisation, rows.target_standardisation
        if inputs is None or targets is None:
            self._refuse("must have rows whose standardisation is known: those of a `Dataset`")
        draws = dict(self.draws)
        last = max(int(PARAMETER.fullmatch(name)[1]) for name in draws)
        if _differ(self.inputs, inputs):
            weight, bias = self._layer(1, 0, "feature", "standardise: none", {"network"}, inputs)
            shift = (inputs.mean - self.inputs.mean) / self.inputs.sd
            draws[bias] = draws[bias] + (draws[weight] * shift[:, None]).sum(axis=1)
            draws[weight] = draws[weight] * (inputs.sd / self.inputs.sd)[:, None]
        if not rows.classes and _differ(self.targets, targets):
            sections = {"network", "likelihood"}
            where = (last, -1, "output", "standardise_target: false", sections, targets)
            weight, bias = self._layer(*where)
            factor = self.targets.sd / targets.sd
            draws[weight] = draws[weight] * factor
            shift = (self.targets.mean - targets.mean) / targets.sd
            draws[bias] = draws[bias] * factor + shift
        return draws

    def _layer(
        self,
        number: int,
        axis: int,
        dim: str,
        remedy: str,
        sections: set[str],
        new: "Standardisation",
    ) -> tuple[str, str]:
        """Names of weight and bias of a layer that can take up another standardisation."""
        weight, bias = f"weight_{number}", f"bias_{number}"
        labels = self.labels.get(weight, {})
        is_dense = len(labels) == 2 and [*labels][axis] == dim and bias in self.draws
        if not is_dense or len(labels[dim]) != len(new.mean) or sections & self.plugins.keys():
            self._refuse(
                "must be a cell whose rows were standardised as these: its "
                f"{'first' if dim == 'feature' else 'last'} layer cannot take up the difference. "
                f"Set `{remedy}` in both experiments"
            )
        return weight, bias

    def _refuse(self, rule: str) -> None:
        raise DataSettingError("prior.path", f"{rule}, got {self.title!r}")


def _differ(first: "Standardisation", second: "Standardisation") -> bool:
    """Whether two standardisations differ by more than rounding, in units of the first."""
    import numpy as np

    # That of targets which are left as they are has one entry for any number of them.
    if first.mean.size != second.mean.size and 1 not in (first.mean.size, second.mean.size):
        return True
    shift, factor = (second.mean - first.mean) / first.sd, second.sd / first.sd - 1
    return bool((np.abs([shift, factor]) > EQUAL).any())


def _read(folder: Path) -> CellDraws:
    """Draws of the cell in a folder, which are kept.

    Raises
    ------
    DataSettingError
        It is no finished cell with draws of all its weights that have a spread, or has changed
        since it was stored.
    """
    import xarray as xr

    from pmbnn.data.arrays import Standardisation, identity_standardisation

    record, trace = _checked_record(folder), folder / TRACE
    with xr.open_dataset(trace, group="posterior", engine="netcdf4") as posterior:
        names = [str(name) for name in posterior.data_vars if PARAMETER.fullmatch(str(name))]
        weights = posterior[names].load()
    with xr.open_dataset(trace, group="constant_data", engine="netcdf4") as group:
        data = group.load()
    targets = identity_standardisation()
    if "target_mean" in data:
        targets = Standardisation(data["target_mean"].values, data["target_sd"].values)
    if "bias_1" not in names and "weight_1" not in names:
        rule = "must be a cell with draws of all its weights: of large networks few are stored"
        raise DataSettingError("prior.path", f"{rule}, got {str(folder)!r}")
    cell = CellDraws(
        title=str(folder),
        draws={name: _spread_draws(weights[name], folder) for name in names},
        labels={
            name: {
                str(dim): [*map(str, weights[name][dim].values)]
                for dim in weights[name].dims
                if dim not in ("chain", "draw")
            }
            for name in names
        },
        inputs=Standardisation(
            data["standardisation_mean"].values, data["standardisation_sd"].values
        ),
        targets=targets,
        network=record["settings"]["network"],
        plugins={
            section: frozenset(p["sha256"] for p in record["plugins"] if section in p["sections"])
            for section in {s for plugin in record["plugins"] for s in plugin["sections"]}
        },
    )
    _READ[cell.sha256] = cell
    for oldest in [*_READ][:-KEPT]:
        del _READ[oldest]
    return cell


def _checked_record(folder: Path) -> Mapping[str, Any]:
    """Record of a stored cell whose trace is whole."""
    got = f"got {str(folder)!r}"
    try:
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        stored, status = record["files"].get(TRACE), record["status"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        rule = f"must be the folder of a finished cell, RESULTS/cells/CELL, with its {RECORD}"
        raise DataSettingError("prior.path", f"{rule}, {got}") from error
    if stored is None:
        rule = f"must be a cell with a fit, not one with status {status}"
        raise DataSettingError("prior.path", f"{rule}, {got}")
    try:
        with (folder / TRACE).open("rb") as file:
            is_whole = hashlib.file_digest(file, "sha256").hexdigest() == stored["sha256"]
    except OSError:
        is_whole = False
    if not is_whole:
        rule = f"must be a whole cell, but {TRACE} is not the file that was stored (`pmbnn verify`)"
        raise DataSettingError("prior.path", f"{rule}, {got}")
    return record


def _spread_draws(variable: "xr.DataArray", folder: Path) -> "np.ndarray":
    """Draws of a weight, ``(draw, ...)``, float64, of all chains one after the other."""
    import numpy as np

    axes = [dim for dim in variable.dims if dim not in ("chain", "draw")]
    array = variable.transpose("chain", "draw", *axes).values.astype(np.float64)
    draws = array.reshape(-1, *array.shape[2:])
    if not np.isfinite(draws).all() or (np.ptp(draws, axis=0) == 0).any():
        rule = (
            f"must be a cell whose draws have a positive, finite spread, as those of "
            f"`{variable.name}` do not: a point, such as that of guide map, has none"
        )
        raise DataSettingError("prior.path", f"{rule}, got {str(folder)!r}")
    return draws
