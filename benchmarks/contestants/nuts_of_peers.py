"""NUTS of NumPyro and of nutpie on the posterior of the 2-5-5-2 network, for `samplers.py`.

Run in the peers' environment: ``python -m contestants.nuts_of_peers NAME IN.npz OUT.npz``. Eight
chains of 500 draws after 500 of warm-up, as our NUTS has by default, twice: the second run has
another seed and finds compiled what the first compiled.
"""

import sys
import time
from collections.abc import Callable

import numpy as np

from contestants.serving import SHAPES

CHAINS, DRAWS, WARM_UP = 8, 500, 500


def outputs(x: np.ndarray, of: dict[str, np.ndarray]) -> np.ndarray:
    """Outputs of the network at draws of its weights, ``(chain, draw, row, class)``."""
    hidden = np.tanh(x @ of["weight_1"] + of["bias_1"][..., None, :])
    hidden = np.tanh(hidden @ of["weight_2"] + of["bias_2"][..., None, :])
    return hidden @ of["weight_3"] + of["bias_3"][..., None, :]


def numpyro_nuts(x, y) -> Callable[[int], dict[str, np.ndarray]]:
    """Function of a seed that returns draws by name; chains one after the other."""
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    from contestants.numpyro_svi import network

    mcmc = MCMC(
        NUTS(lambda x, y: network(x, y, "factor")),
        num_warmup=WARM_UP,
        num_samples=DRAWS,
        num_chains=CHAINS,
        chain_method="sequential",
        progress_bar=False,
    )
    data = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32)

    def sample(seed):
        mcmc.run(jax.random.key(seed), *data)
        return {name: np.asarray(v) for name, v in mcmc.get_samples(group_by_chain=True).items()}

    return sample


def nutpie_nuts(x, y) -> Callable[[int], dict[str, np.ndarray]]:
    """The same of nutpie, whose densities PyTensor compiles by Numba."""
    import nutpie
    import pymc as pm
    import pytensor.tensor as pt

    with pm.Model() as model:
        v = {name: pm.Normal(name, 0, 1, shape=shape) for name, shape in SHAPES.items()}
        hidden = pt.tanh(x @ v["weight_1"] + v["bias_1"])
        hidden = pt.tanh(hidden @ v["weight_2"] + v["bias_2"])
        logits = hidden @ v["weight_3"] + v["bias_3"]
        pm.Categorical("y", logit_p=logits, observed=y)
    compiled = nutpie.compile_pymc_model(model)

    def sample(seed):
        found = nutpie.sample(
            compiled,
            draws=DRAWS,
            tune=WARM_UP,
            chains=CHAINS,
            cores=1,
            seed=seed,
            progress_bar=False,
        )
        return {name: found["posterior"][name].values for name in SHAPES}

    return sample


def main() -> None:
    """Sample twice; write the mean class probabilities of each chain, and processor times."""
    name, given, out = sys.argv[1:]
    data = np.load(given)
    start = time.process_time()
    sample = {"numpyro": numpyro_nuts, "nutpie": nutpie_nuts}[name](data["x"], data["y"])
    draws = sample(0)
    seconds = time.process_time() - start
    start = time.process_time()
    sample(1)
    again = time.process_time() - start
    means = []
    for chain in range(CHAINS):
        of = outputs(data["x_test"], {n: v[chain] for n, v in draws.items()})
        p = np.exp(of - of.max(axis=-1, keepdims=True))
        means.append((p / p.sum(axis=-1, keepdims=True)).mean(axis=0))
    np.savez(out, seconds=seconds, again=again, probabilities=np.asarray(means))


if __name__ == "__main__":
    main()
