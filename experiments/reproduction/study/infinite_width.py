"""What a Bayesian network tends to as its hidden layers widen: a Gaussian process.

It is known in closed form for dense layers of rectified linear units whose weights are normal with
a variance of one over the fan-in, at a fixed scale.

References
----------
Neal (1996), Bayesian Learning for Neural Networks, chapter 2; Lee et al. (2018), Deep Neural
Networks as Gaussian Processes, for several layers; Cho and Saul (2009), Kernel Methods for Deep
Learning, section 2.1 (the arc-cosine kernel of degree 1).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from pmbnn.models.hyperpriors import Fixed, Hyperprior
from pmbnn.models.networks import Dense, Network
from pmbnn.models.prior_base import Prior
from pmbnn.models.priors import Normal


class Moments(NamedTuple):
    """Mean and standard deviation of a function, noise not included, ``(row,)`` each."""

    mean: np.ndarray
    sd: np.ndarray


@dataclass(frozen=True)
class LimitingProcess:
    """Gaussian process with mean zero, of functions of the inputs of a network.

    Attributes
    ----------
    layers
        Hidden layers of rectified linear units.
    weight_scale
        Standard deviation of a weight times the root of its fan-in.
    bias_scale
        That of a bias.
    """

    layers: int
    weight_scale: float
    bias_scale: float

    def covariance(self, x: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Covariances of the function between inputs, ``(row, feature)`` each: ``(row, other)``."""
        features = x.shape[1]
        between = self._affine(x @ other.T / features)
        own, theirs = (self._affine((of**2).mean(axis=1)) for of in (x, other))
        for _ in range(self.layers):
            between = self._affine(rectified_moment(between, own[:, None], theirs))
            own, theirs = self._affine(own / 2), self._affine(theirs / 2)
        return between

    def variance(self, x: np.ndarray) -> np.ndarray:
        """Variances of the function at inputs, ``(row,)``."""
        variance = self._affine((x**2).mean(axis=1))
        for _ in range(self.layers):
            variance = self._affine(variance / 2)
        return variance

    def condition(self, x: np.ndarray, y: np.ndarray, noise: float, at: np.ndarray) -> Moments:
        """Moments of the function given noisy values of it.

        Parameters
        ----------
        x, y
            Inputs ``(observation, feature)`` and what was observed there, ``(observation,)``.
        noise
            Standard deviation of the noise.
        at
            Inputs that the moments are of, ``(row, feature)``.

        References
        ----------
        Rasmussen and Williams (2006), Gaussian Processes for Machine Learning, algorithm 2.1.
        """
        factor = cho_factor(self.covariance(x, x) + noise**2 * np.eye(len(x)))
        across = self.covariance(at, x)
        explained = np.sum(across * cho_solve(factor, across.T).T, axis=1)
        # Rounding may take all of the variance where it is next to none.
        variance = np.maximum(self.variance(at) - explained, 0)
        return Moments(across @ cho_solve(factor, y), np.sqrt(variance))

    def _affine(self, moment: np.ndarray) -> np.ndarray:
        """Second moments after a layer's weights and biases, from those of its inputs."""
        return self.bias_scale**2 + self.weight_scale**2 * moment


def rectified_moment(between: np.ndarray, own: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Mean of max(u, 0) · max(v, 0) of normal u and v with mean zero.

    Parameters
    ----------
    between, own, other
        Covariance of the two and the variance of each; they broadcast.
    """
    size = np.sqrt(own * other)
    cosine = np.clip(between / size, -1, 1)
    angle = np.arccos(cosine)
    return size * (np.sin(angle) + (np.pi - angle) * cosine) / (2 * np.pi)


def limit_of(network: Network, prior: Prior, hyperprior: Hyperprior) -> LimitingProcess | None:
    """The limit of a network as its hidden layers widen; None where none is known here."""
    if not isinstance(network, Dense) or network.activation != "relu" or not network.hidden:
        return None
    # Without the fan-in there is no limit; biases that share it vanish in later layers.
    if type(prior) is not Normal or not prior.fan_in or prior.bias_scale is None:
        return None
    if not isinstance(hyperprior, Fixed) or not isinstance(hyperprior.scale, float):
        return None
    return LimitingProcess(len(network.hidden), hyperprior.scale, prior.bias_scale)
