"""Two loops written by hand: bare JAX (variants are group sizes) and C."""

import jax
import jax.numpy as jnp
import numpy as np
from jax_loop import SIZE, hand_written_fit

from contestants.serving import Problem, serve


class JaxLoop:
    """As many fits as the variant says, in one program."""

    def __init__(self, problem: Problem, width: int) -> None:
        self.width, self.steps = width, problem.steps
        fit = hand_written_fit(problem.steps, problem.learning_rate)
        loc = jnp.asarray(problem.starts[:width], jnp.float32)
        arguments = (
            (loc, jnp.full((width, SIZE), problem.initial_rho, jnp.float32)),
            jax.random.split(jax.random.key(0), width),
            jnp.tile(jnp.asarray(problem.x.T, jnp.float32), (width, 1, 1)),
            jnp.tile(jnp.eye(2)[problem.y].T, (width, 1, 1)),
        )
        if width == 1:
            self.program, self.arguments = jax.jit(fit), jax.tree.map(lambda a: a[0], arguments)
        else:
            self.program, self.arguments = jax.jit(jax.vmap(fit)), arguments

    def warm_up(self) -> int:
        """One whole group of fits."""
        return self.chunk()

    def chunk(self) -> int:
        """One whole group of fits."""
        self.parameters, _ = jax.block_until_ready(self.program(*self.arguments))
        return self.width * self.steps

    def guide(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the last group."""
        loc, rho = (np.atleast_2d(np.asarray(p)) for p in self.parameters)
        return loc, np.logaddexp(0, rho)


class CLoop:
    """The loop in C, one fit at a time; what its call spends around the loop is included."""

    def __init__(self, problem: Problem) -> None:
        self.steps = problem.steps
        rho = np.full(SIZE, problem.initial_rho)
        self.arguments = (problem.x, problem.y, problem.starts[0], rho)

    def warm_up(self) -> int:
        """Compiles."""
        return self.chunk()

    def chunk(self) -> int:
        """One fit."""
        from c_loop import c_loop_seconds

        c_loop_seconds(self.steps, *self.arguments)
        return self.steps

    def guide(self) -> tuple[np.ndarray, np.ndarray]:
        """Of one more fit."""
        import c_loop

        x, y, loc, rho = self.arguments
        guide = c_loop._guide(loc, rho)  # changed in place
        c_loop._library().fit(self.steps, c_loop.LEARNING_RATE, 1, *c_loop._data(x, y), guide)
        return guide[:1], np.logaddexp(0, guide[1:])


def build(problem: Problem, variant: str):
    """A loop by its name: ``c`` or the size of a JAX group."""
    return CLoop(problem) if variant == "c" else JaxLoop(problem, int(variant))


if __name__ == "__main__":
    serve(build, ("jax", "optax", "numpy"))
