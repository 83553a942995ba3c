"""Distributions of numbers against those of SciPy."""

import numpy as np
from scipy import stats

from pmbnn.models.components import StudentTComponents


def test_components_are_those_of_scipy():
    rng = np.random.default_rng(0)
    nu, sigma = 2.5 + 3 * rng.random((4, 1)), 0.2 + rng.random((4, 3))
    mu, x = rng.normal(size=(4, 3)), rng.normal(size=3) * 5
    found, reference = StudentTComponents(nu, mu, sigma), stats.t(nu, mu, sigma)
    for name in ("mean", "std"):
        np.testing.assert_allclose(getattr(found, name)(), getattr(reference, name)())
    for name in ("logpdf", "cdf"):
        np.testing.assert_allclose(getattr(found, name)(x), getattr(reference, name)(x))
    np.testing.assert_allclose(found.ppf(0.025), reference.ppf(0.025))
    drawn = StudentTComponents(
        np.full((1, 1), 8.0), np.full((1, 20_000), 2.0), np.full((1, 1), 0.5)
    )
    values = drawn.rvs(random_state=np.random.default_rng(1))
    assert stats.kstest(values[0], stats.t(8.0, 2.0, 0.5).cdf).pvalue > 1e-3
