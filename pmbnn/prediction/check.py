"""Distance of an approximation from the posterior, by a reference."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.core.display import Summarised
from pmbnn.core.machine import running_on
from pmbnn.inference.batches import model_values
from pmbnn.inference.result import derive_keys
from pmbnn.inference.samplers.chains import Convergence
from pmbnn.models.build import likelihood_of
from pmbnn.prediction.api import sample
from pmbnn.prediction.chain_errors import (
    Distance,
    Verdict,
    distance_verdict,
    floor_of,
    moments,
    standard_error,
    total_variation,
)
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.draws import KeptDraws, unconstrained_draws
from pmbnn.prediction.posterior import Posterior, source_of_draws
from pmbnn.prediction.posterior_file import (
    ABSOLUTE,
    CHECKED,
    RELATIVE,
    log_density_terms,
    variables_of,
)
from pmbnn.prediction.predictor import Predictor, compared_functions

BLOCKS, DRAWS_A_BLOCK = 8, 500
"""Independent blocks of draws of an approximation, for its Monte-Carlo error."""

FEWEST_REPEATS = 8
"""Blocks of a reference's draws for its error; chains are cut where there are fewer."""

FEWEST_DRAWS = 100
"""Draws that a reference must have."""


@dataclass(frozen=True, repr=False)
class Agreement(Summarised):
    """Distance of an approximation from a reference; its text is one sentence.

    Attributes
    ----------
    of
        What was compared: ``total variation``, half the sum of the absolute differences of class
        probabilities, a mean over inputs. Or, of all means and standard deviations the one that is
        furthest off: ``mean of NAME``, whose distance is in standard deviations of the reference,
        or ``log sd of NAME``, the logarithm of the ratio of standard deviations.
    distance, error
        Between approximation and reference, and its Monte-Carlo standard error.
    floor
        The same distance between independent repeats: random halves of the reference.
    verdict
        ``agrees``, where the distance is at most one and a half times the floor; ``differs``, where
        it is more than that by two standard errors; else, and where the reference has not
        converged, ``undecided``.
    reference
        Status of the reference, and a few words on it.
    direction
        Description of the difference: ``the approximation's sd of b is 0.5 times the
        posterior's``.
    """

    of: str
    distance: float
    error: float
    floor: float
    verdict: Verdict
    reference: str
    direction: str = ""

    def __repr__(self) -> str:
        # One significant digit of the error.
        digits = max(0, -int(np.floor(np.log10(self.error)))) if self.error > 0 else 3
        distance, error, floor = (
            f"{v:.{digits}f}" for v in (self.distance, self.error, self.floor)
        )
        start = f"{self.of} {distance} ± {error} from the posterior (floor {floor})"
        if self.verdict == "agrees":
            return f"{start}: no further than repeats of the reference are from each other."
        if self.verdict == "differs":
            side = f"; {self.direction}" if self.direction else ""
            return f"{start}: {self.distance / self.floor:.1f} times as far as repeats are{side}."
        return f"{start}: undecided, with a reference that is {self.reference}."


def check(
    approx: Posterior,
    reference: Posterior | xr.DataTree | None = None,
    x: np.ndarray | None = None,
    progress: bool = True,
) -> Agreement:
    """Distance of an approximation from the posterior, with its error, in one sentence.

    Classifiers of this package are compared by the total variation between class probabilities at
    inputs, its regressions by means and standard deviations of the likelihood's parameters there,
    and any other model by those of its free variables.

    Parameters
    ----------
    approx
        From `fit`.
    reference
        From `sample`, or draws of the same model by another sampler, as ``pm.sample`` gives them;
        sampled here unless given.
    x
        Inputs ``(observation, feature)`` in their own units; the training inputs unless given.
    progress
        Whether to show the progress of a reference that is sampled here.

    Raises
    ------
    TypeError
        If the approximation or the reference is something else.
    ValueError
        If a reference is the posterior of another model or of other data, or has other variables,
        too few draws or broken chains; if inputs are given that the model does not take; if data of
        the model were changed since the fit.

    References
    ----------
    Izmailov et al. (2021), What Are Bayesian Neural Network Posteriors Really Like?, section 4
    (total variation between predictive distributions).

    Examples
    --------
    >>> pb.check(approx)  # doctest: +SKIP
    log sd of b 0.69 ± 0.01 from the posterior (floor 0.02): 34.5 times as far as repeats are; the
    approximation's sd of b is 0.5 times the posterior's.
    """
    if not isinstance(approx, Posterior):
        raise TypeError(f"`approx` must be a Posterior, got {type(approx).__name__}.")
    if approx.samples is not None:
        raise ValueError(f"`approx` must be a fitted approximation, got {approx}.")
    approx.check_data("check")
    with running_on(approx.device):
        if reference is None:
            reference = sample(approx.model, progress=progress)
        if isinstance(reference, Posterior):
            drawn = _draws_of_posterior(reference)
            _check_same_model(approx, reference)
        elif isinstance(reference, xr.DataTree):
            drawn = _draws_of_tree(approx.model, reference)
        else:
            name = type(reference).__name__
            raise TypeError(f"`reference` must be a Posterior or a DataTree, got {name}.")
        ours, theirs, distance = _blocks(approx, drawn, x)
    result = distance(ours.mean(axis=0), theirs.mean(axis=0))
    error, floor = standard_error(ours, theirs, distance), floor_of(theirs, distance)
    verdict = distance_verdict(result.value, error, floor, drawn.status)
    return Agreement(
        of=result.of,
        distance=result.value,
        error=error,
        floor=floor,
        verdict=verdict,
        reference=f"{drawn.status} ({drawn.reason})",
        direction=result.direction,
    )


# The reference


class _Drawn(NamedTuple):
    """Draws of a reference, in repeats of equal length.

    Attributes
    ----------
    named
        Free variables by name, ``(repeat, draw, *shape)``.
    values
        Flat vectors, ``(repeat, draw, size)``; None of a model that is not of this package.
    status, reason
        Verdict on the reference.
    """

    named: dict[str, np.ndarray]
    values: np.ndarray | None
    status: str
    reason: str


def _draws_of_posterior(reference: Posterior) -> _Drawn:
    if reference.samples is None:
        raise ValueError(f"`reference` must be sampled, got a {reference}.")
    chains = reference.samples.chains
    if chains.broken.any():
        raise ValueError(f"`reference` must have draws of the posterior, but {reference.reason}.")
    if reference.status == "ensemble":
        raise ValueError(f"`reference` must be of the posterior, got an ensemble: {reference}.")
    temperature = getattr(reference.settings, "temperature", 1)
    if temperature != 1:
        raise ValueError(
            f"`reference` must be of the posterior, got one at temperature {temperature:g}."
        )
    drawn = reference.to_datatree()["posterior"]
    named = {v.name: _repeats(drawn[v.name].values) for v in reference.model.free_RVs}
    values = _repeats(chains.values)
    return _Drawn(named, values, reference.status, reference.reason)


def _check_same_model(approx: Posterior, reference: Posterior) -> None:
    """Raise ValueError if a reference is the posterior of another model, or of other data."""
    ours, theirs = approx.model, reference.model
    if ours is theirs:
        return
    rule = "`reference` must be of the model of `approx`, got the posterior of another"
    if variables_of(ours) != variables_of(theirs):
        names = ", ".join(f"`{name}` {tuple(shape)}" for name, shape in variables_of(theirs))
        raise ValueError(f"{rule}, with the free variables {names}.")
    values = reference.samples.chains.merged[:CHECKED]
    expected, got = (log_density_terms(model, values) for model in (ours, theirs))
    for name in sorted(expected.keys() | got.keys()):
        terms = (of.get(name, np.nan) for of in (expected, got))
        if not np.allclose(*terms, RELATIVE, ABSOLUTE, equal_nan=True):
            what = f"likelihood or data of `{name}`" if name else "prior or potentials"
            raise ValueError(f"{rule}: {what} differ.")


def _draws_of_tree(model: pm.Model, tree: xr.DataTree) -> _Drawn:
    """Draws of another sampler, with a verdict by the same R-hat."""
    arrays = _free_draws(model, tree)
    if likelihood_of(model) is None:
        values, compared = None, np.concatenate([_flat(a) for a in arrays.values()], axis=-1)
    else:
        values = unconstrained_draws(model, arrays)
        compared = compared_functions(model)(values)
        values = _repeats(values)
    convergence = Convergence.of(_cut(compared, 2) if len(compared) < 2 else compared)
    status = "converged" if convergence.passed else "undecided"
    return _Drawn({n: _repeats(a) for n, a in arrays.items()}, values, status, str(convergence))


def _free_draws(model: pm.Model, tree: xr.DataTree) -> dict[str, np.ndarray]:
    """Draws of the free variables by name, ``(chain, draw, *shape)``."""
    posterior = tree["posterior"].dataset if "posterior" in tree.children else xr.Dataset()
    arrays = {}
    for variable in model.free_RVs:
        name, shape = variable.name, tuple(int(n) for n in variable.shape.eval())
        if name not in posterior:
            raise ValueError(
                "`reference` must have every free variable of the model in its group `posterior`: "
                f"`{name}` is missing."
            )
        arrays[name] = array = posterior[name].transpose("chain", "draw", ...).values
        if array.shape[2:] != shape:
            raise ValueError(
                f"`reference` must have `{name}` in the shape {shape}, got {array.shape[2:]}."
            )
    draws = posterior.sizes["chain"] * posterior.sizes["draw"]
    if draws < FEWEST_DRAWS:
        raise ValueError(f"`reference` must have at least {FEWEST_DRAWS} draws, got {draws}.")
    return arrays


def _repeats(draws: np.ndarray) -> np.ndarray:
    """Chains, each cut where there are too few."""
    return _cut(draws, -(-FEWEST_REPEATS // len(draws)))


def _cut(draws: np.ndarray, parts: int) -> np.ndarray:
    """Each chain as consecutive ones, without the first draws that do not fill them."""
    length = draws.shape[1] // parts
    return draws[:, draws.shape[1] - parts * length :].reshape(-1, length, *draws.shape[2:])


def _flat(draws: np.ndarray) -> np.ndarray:
    """Scalars on one axis, ``(chain, draw, scalar)``."""
    return draws.reshape(*draws.shape[:2], -1)


# What is compared: means over blocks of draws


def _blocks(approx: Posterior, drawn: _Drawn, x) -> tuple[np.ndarray, np.ndarray, Distance]:
    """Means over blocks of draws of approximation and reference, and their distance."""
    likelihood = likelihood_of(approx.model)
    if likelihood is None:
        if x is not None:
            raise ValueError("`x` must be left out for a model that is not of this package.")
        draws = approx.sample(BLOCKS * DRAWS_A_BLOCK)
        blocks = {
            n: draws[n].reshape(BLOCKS, DRAWS_A_BLOCK, *draws[n].shape[1:]) for n in drawn.named
        }
        names, theirs = _scalars(drawn.named)
        return moments(names, _scalars(blocks)[1], theirs)
    data = model_values(approx.model)
    x = data["x"] if x is None else approx.standardised(x)
    predictor = approx.predictor
    used = {i: weight for i, weight in approx.weights.items() if weight > 0}
    # Blocks of a guide have PRNG keys of their own.
    seed, weights = f"check/{approx.settings.seed}", [*used.values()]
    blocks = [
        [replace(approx.sources[i], draw_key=derive_keys(f"{seed}/{i}/{b}").draws) for i in used]
        for b in range(BLOCKS)
    ]
    mixtures = (
        (blocks, weights, DRAWS_A_BLOCK),
        ([[KeptDraws(values)] for values in drawn.values], [1.0], drawn.values.shape[1]),
    )
    if likelihood.predictive == ClassProbabilities.key:
        ours, theirs = (
            np.array([predictor.predict(s, weights, data, x, n).mean for s in blocks], float)
            for blocks, weights, n in mixtures
        )
        return ours, theirs, total_variation
    (names, ours), (_, theirs) = (
        _scalars(_stacked(predictor, blocks, weights, data, x, n))
        for blocks, weights, n in mixtures
    )
    return moments(names, ours, theirs)


def _stacked(predictor: Predictor, blocks, weights, data, x, draws: int) -> dict[str, np.ndarray]:
    """Parameters of a likelihood of numbers, ``(block, draw, observation)``."""
    mixed = [_mixed(predictor, sources, weights, data, x, draws) for sources in blocks]
    return {name: np.stack([block[name] for block in mixed]) for name in mixed[0]}


def _mixed(predictor: Predictor, sources, weights, data, x, draws: int) -> dict[str, np.ndarray]:
    """The same at draws of a mixture of sources, ``(draw, observation)``."""
    parts = [predictor.single_draws(source, data, x, draws) for source in sources]
    if len(parts) == 1:
        return parts[0]
    numbers = source_of_draws(dict(enumerate(sources)), dict(enumerate(weights)), 0, draws)
    # A point has one draw.
    return {
        name: np.stack([parts[i][name][k % len(parts[i][name])] for k, i in enumerate(numbers)])
        for name in parts[0]
    }


def _scalars(named: Mapping[str, np.ndarray]) -> tuple[list[str], np.ndarray]:
    """Names of all scalars, and their draws, ``(block, draw, scalar)``, double precision."""
    names = [
        f"{name}[{', '.join(map(str, index))}]" if index else name
        for name, array in named.items()
        for index in np.ndindex(array.shape[2:])
    ]
    arrays = [_flat(array).astype(np.float64) for array in named.values()]
    return names, np.concatenate(arrays, axis=-1)
