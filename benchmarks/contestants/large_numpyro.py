"""NumPyro's SVI with ``AutoNormal`` on the large networks: a kept scan of ``svi.update``."""

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.initialization import init_to_value
from optax import adam

from contestants.large import INITIAL_SCALE, LEARNING_RATE, ROWS, Task, batches, rows, start
from contestants.large_jax import outputs
from contestants.serving import serve


class Numpyro:
    """Standard normal priors, minibatches by a scaled plate."""

    def __init__(self, _, variant: str) -> None:
        self.task = task = Task.of(variant)
        x, y = rows()
        self.data = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32)
        self.indices = jnp.asarray(batches(task))

        def model(x, y):
            v = {
                name: numpyro.sample(name, dist.Normal(0, 1).expand(s).to_event(len(s)))
                for name, s in task.shapes.items()
            }
            with numpyro.plate("observations", ROWS, subsample_size=len(y)):
                numpyro.sample("y", dist.Categorical(logits=outputs(task, v, x).T), obs=y)

        values = {name: jnp.asarray(v) for name, v in start(task).items()}
        guide = AutoNormal(
            model, init_loc_fn=init_to_value(values=values), init_scale=INITIAL_SCALE
        )
        svi = SVI(model, guide, adam(LEARNING_RATE), Trace_ELBO())
        first = (array[self.indices[0]] for array in self.data)
        self.state = svi.init(jax.random.key(0), *first)

        def fit(state, indices, x, y):
            return jax.lax.scan(lambda s, i: svi.update(s, x[i], y[i]), state, indices)[0]

        self.program = jax.jit(fit)

    def warm_up(self) -> int:
        """Compile, and make one chunk."""
        return self.chunk()

    def chunk(self) -> int:
        """Some steps."""
        jax.block_until_ready(self.program(self.state, self.indices, *self.data))
        return self.task.steps


if __name__ == "__main__":
    serve(Numpyro, ("numpyro", "jax", "optax", "numpy"), load=lambda path: None)
