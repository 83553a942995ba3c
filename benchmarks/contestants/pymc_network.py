"""The network as a user of PyMC would write it, observations last as everywhere here."""

import pymc as pm
import pytensor.tensor as pt

from contestants.serving import SHAPES


def network_model(x, y) -> pm.Model:
    """PyMC model with standard normal priors, in PyMC's default precision."""
    with pm.Model() as model:
        v = {name: pm.Normal(name, 0, 1, shape=shape) for name, shape in SHAPES.items()}
        hidden = pt.tanh(v["weight_1"].T @ x.T + v["bias_1"][:, None])
        hidden = pt.tanh(v["weight_2"].T @ hidden + v["bias_2"][:, None])
        outputs = v["weight_3"].T @ hidden + v["bias_3"][:, None]
        pm.Categorical("y", logit_p=outputs.T, observed=y)
    return model
