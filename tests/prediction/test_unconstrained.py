"""Draws on the variables' own scale, back on the flat vector."""

import any_models
import numpy as np
import pytest
from tiers import slow_but

from pmbnn.inference.batches import model_values
from pmbnn.inference.engines import n_observations
from pmbnn.inference.flat import flat_vector, flatten_model
from pmbnn.prediction.draws import unconstrained_draws

MODELS = any_models.EIGHT | any_models.OTHERS
QUICK = ("ordinal", "mixture")


@pytest.mark.parametrize("name", slow_but(QUICK, list(MODELS)))
def test_there_and_back(name, evaluate):
    """Logarithms, intervals, ordered vectors, simplices."""
    model = MODELS[name]()
    flat = flatten_model(model, n_observations(model))
    values = 0.5 * np.random.default_rng(0).normal(size=(2, 3, flat.size))
    names, vector = [v.name for v in model.free_RVs], flat_vector(flat)
    graphs = flat.at(vector, [flat.posterior[name] for name in names])
    data = {flat.data[name]: value for name, value in model_values(model).items()}
    drawn = [[evaluate(graphs, {vector: v} | data) for v in chain] for chain in values]
    posterior = {
        name: np.array([[draw[i] for draw in chain] for chain in drawn])
        for i, name in enumerate(names)
    }
    np.testing.assert_allclose(unconstrained_draws(model, posterior), values, rtol=1e-9, atol=1e-9)
