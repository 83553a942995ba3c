"""A gradient of the log-density, as samplers take it, against the same gradient in C.

Run: ``uv run python benchmarks/gradient.py`` (about two minutes). The 2-5-5-2 network on 700 points
with an N(0, 1) prior, on one core: gradient ascent of one chain and of 16 at once, so that each
gradient is at the last one's end; all climb to the same weights. The compiled log-density knows
nothing of the network, and says its value too; PyMC's own is that of ``model.logp()`` under JAX.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import measuring
import numpy as np

STEPS, RATE, CHAINS = 20_000, 1e-4, 16

CHECKED = 300
"""Steps after which all are at the same weights; rounding leads them apart later."""

IN_C = "loop in C"


def main() -> None:
    """Let the contestants take turns and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=measuring.HERE / "gradient.txt")
    given = parser.parse_args()
    measuring.use_one_core()
    times = measuring.interleaved(contestants(), given.rounds)
    table = [("", "us a gradient", "ratio to C")]
    for name, spent in times.items():
        cost = measuring.median_and_range([1e6 * t for t in spent], 1)
        table.append((name, cost, measuring.median_and_range(measuring.ratios(spent, times[IN_C]))))
    head = f"2-5-5-2 tanh network, 700 points, {STEPS:,} gradients, {given.rounds} rounds; single"
    parts = [f"{head} precision", measuring.machine_text(), "", measuring.table(table)]
    measuring.report("\n".join(parts), given.out)


def contestants() -> dict[str, Callable[[], float]]:
    """Ascents that return seconds a gradient and chain; the first is that in C."""
    import jax

    jax.devices()  # before PyMC, which would ask for a hundred of them: six times slower programs
    from c_loop import c_ascent
    from pymc.sampling.jax import get_jaxified_logp

    import pmbnn as pb
    from pmbnn.data import Moons
    from pmbnn.inference.batches import model_values
    from pmbnn.inference.log_density import build_log_density
    from pmbnn.inference.xla.compile import compiler_options, precision

    rows = Moons(noise=0.4).load().training
    model = pb.dense_classifier(rows.x, rows.y, hidden=(5, 5), prior="normal", hyperprior="fixed")
    density = build_log_density(model, len(rows))
    starts = 0.3 * np.random.default_rng(0).standard_normal((CHAINS, density.size))
    starts = starts.astype(np.float32)
    with precision("float32"):
        prepared = density.prepare(model_values(model))
    log_density_of = get_jaxified_logp(model)

    def by_pymc(z):
        parts = density.flat.layout.unravel(z)
        return log_density_of([parts[value.name] for value in model.value_vars])

    def ascent(log_density, chains):
        up = jax.value_and_grad(log_density)

        def step(_, carried):
            # The value goes along: a sampler needs it too.
            value, gradient = up(carried[0])
            return carried[0] + RATE * gradient, value.astype(np.float32)

        def climb(z, steps):
            return jax.lax.fori_loop(0, steps, step, (z, np.float32(0)))

        climbing = jax.vmap(climb, (0, None))
        run = jax.jit(climbing, compiler_options=compiler_options())
        with precision("float32"):
            ends, _ = run(starts[:chains], CHECKED)
        expected = [c_ascent(CHECKED, RATE, rows.x, rows.y, z) for z in starts[:chains]]
        np.testing.assert_allclose(ends, expected, atol=1e-3)

        def call():
            with precision("float32"):
                return measuring.seconds(lambda: jax.block_until_ready(run(starts[:chains], STEPS)))

        return lambda: call() / STEPS / chains

    def in_c():
        call = lambda: c_ascent(STEPS, RATE, rows.x, rows.y, starts[0])  # noqa: E731
        return measuring.seconds(call) / STEPS

    def ours(z):
        return density.value(z, prepared)

    return {
        IN_C: in_c,
        f"compiled log-density, {CHAINS} chains at once": ascent(ours, CHAINS),
        "compiled log-density, one chain": ascent(ours, 1),
        "PyMC's own under JAX, one chain": ascent(by_pymc, 1),
    }


if __name__ == "__main__":
    main()
