"""The record of a cell, its numbers and text, as ``metrics.json`` stores it."""

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from pmbnn.core.display import Summarised
from pmbnn.core.spec import added
from pmbnn.experiment.cells import Cell, renamed_settings, stored_cell
from pmbnn.models.hyperpriors import Fixed, Hyperprior, Match

RECORD = "metrics.json"
"""Name of the file of a cell's record."""

FORMAT = 3
"""Version of a record; folders with a record of another one are rejected."""

Fitted = Literal["converged", "not_converged", "undecided", "improper", "ensemble"]

Failed = Literal["diverged", "error", "out_of_memory"]
"""Statuses of cells without a fit."""

Status = Literal[Fitted, Failed]

DIGEST = "sha256"
"""Key of the digest of a record's own content."""

FAILED: tuple[str, ...] = get_args(Failed)

HEADLINES = ("accuracy", "rmse", "nll")
"""Results that one line of text has."""

SHOWN_RESULTS = 12
"""Numbers of a record that its table in a notebook has."""

MATCHED = re.compile(r"prior_scale_(\d+)")
"""Names of results that are matched scales of layers."""

Number = float | int | None
"""Numbers that are not finite are written as null."""


class OtherFormatError(ValueError):
    """A record of another version of the format; the message says which, after "written"."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Restart(_Part):
    """One restart: its verdict, its ELBO in nats, and its weight in the cell's predictions."""

    status: Status
    reason: str
    elbo: Number
    weight: float


class LearningRateSearch(_Part):
    """Candidate learning rates, the mean final ELBO of their short fits, and the one chosen."""

    candidates: tuple[float, ...]
    elbo: tuple[Number, ...]
    chosen: float


class ScaleSelection(_Part):
    """Held-out scores, or evidence, by which a cell chose its scale and restart.

    Attributes
    ----------
    scales
        Candidate scales, ``(candidate,)``; null where there is nothing to tune.
    nll
        Negative log-probability of the held-out rows, nats an observation, of targets in original
        units, ``(candidate, restart)``; null where a fit diverged or was not scored, and as a
        whole where the evidence chose.
    restart
        The restart that stands for each candidate, ``(candidate,)``.
    candidate
        The candidate chosen.
    evidence
        Log evidence of all training rows by Laplace's approximation, nats, of targets as they were
        fitted, ``(candidate, restart)``; null where a fit diverged, and as a whole where held-out
        rows chose.
    """

    scales: tuple[Number, ...]
    nll: tuple[tuple[Number, ...], ...] | None
    restart: tuple[int, ...]
    candidate: int
    evidence: tuple[tuple[Number, ...], ...] | None = None


class Sampling(_Part):
    """Chains of a cell: their number, draws of each, R-hat in function space, what was tuned.

    Attributes
    ----------
    chains, draws
        Number of chains, and draws of each until they agreed.
    rhat_percentile, rhat_largest
        R-hat that 95 % of the compared functions are below, and that of the worst; null where
        too many chains were broken.
    tuned
        What the chains were tuned to, by name.
    """

    chains: int
    draws: int
    rhat_percentile: Number
    rhat_largest: Number
    tuned: dict[str, Number]


class StoredFile(_Part):
    """Size in bytes and SHA-256 in hexadecimal of one of a cell's data files."""

    size: int
    sha256: str

    def holds(self, content: bytes) -> bool:
        """Whether these are the bytes of the file."""
        return len(content) == self.size and hashlib.sha256(content).hexdigest() == self.sha256


class StoredPlugin(_Part):
    """Source of user-defined parts of a cell.

    Attributes
    ----------
    name
        The file as the experiment file writes it; or the module that was imported.
    sha256
        SHA-256 of the source, in hexadecimal. The results folder keeps a file as
        ``plugins/<sha256>.py``.
    sections
        Sections of the cell's settings that are made of it, and ``metric`` where a metric is.
    """

    name: str
    sha256: str
    sections: tuple[str, ...]


class CellRecord(Summarised, _Part):
    """Stored result of a cell, frozen; `model_copy` with an update gives a changed one.

    Attributes
    ----------
    format
        Version of the format it is stored in.
    sweep, name, identity, fingerprint
        Its sweep, the name of its folder, and digests of everything that decides its numbers
        and of its data.
    encoding
        Digest of names and units of its data (`Dataset.encoding`); empty where it is not known.
    status, reason
        The verdict on its fit, and the reason for it.
    settings
        Its specifications by section, as in an experiment file.
    plugins
        Sources of its user-defined parts.
    predictive
        Kind of prediction of its likelihood; None if there is no fit.
    results
        Numbers by name; empty if there is no fit.
    best
        The restart of highest ELBO (of best held-out score under an improper prior).
    restarts, selection, learning_rate_search, kl_forms
        Verdicts on its fits, the scale and learning rate chosen, and forms of the KL term.
    sampling
        Its chains, where it was sampled.
    images, diagnostics
        Numbers on held-out and out-of-distribution images, and of the fit's snapshots.
    device, width
        Kind of device it was fitted on; and, of another than a processor, how many replicas its
        program held, which decides last digits.
    machine
        Kind of machine it was fitted on, where a cluster's was of another kind than the one that
        ran the experiment.
    source, overlap
        Where its data came from, and how far those of its data seeds are the same rows
        (`Dataset.overlap`).
    seconds
        Wall-clock time it took.
    traceback
        Of an exception that ended it.
    files
        Its data files, whose sizes and digests must hold for the cell to count as finished.
    """

    format: int = FORMAT
    sweep: str
    name: str
    identity: str = ""
    fingerprint: str = ""
    encoding: str = added("")
    status: Status
    reason: str = ""
    settings: dict[str, dict[str, Any]]
    plugins: tuple[StoredPlugin, ...] = ()
    predictive: str | None = None
    results: dict[str, Number] = Field(default_factory=dict)
    best: int | None = None
    restarts: tuple[Restart, ...] = ()
    selection: ScaleSelection | None = None
    sampling: Sampling | None = None
    learning_rate_search: LearningRateSearch | None = None
    kl_forms: dict[str, str] = Field(default_factory=dict)
    images: dict[str, Any] | None = None
    diagnostics: dict[str, Any] | None = None
    device: str = "cpu"
    width: int | None = None
    machine: str | None = None
    source: str | None = None
    overlap: float = 0.0
    seconds: float = 0.0
    traceback: str | None = None
    files: dict[str, StoredFile] = Field(default_factory=dict)

    _renamed = field_validator("settings")(renamed_settings)

    @field_validator("overlap", mode="before")
    @classmethod
    def _infinite(cls, value: object) -> object:
        # Files had null in the place of infinities before they had text.
        return math.inf if value is None else value

    @field_validator("images", "diagnostics", mode="before")
    @classmethod
    def _numbers(cls, value: object) -> object:
        # Fields that are typed as numbers take the words of infinities themselves.
        return _without_words(value)

    def _summary(self) -> dict[str, object]:
        verdict = f"{self.status} ({self.reason})" if self.reason else self.status
        kinds = {n: s.kind for n, s in self.cell.settings.items() if hasattr(s, "kind")}
        numbers = dict(list(self.results.items())[:SHOWN_RESULTS])
        return {"name": self.name, "status": verdict} | kinds | numbers

    def __repr__(self) -> str:
        # One line of many: results hold hundreds of cells.
        numbers = [
            f"{k} {v:.4g}" for k, v in self.results.items() if k in HEADLINES and v is not None
        ]
        return f"{type(self).__name__}({', '.join([self.name, self.status, *numbers])})"

    def __str__(self) -> str:
        return repr(self)

    @cached_property
    def cell(self) -> Cell:
        """The cell, as far as its classes are available here: no plugin is run."""
        return stored_cell(self.sweep, self.settings, self.sources)

    @property
    def sources(self) -> dict[str, frozenset[str]]:
        """SHA-256 of the plugins of each section that is made of some."""
        sections = {section for plugin in self.plugins for section in plugin.sections}
        return {
            section: frozenset(p.sha256 for p in self.plugins if section in p.sections)
            for section in sections
        }

    def __copy__(self) -> "CellRecord":
        copied = super().__copy__()
        copied.__dict__.pop("cell", None)  # `model_copy` may change what it is made of
        return copied

    def __getstate__(self) -> dict[Any, Any]:
        # Without the cell: another process may not have the classes of its plugins.
        return super(CellRecord, copy(self)).__getstate__()

    @property
    def chosen_scale(self) -> float | None:
        """Scale that was chosen for the cell, if it had to be chosen and is known."""
        scale = self.cell.scale
        return None if isinstance(scale, float | int | None) else self.results.get("scale")

    @property
    def matched_scales(self) -> dict[int, float]:
        """Scales that were matched to a Gaussian process, by layer; none if there are none."""
        names = (MATCHED.fullmatch(name) for name in self.results)
        return {int(name[1]): self.results[name[0]] for name in names if name is not None}

    def fitted_hyperprior(self, hyperprior: Hyperprior) -> Hyperprior:
        """Hyperprior that the cell was fitted with, with the scales that were chosen or matched.

        Parameters
        ----------
        hyperprior
            That of the cell's settings, of the class that its plugin registered.
        """
        if not isinstance(hyperprior, Fixed) or isinstance(hyperprior.scale, tuple):
            return hyperprior.candidates[0]
        if isinstance(hyperprior.scale, Match):
            scales = self.matched_scales
            return Fixed(scale=tuple(scales[i] for i in range(1, len(scales) + 1)))
        return Fixed(scale=self.results["scale"])

    @property
    def failed(self) -> bool:
        """Whether there is no fit to predict with."""
        return self.status in FAILED

    def to_json(self) -> str:
        """Text of ``metrics.json``, which ends in a digest of everything before it."""
        content = finite(_with_words(self.model_dump(mode="python")))
        return json.dumps(content | {DIGEST: _digest(content)}, indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "CellRecord":
        """The record that a text holds.

        Raises
        ------
        OtherFormatError
            If it was written by another version of this package.
        ValueError
            If it is no record, or has changed since it was written.
        """
        content = json.loads(text)
        if not isinstance(content, dict):
            raise ValueError("it holds no mapping")
        digest = content.pop(DIGEST, None)
        if digest is None and "format" not in content:
            raise OtherFormatError(f"by a version before format {FORMAT}")
        if digest != _digest(content):
            raise ValueError("it has changed since it was written")
        if content["format"] != FORMAT:
            raise OtherFormatError(f"in format {content['format']}, this version reads {FORMAT}")
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            raise ValueError(f"`{place}`: {first['msg']}") from None


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def finite(value: Any) -> Any:
    """The same content with null in the place of numbers that are not finite."""
    return _mapped(lambda v: None if isinstance(v, float) and not math.isfinite(v) else v, value)


INFINITIES = {"Infinity": math.inf, "-Infinity": -math.inf}
"""Words of numbers that JSON has none for. An NLL is infinite where a target had no probability at
all: as null it would be missing, and a mean over data seeds would leave it out."""


def _with_words(value: Any) -> Any:
    """The same content with words in the place of infinities."""
    words = {number: word for word, number in INFINITIES.items()}
    return _mapped(lambda v: words.get(v, v) if isinstance(v, float) else v, value)


def _without_words(value: Any) -> Any:
    """The same content with infinities in the place of their words."""
    return _mapped(lambda v: INFINITIES.get(v, v) if isinstance(v, str) else v, value)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """The same content with every value of its mappings and lists changed."""
    if isinstance(value, Mapping):
        return {k: _mapped(change, v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_mapped(change, v) for v in value]
    return change(value)


# Caveats of cells: fits that did not converge, choices at an end of their grid
#
# There may be a better scale, or learning rate, beyond one that is at an end of its candidates: a
# comparison with it is then one with the grid, not with the best.


NOT_CONVERGED = ("not_converged", "undecided")
"""Statuses of fits whose ELBO still rose, and of chains that disagree."""

AT_GRID_END = "at an end of the grid"


LEAST_WEIGHT = 0.01
"""A restart with less weight in a cell's predictions does not decide what they are."""


def has_converged(record: CellRecord) -> bool:
    """Whether a cell's fit, or its chains, have converged as far as was tested.

    The status of a cell is that of its best restart; where it predicts with a mixture, the others
    count as well.
    """
    used = [restart.status for restart in record.restarts if restart.weight >= LEAST_WEIGHT]
    return not any(status in NOT_CONVERGED for status in (record.status, *used))


def is_unrepeated(records: Iterable[CellRecord]) -> bool:
    """Whether these cells are one ensemble on each data seed.

    Members depend on the modes that were found. Another ensemble shows by how much, and a verdict
    is about the procedure, not about one ensemble.
    """
    seeds = {r.cell.inference.seed for r in records if r.cell.is_ensemble}
    return len(seeds) == 1


def scale_at_grid_end(record: CellRecord) -> bool | None:
    """Whether a tuned scale is the smallest or largest candidate; None if none was tuned."""
    return _at_end(record.selection)


def learning_rate_at_grid_end(record: CellRecord) -> bool | None:
    """Whether a searched learning rate is the lowest or highest candidate; None of a given one."""
    return _at_end(record.learning_rate_search)


def choices_at_end(record: CellRecord) -> list[str]:
    """Names of choices of a cell that are at an end of their candidates."""
    choices = {
        "scale": scale_at_grid_end(record),
        "learning rate": learning_rate_at_grid_end(record),
    }
    return [f"{what} {AT_GRID_END}" for what, at_end in choices.items() if at_end]


def _at_end(choice: ScaleSelection | LearningRateSearch | None) -> bool | None:
    if choice is None:
        return None
    if isinstance(choice, ScaleSelection):
        candidates, chosen = choice.scales, choice.scales[choice.candidate]
    else:
        candidates, chosen = choice.candidates, choice.chosen
    # One candidate, or none with a scale, is no choice.
    distinct = {candidate for candidate in candidates if candidate is not None}
    return chosen in (min(distinct), max(distinct)) if len(distinct) > 1 else None


class Counts(NamedTuple):
    """Numbers of cells.

    Attributes
    ----------
    fitted
        Those with a fit.
    not_converged
        Of these, fits whose ELBO still rose and chains that disagree.
    improper
        Of these, under a prior without a normalised density, whose ELBO has no maximum.
    scales, scales_at_end
        Of these, those whose scale was tuned, and those where it is at an end of its grid.
    rates, rates_at_end
        The same of learning rates.
    """

    fitted: int
    not_converged: int
    improper: int
    scales: int
    scales_at_end: int
    rates: int
    rates_at_end: int

    @property
    def converged(self) -> int:
        """Fits whose ELBO no longer rose and chains that agree, of a posterior that is proper."""
        return self.fitted - self.not_converged - self.improper

    @property
    def columns(self) -> dict[str, int]:
        """Counts as columns of a table; those of choices where something was tuned."""
        at_end = {
            f"{what.replace(' ', '_')}_at_grid_end": number
            for what, (number, total) in self._choices.items()
            if total
        }
        return {"not_converged": self.not_converged} | at_end

    @property
    def words(self) -> list[str]:
        """Caveats: ``2 of 5 not converged``; empty without any."""
        return [caveat for caveats in self._caveats.values() for caveat in caveats]

    @property
    def marked_words(self) -> list[str]:
        """Caveats, each with the sign that marks it in figures."""
        marked = self._caveats.items()
        return [f"{sign} {', '.join(caveats)}" for sign, caveats in marked if caveats]

    @property
    def _caveats(self) -> dict[str, list[str]]:
        """Caveats by the sign that marks them."""
        number = self.not_converged
        at_end = [
            f"{what} {AT_GRID_END} in {number} of {total}"
            for what, (number, total) in self._choices.items()
            if number
        ]
        return {"†": [f"{number} of {self.fitted} not converged"] * bool(number), "‡": at_end}

    @property
    def _choices(self) -> dict[str, tuple[int, int]]:
        """Numbers of choices at an end of their grid, and of all, by what was chosen."""
        return {
            "scale": (self.scales_at_end, self.scales),
            "learning rate": (self.rates_at_end, self.rates),
        }


def count(records: Iterable[CellRecord]) -> Counts:
    """Counts over the cells with results."""
    fitted = [record for record in records if record.results]
    scales = [s for r in fitted if (s := scale_at_grid_end(r)) is not None]
    rates = [s for r in fitted if (s := learning_rate_at_grid_end(r)) is not None]
    return Counts(
        fitted=len(fitted),
        not_converged=sum(not has_converged(record) for record in fitted),
        improper=sum(record.status == "improper" for record in fitted),
        scales=len(scales),
        scales_at_end=sum(scales),
        rates=len(rates),
        rates_at_end=sum(rates),
    )
