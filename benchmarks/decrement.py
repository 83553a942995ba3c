"""How far fits of a network are from the optimum, by two ways to tell it.

Run: ``uv run python benchmarks/decrement.py`` (four minutes of one core). The 2-5-5-2 network is
fitted to 700 moons six times under each of six pairs of priors, as in ``experiments/trust.yaml``.
Of the best fit: the largest distance of a mean of the guide from that of highest ELBO, in standard
deviations of the guide, and the gain of the ELBO that is left. Newton's decrement, as models that
are no networks have it, is known where the curvature of the ELBO in the means is positive definite;
``check_optimum`` searches the optimum by gradients, with an error.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import measuring
import numpy as np

PAIRS = (
    ("normal", "fixed"),
    ("normal", "half_normal"),
    ("laplace", "fixed"),
    ("laplace", "half_normal"),
    ("cauchy", "half_cauchy"),
    ("student_t", "inverse_gamma"),
)


def main() -> None:
    """Fit every pair and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=measuring.HERE / "decrement.txt")
    given = parser.parse_args()
    measuring.use_one_core()
    newton = ("Newton, sd", "nats", "CPU s")
    head = ("prior, hyperprior", "ELBO alone", *newton, "search, sd", "nats", "CPU s", "six fits")
    table = [head, *(row_of(prior, hyperprior) for prior, hyperprior in PAIRS)]
    parts = ["2-5-5-2 tanh network, 700 moons, the best of six fits", measuring.machine_text(), ""]
    measuring.report("\n".join([*parts, measuring.table(table)]), given.out)


def row_of(prior: str, hyperprior: str) -> tuple[str, ...]:
    """A line of the table."""
    from sklearn.datasets import make_moons

    import pmbnn as pb
    from pmbnn.inference.batches import model_values
    from pmbnn.inference.engines import fit_model
    from pmbnn.inference.flat import n_observations
    from pmbnn.inference.log_density import build_log_density
    from pmbnn.inference.newton import Expectations
    from pmbnn.inference.optimum import end_of, with_distance
    from pmbnn.inference.xla.compile import precision, sharing_programs

    model = pb.dense_classifier(
        *make_moons(700, noise=0.4, random_state=0), prior=prior, hyperprior=hyperprior
    )
    settings = pb.Inference(steps=10_000, learning_rate=0.02, restarts=6)
    (program, fits), fitting = timed(lambda: fit_model(model, settings, dtype="float32"))
    fit = max(fits, key=lambda fit: fit.elbo)
    rows, data, scale = n_observations(model), model_values(model), np.asarray(fit.scale, float)
    density = build_log_density(model, rows, "float64")
    with sharing_programs():
        with precision("float64"):
            expectations = Expectations.of(density, density.prepare(data), rows)
        ended = expectations, program.guide, fit, scale, np.diag(scale)
        # First calls compile.
        for _ in range(2):
            end, newton_seconds = timed(lambda: end_of(*ended, most=0))
        found, seconds = timed(lambda: with_distance(fit, program.guide, density, data, rows))
    distance, way = end.polished.distance, found.to_optimum
    known = (f"{distance.largest:.2f}", f"{distance.gain:.2f}")
    return (
        f"{prior}, {hyperprior}",
        fit.status,
        *(known if distance.is_known else ("not known", "")),
        f"{newton_seconds:.1f}",
        f"{way.distance:.2f} ± {way.error:.2f}",
        f"{way.gain:.2f}",
        f"{seconds:.1f}",
        f"{fitting:.1f}",
    )


def timed[T](call: Callable[[], T]) -> tuple[T, float]:
    """What a call returns, and its processor time in seconds."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


if __name__ == "__main__":
    main()
