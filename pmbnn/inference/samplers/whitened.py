"""Chains of a model that is not one of this package, in coordinates of unit scales.

Modes are searched from several points, and the curvature at the best one gives the first
coordinates. Chains that start about all modes that count draw in them, and where the spread of
these draws is another, they give better coordinates. The chains of the result start anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np

from pmbnn.core.stages import stage
from pmbnn.inference.coordinates import (
    LARGEST_MATRIX,
    Coordinates,
    Landscape,
    Mode,
    find_mode,
    largest_ratio,
)
from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.samplers.chains import Samples
from pmbnn.inference.samplers.run import Functions, Walk, build_sampler, sample_posterior
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.inference.unsupported import explained
from pmbnn.inference.xla.compile import precision, shared

ENGINES = ("mclmc", "mams", "nuts")
"""Samplers that move in such coordinates: those of SMC come from the prior."""

SEARCHES = 8
"""Number of points from which modes are searched."""

LEAST_EVIDENCE = 10.0
"""Modes whose mass is smaller than that of the best by more nats are no starts."""

APART = 1.0
"""Distance between two modes, in the coordinates of the best, beyond which they are two."""

ATTEMPTS = 4
"""Number of times at most that chains start, each time in coordinates by the draws before."""

WELL_SCALED, NEARLY = 2.0, 16.0
"""Factors by which variances of draws along any direction may differ from one in good coordinates;
and in those whose draws give coordinates that are taken without another look."""


FARTHEST = 1e100
"""Draws beyond have no scale: their posterior is improper, and squares would overflow."""


@dataclass(frozen=True, eq=False)
class WhitenedDensity(LogDensity):
    """Log-density of coordinates z of the flat vector; `whitened` makes one.

    It is the density of the vector, without the determinant of the coordinates.

    Attributes
    ----------
    coordinates
        Where the vector lies at z; they are data of the compiled functions.
    """

    coordinates: Coordinates

    def prepare(self, data: Mapping[str, np.ndarray]) -> tuple:
        """Arrays that the density needs: the coordinates, and those of the data."""
        arrays = (jnp.asarray(array, self.dtype) for array in self.coordinates)
        return *arrays, *super().prepare(data)


def whitened(density: LogDensity, coordinates: Coordinates) -> WhitenedDensity:
    """A log-density on coordinates of its vector."""

    def build():
        n = len(coordinates)

        def evaluate(z, *prepared):
            vector = Coordinates(*prepared[:n]).vector(z)
            return density.evaluate(vector, *prepared[n:])

        return evaluate

    fields = {name: getattr(density, name) for name in LogDensity.__dataclass_fields__}
    fields["evaluate"] = shared(("whitened", density.evaluate), build)
    return WhitenedDensity(**fields, coordinates=coordinates)


def sample_whitened(
    density: LogDensity,
    settings: Sampling,
    data: Mapping[str, np.ndarray],
    functions: Functions,
    start: np.ndarray,
    *,
    identity: str,
) -> Samples:
    """Draws of a posterior by chains that move in coordinates of unit scales.

    Arguments but `start` are those of `sample_posterior`.

    Parameters
    ----------
    start
        A flat vector where the log-density is finite, ``(size,)``: the search of modes starts
        there.
    """
    with precision(density.dtype), explained(density.flat, density.dtype), stage("modes"):
        modes = find_modes(density, density.prepare(data), start)
    coordinates = modes[0].coordinates if modes else Coordinates.unit(start)
    places = np.array([mode.coordinates.centre for mode in modes] or [start])
    around = places[np.arange(settings.chains) % len(places)]
    sampler = build_sampler(whitened(density, coordinates), settings)
    is_last = False
    for attempt in range(ATTEMPTS):
        name = f"{identity}/{attempt}"
        with precision(density.dtype), stage("tune"):
            prepared = sampler.density.prepare(data)
            first = jnp.asarray(coordinates.of_vector(around), density.dtype)
            walk = Walk(*sampler.extend(sampler.start(prepared, name, first), prepared, name))
        if is_last or walk.chains.too_many_broken:
            break
        z = walk.chains.whole.merged.astype(np.float64)
        vectors = coordinates.vector(z)
        if max(np.abs(z).max(), np.abs(vectors).max()) > FARTHEST:
            break
        ratio = largest_ratio(z)
        if ratio <= WELL_SCALED:
            break
        coordinates = Coordinates.of_draws(vectors)
        sampler = replace(sampler, density=replace(sampler.density, coordinates=coordinates))
        is_last = ratio <= NEARLY or attempt == ATTEMPTS - 2
    samples = sample_posterior(
        sampler, data, lambda z: functions(coordinates.vector(z)), identity=name, walk=walk
    )
    chains = replace(samples.chains, values=coordinates.vector(samples.chains.values))
    return replace(samples, chains=chains)


def find_modes(density: LogDensity, prepared: tuple, start: np.ndarray) -> list[Mode]:
    """Modes that count, the best first; none if no search found one.

    Call it within `precision`.
    """
    if density.size > LARGEST_MATRIX:
        return []
    landscape, rng = Landscape.of(density, prepared), np.random.default_rng(0)
    starts = [start, *(start + 2 * rng.standard_normal((SEARCHES - 1, len(start))))]
    found = [find_mode(landscape, point) for point in starts]
    modes: list[Mode] = []
    for mode in sorted(filter(None, found), key=lambda mode: -mode.log_evidence):
        if not modes or (
            mode.log_evidence >= modes[0].log_evidence - LEAST_EVIDENCE
            and all(_distance(modes[0], mode, other) > APART for other in modes)
        ):
            modes.append(mode)
    return modes


def _distance(best: Mode, first: Mode, second: Mode) -> float:
    """Distance between two modes in the coordinates of the best."""
    places = [best.coordinates.of_vector(mode.coordinates.centre) for mode in (first, second)]
    return float(np.linalg.norm(places[0] - places[1]))
