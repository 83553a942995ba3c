"""Time and memory of predicting 10,000 images with 100 draws of the parameters.

Each network has a process of its own, whose memory is told whole. Beside it, in the same
process and rounds, the report's network by hand in JAX, with fixed parameters, run over the
same images once for every draw: what no way of averaging over draws can fall below.

Run: ``uv run python benchmarks/predictions.py`` (about ten minutes).
"""

import argparse
import multiprocessing
import statistics
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import measuring

IMAGES, DRAWS, BLOCK = 10_000, 100, 128
NETWORKS = ("report_conv", "lenet5", "dense 784-400-400-10")


def measure(network: str, rounds: int) -> dict:
    """Seconds of all predictions, of the loop by hand where there is one, and megabytes."""
    import resource

    import numpy as np

    x = np.random.default_rng(0).uniform(size=(IMAGES, 784)).astype("f4")
    calls = {"pmbnn": _predictions(network, x)}
    calls["pmbnn"](2)
    if network == "report_conv":
        calls["by hand"] = _by_hand(x)
        calls["by hand"](2)
    times = measuring.interleaved(
        {n: lambda c=call: measuring.seconds(lambda: c(DRAWS)) for n, call in calls.items()}, rounds
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"times": times, "megabytes": peak}


def _predictions(network: str, x):
    """The project's own predictions, from the plain PyMC model."""
    import numpy as np

    from pmbnn.data.arrays import Rows
    from pmbnn.inference.guides import MeanField
    from pmbnn.inference.result import derive_keys
    from pmbnn.models.build import build_model
    from pmbnn.models.hyperpriors import Fixed
    from pmbnn.models.likelihoods import Categorical
    from pmbnn.models.networks import NETWORKS as KINDS
    from pmbnn.models.priors import Normal
    from pmbnn.prediction.draws import GuideDraws
    from pmbnn.prediction.predictor import Predictor

    dense = {"kind": "dense", "hidden": (400, 400), "activation": "relu"}
    settings = dense if network.startswith("dense") else {"kind": network}
    pixels = tuple(f"pixel_{i}" for i in range(784))
    row = Rows(x[:1].astype(float), np.array([9]), pixels, tuple("0123456789"), (1, 28, 28))
    chosen = KINDS[settings["kind"]](**settings)
    model = build_model(chosen, Normal(), Fixed(), Categorical(), row)
    predictor = Predictor(model, Categorical())
    size = predictor.flat.size
    loc = 0.05 * np.random.default_rng(1).standard_normal(size)
    parameters = {"loc": loc, "scale": np.full(size, 0.01)}
    guide = GuideDraws(MeanField(size), parameters, derive_keys("predictions").draws)
    return lambda draws: predictor.predict([guide], [1.0], {"prior_scale": 1.0}, x, draws)


def _by_hand(x):
    """One pass for every draw over images in blocks."""
    import jax
    import jax.numpy as jnp
    from contestants.large import Task, start
    from contestants.large_jax import outputs

    task = Task("conv", BLOCK, "features")
    parameters = {n: jnp.asarray(v) for n, v in start(task).items()}
    blocks = [jnp.asarray(x[i : i + BLOCK]) for i in range(0, len(x) - BLOCK + 1, BLOCK)]

    @jax.jit
    def passes(v, block, draws):
        def body(_, total):
            # The pass depends on the loop, or it would be made but once.
            shifted = jax.tree.map(lambda a: a + 1e-9 * total[0, 0], v)
            return total + jax.nn.softmax(outputs(task, shifted, block), axis=0)

        return jax.lax.fori_loop(0, draws, body, jnp.zeros((10, BLOCK), jnp.float32))

    return lambda draws: [passes(parameters, b, draws).block_until_ready() for b in blocks]


def main() -> None:
    """Measure every network and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=measuring.HERE / "predictions.txt")
    given = parser.parse_args()
    rows = [("network", "s", "us an image and draw", "ratio to passes by hand", "peak MB")]
    context = multiprocessing.get_context("spawn")
    for network in NETWORKS:
        with ProcessPoolExecutor(1, context) as pool:
            found = pool.submit(measure, network, given.rounds).result()
        ours, by_hand = found["times"]["pmbnn"], found["times"].get("by hand")
        middle = statistics.median(ours)
        ratio = "" if by_hand is None else measuring.ratios(ours, by_hand)
        rows.append(
            (
                network,
                f"{middle:.1f}",
                f"{1e6 * middle / IMAGES / DRAWS:.1f}",
                ratio and measuring.median_and_range(ratio),
                f"{found['megabytes']:.0f}",
            )
        )
    lines = [
        f"predicting {IMAGES:,} images with {DRAWS} draws; medians of {given.rounds} rounds",
        measuring.machine_text(),
        "",
        measuring.table(rows),
        "",
        "peak MB is of the whole process, Python and libraries included",
    ]
    measuring.report("\n".join(lines), given.out)


if __name__ == "__main__":
    main()
