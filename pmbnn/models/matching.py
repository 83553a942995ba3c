"""Scales of a prior matched to a Gaussian process, before any target is seen.

Weights are drawn once, at scale 1; other scales only multiply them. One scale a layer is chosen
so that the network's output has the distribution that the process says: at some training inputs,
and its increments from one of them to another, which tell the lengthscale. Both are compared by
their quantiles between 5 % and 95 %, which heavy-tailed priors have as well. The *distance* is the
root mean square difference, each in units of the standard deviation that the process has there: a
2-Wasserstein distance without the tails. That of a constant zero is 0.86.
Where a network's outputs are normal, as in the limit of many units, it is zero exactly where their
variances and covariances are those of the process.

References
----------
Tran, Rossi, Milios and Filippone (2022), All You Need is a Good Functional Prior for Bayesian Deep
Learning (a 1-Wasserstein distance at random inputs, in place of this one);
Munk and Czado (1998), Nonparametric validation of similar distributions and assessment of goodness
of fit (Wasserstein distances without the tails).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from pmbnn.models.hyperpriors import Fixed, Hyperprior, Match
from pmbnn.models.networks import Network
from pmbnn.models.prior_base import Prior
from pmbnn.models.weights import declare_weights

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.arrays import Rows

INPUTS, INCREMENTS = 40, 120
"""Training inputs at which functions are compared, and pairs of them."""

LARGEST = 200_000
"""Multiply-adds a row of the largest network whose scales are matched, which takes a minute."""

DRAWS, LEAST_DRAWS = 1_000, 100
"""Draws of the weights of a small network, and of the largest. With 1,000, the quantiles between
5 % and 95 % tell a standard deviation to about 3 % at each input, and a scale more precisely."""

AT_ONCE = 1e9
"""Multiply-adds of one evaluation, which decide the number of draws."""

LEVELS = tuple(level / 100 for level in range(5, 100, 5))
"""Levels of the quantiles that are compared."""

FACTORS, STARTS = (1 / 9, 1 / 3, 1.0, 3.0, 9.0), 3
"""Scales of the first and of the last layer that are tried, in units of 1/√fan-in, and number of
the best of them at which the search starts."""

FEW, MANY = 4, 25
"""Steps of the search from each start, and then from the best point."""

REACH = 1e4
"""Factor by which scales may leave their start."""

TOLERANCE = 1e-3
"""Relative step of the logarithms of scales at which the search ends."""

STEP = 0.02
"""Step of the logarithm of a scale for derivatives: draws jump in the order of their quantiles."""


class ScaleMatch(NamedTuple):
    """Scales that were matched to a Gaussian process.

    Attributes
    ----------
    scales
        Scale of each layer.
    before, after
        Distance from the process with scale 1 in every layer, and with these scales.
    """

    scales: tuple[float, ...]
    before: float
    after: float

    @property
    def numbers(self) -> dict[str, float]:
        """All of it, by name."""
        scales = {f"prior_scale_{i}": scale for i, scale in enumerate(self.scales, 1)}
        return {**scales, "match_before": self.before, "match_after": self.after}


def n_layers(network: Network, input_shape: tuple[int, ...]) -> int:
    """Number of layers with weights, that of the outputs included."""
    return len({p.layer for p in network.parameters(input_shape, 1)})


def why_not_scaled(
    hyperprior: Hyperprior, prior: Prior, network: Network, input_shape: tuple[int, ...]
) -> str | None:
    """What ``scale`` must be where scales of layers do not fit a network, or cannot be matched.

    None where they can.
    """
    if not (isinstance(hyperprior, Fixed) and hyperprior.is_per_layer and prior.has_scale):
        return None
    layers = n_layers(network, input_shape)
    if isinstance(hyperprior.scale, tuple):
        given, own = len(hyperprior.scale), f"one for each layer of network `{network.kind}`"
        return None if given == layers else f"must have {layers} scales, {own}, got {given}"
    if not prior.is_scale_family:
        return (
            f"must not be matched with prior `{prior.kind}`, whose weights are not the scale times "
            "those of scale 1, as with a slab"
        )
    size = network.multiply_adds(input_shape, 1)
    if size > LARGEST:
        return (
            f"must not be matched with network `{network.kind}`, which takes {size:,} "
            f"multiply-adds a row: at most {LARGEST:,}"
        )
    return None


def matched(hyperprior: Hyperprior, prior: Prior, network: Network, rows: "Rows") -> Hyperprior:
    """The hyperprior, with numbers in the place of scales that are to be matched."""
    found = match_of(hyperprior, prior, network, rows)
    return hyperprior if found is None else Fixed(scale=found.scales)


def any_scales(
    hyperprior: Hyperprior, network: Network, input_shape: tuple[int, ...]
) -> Hyperprior:
    """The hyperprior, with scale 1 in the place of scales that are to be matched.

    Its model has the graph of the matched one, and nothing is matched.
    """
    if not isinstance(getattr(hyperprior, "scale", None), Match):
        return hyperprior
    return Fixed(scale=(1.0,) * n_layers(network, input_shape))


def match_of(
    hyperprior: Hyperprior, prior: Prior, network: Network, rows: "Rows"
) -> ScaleMatch | None:
    """How scales are matched at the inputs of these rows; None if none are to be matched.

    It depends on the arguments alone: all random numbers have a fixed seed.

    Raises
    ------
    ValueError
        If they cannot be matched.
    """
    import numpy as np

    if not isinstance(getattr(hyperprior, "scale", None), Match):
        return None
    if (rule := why_not_scaled(hyperprior, prior, network, rows.input_shape)) is not None:
        raise ValueError(f"`hyperprior.scale` {rule}.")
    x = np.asarray(some_inputs(rows.x), np.float64)
    return _match_once(hyperprior.scale, prior, network, rows.input_shape, x.shape, x.tobytes())


def some_inputs(x: "np.ndarray", count: int = INPUTS) -> "np.ndarray":
    """Some of the inputs ``(observation, feature)``, at random with a fixed seed."""
    import numpy as np

    chosen = np.random.default_rng(0).permutation(len(x))[:count]
    return x[np.sort(chosen)]


def n_draws(network: Network, input_shape: tuple[int, ...], n_inputs: int = INPUTS) -> int:
    """Number of draws of the weights by which scales are matched at so many inputs."""
    work = network.multiply_adds(input_shape, 1) * n_inputs
    return max(LEAST_DRAWS, min(DRAWS, int(AT_ONCE / work)))


@lru_cache(maxsize=100)  # of a cell and the programs, figures and records of it
def _match_once(
    match: Match,
    prior: Prior,
    network: Network,
    input_shape: tuple[int, ...],
    shape: tuple[int, ...],
    inputs: bytes,
) -> ScaleMatch:
    import numpy as np

    x = np.frombuffer(inputs).reshape(shape)
    draws = n_draws(network, input_shape, len(x))
    functions = ScaledDraws(network, prior, input_shape, draws)
    return match_scales(functions, covariance(match, x), x)


def covariance(match: Match, x: "np.ndarray") -> "np.ndarray":
    """Covariance of the Gaussian process at standardised inputs, ``(observation, observation)``."""
    from sklearn.gaussian_process.kernels import RBF, Matern

    length = match.lengthscale * x.shape[1] ** 0.5
    orders = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}
    order = orders.get(match.kernel)
    kernel = RBF(length) if order is None else Matern(length, nu=order)
    return match.amplitude**2 * kernel(x)


class ScaledDraws:
    """The first output of a network with weights drawn from a prior, for any scales of its layers.

    Weights are drawn once, with a fixed seed, at scale 1, and multiplied by the scales.

    Parameters
    ----------
    draws
        Number of draws of all weights.

    Attributes
    ----------
    start
        Scales that keep the size of what passes through the layers: 1/√fan-in, or 1 where the
        prior divides by it.
    """

    def __init__(
        self, network: Network, prior: Prior, input_shape: tuple[int, ...], draws: int = DRAWS
    ) -> None:
        import numpy as np
        import pymc as pm
        import pytensor

        from pmbnn.models.prior_draws import prior_draws

        self.network, self.prior, self.input_shape = network, prior, input_shape
        self.parameters = network.parameters(input_shape, 1)
        dims = [zip(p.dims, p.shape, strict=True) for p in self.parameters]
        coords = {name: range(length) for pairs in dims for name, length in pairs}
        with pytensor.config.change_flags(floatX="float64"), pm.Model(coords=coords) as model:
            declare_weights(self.parameters, prior, Fixed(), {"prior_scale": np.float64(1.0)})
        self.weights = prior_draws(model, [p.name for p in self.parameters], 0)(draws)
        fan_in = {p.layer: p.fan_in for p in self.parameters if not p.is_bias}
        self.start = np.array([1.0 if prior.fan_in else n**-0.5 for n in fan_in.values()])

    def at(self, x: "np.ndarray") -> "Callable[[Sequence[float]], np.ndarray]":
        """Function of scales, one a layer: outputs at these inputs, ``(draw, observation)``."""
        import numpy as np
        import pytensor
        import pytensor.tensor as pt
        from pytensor.compile.mode import Mode
        from pytensor.graph.replace import vectorize_graph

        single = {
            p.name: pt.tensor(p.name, dtype="float64", shape=p.shape) for p in self.parameters
        }
        inputs = pt.constant(x.astype("float64"))
        output = self.network.forward(inputs, single, self.input_shape)[:, 0]
        every = {
            v: pt.tensor(n, dtype="float64", shape=(None, *v.type.shape)) for n, v in single.items()
        }
        # Interpreted: a compiler would take longer, and processors would differ in more digits.
        with pytensor.config.change_flags(cxx=""):
            graph = vectorize_graph(output, every)
            outputs = pytensor.function([*every.values()], graph, mode=Mode("py", None))

        def scaled(scales: Sequence[float]) -> np.ndarray:
            with np.errstate(all="ignore"):  # heavy tails may leave the range of numbers
                return outputs(**self._scaled(scales))

        return scaled

    def _scaled(self, scales: "Sequence[float]") -> "dict[str, np.ndarray]":
        """Weights and biases with these scales."""
        has_own = self.prior.bias_scale is not None
        return {
            p.name: self.weights[p.name] * (1.0 if has_own and p.is_bias else scales[p.layer - 1])
            for p in self.parameters
        }


def match_scales(functions: ScaledDraws, process: "np.ndarray", x: "np.ndarray") -> ScaleMatch:
    """Scales at which functions of a network have the distribution of a Gaussian process.

    The squared distance is minimised over the logarithms of the scales, by Gauss-Newton steps in a
    trust region.

    Parameters
    ----------
    process
        Covariance of the process at the inputs, ``(observation, observation)``. Its mean is zero.
    x
        Inputs, ``(observation, feature)``.

    Raises
    ------
    ValueError
        If functions drawn from the prior are not finite.
    """
    import numpy as np
    from scipy.optimize import least_squares

    outputs, compare = functions.at(x), Comparison(process)

    @lru_cache(maxsize=1)  # slopes are taken where residuals just were
    def at(*logs: float) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return compare.residuals(outputs(np.exp(logs)))

    def slopes(logs: np.ndarray) -> np.ndarray:
        here = at(*logs)
        return np.stack([at(*(logs + STEP * e)) - here for e in np.eye(len(logs))], axis=1) / STEP

    before = np.linalg.norm(at(*np.zeros(len(functions.start))))
    if not np.isfinite(before):
        raise ValueError(
            f"scales cannot be matched: functions drawn from prior `{functions.prior.kind}` are "
            "not finite."
        )
    middle, reach = np.log(functions.start), np.log(REACH)

    def search(start: np.ndarray, steps: int):
        bounds = middle - reach, middle + reach
        tolerances = {"xtol": TOLERANCE, "ftol": TOLERANCE, "max_nfev": steps}
        return least_squares(lambda logs: at(*logs), start, slopes, bounds, **tolerances)

    # There are several local minima, which differ in the first and the last layer.
    ends = np.eye(len(middle))[[0, -1]]
    grid = [middle + np.log(factors) @ ends for factors in product(FACTORS, repeat=2)]
    nearest = sorted(grid, key=lambda logs: np.linalg.norm(at(*logs)))[:STARTS]
    short = [search(start, FEW) for start in nearest]
    best = search(min(short, key=lambda found: found.cost).x, MANY)
    scales = tuple(float(scale) for scale in np.exp(best.x))
    return ScaleMatch(scales, float(before), float(np.linalg.norm(best.fun)))


class Comparison:
    """Quantiles of functions at some inputs, and of their increments, and those of a process.

    Parameters
    ----------
    process
        Covariance of the process at the inputs, ``(observation, observation)``.
    """

    def __init__(self, process: "np.ndarray") -> None:
        import numpy as np
        from scipy.stats import norm

        n, variances = len(process), np.diag(process)
        first, second = np.triu_indices(n, 1)
        increments = variances[first] + variances[second] - 2 * process[first, second]
        # Equal inputs have no increment to compare.
        differ = np.flatnonzero(increments > 1e-9 * variances.max())
        pairs = np.random.default_rng(0).permutation(differ)[:INCREMENTS]
        self.first, self.second = first[pairs], second[pairs]
        self.sds = [np.sqrt(variances), np.sqrt(increments[pairs])]
        self.quantiles = norm.ppf(LEVELS)[:, None]

    def residuals(self, outputs: "np.ndarray") -> "np.ndarray":
        """Differences of all quantiles, whose Euclidean norm is the distance.

        Parameters
        ----------
        outputs
            Functions at the inputs, ``(draw, observation)``.
        """
        import numpy as np

        values = [outputs, outputs[:, self.first] - outputs[:, self.second]]
        parts = []
        for drawn, sd in zip(values, self.sds, strict=True):
            if not sd.size:
                continue
            difference = np.quantile(drawn / sd, LEVELS, axis=0) - self.quantiles
            parts.append(difference.ravel() / np.sqrt(difference.size))
        return np.concatenate(parts) / np.sqrt(len(parts))

    def distance(self, outputs: "np.ndarray") -> float:
        """Distance of functions from the process."""
        import numpy as np

        return float(np.linalg.norm(self.residuals(outputs)))
