"""Whether Newton's decrement can tell if a fit of a network has converged.

Run: ``uv run python benchmarks/decrement.py`` (three minutes of one core). The 2-5-5-2 network is
fitted to 700 moons six times under each of six pairs of priors, as in ``experiments/trust.yaml``.
Of the best fit: how far the means of the guide are from those of highest ELBO, in its standard
deviations, and the gain of the ELBO that is left. Both are known where the curvature of the ELBO in
the means is positive definite; it is averaged over 100 draws, as for models that are no networks,
and over 2,000.
"""

import argparse
import time
from collections.abc import Callable, Iterator
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

DRAWS = (100, 2_000)


def main() -> None:
    """Fit every pair and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=measuring.HERE / "decrement.txt")
    given = parser.parse_args()
    measuring.use_one_core()
    head = ("prior, hyperprior", "draws", "status", "means, sd", "gain, nats", "CPU s", "six fits")
    table = [head, *(row for prior, hyperprior in PAIRS for row in rows_of(prior, hyperprior))]
    parts = ["2-5-5-2 tanh network, 700 moons, the best of six fits", measuring.machine_text(), ""]
    measuring.report("\n".join([*parts, measuring.table(table)]), given.out)


def rows_of(prior: str, hyperprior: str) -> Iterator[tuple[str, ...]]:
    """A line of the table for each number of draws."""
    from sklearn.datasets import make_moons

    import pmbnn as pb
    from pmbnn.inference import newton
    from pmbnn.inference.engines import fit_model
    from pmbnn.inference.optimum import end_of
    from pmbnn.inference.unit_free import Target

    model = pb.dense_classifier(
        *make_moons(700, noise=0.4, random_state=0), prior=prior, hyperprior=hyperprior
    )
    settings = pb.Inference(steps=10_000, learning_rate=0.02, restarts=6)
    (program, fits), fitting = timed(lambda: fit_model(model, settings, dtype="float32"))
    fit, target = max(fits, key=lambda fit: fit.elbo), Target.of(model, settings)
    scale = np.asarray(fit.scale, np.float64)
    ended = target.expectations, program.guide, fit, scale, np.diag(scale)
    for newton.CURVATURE_DRAWS in DRAWS:
        # A first call compiles.
        for _ in range(2):
            end, seconds = timed(lambda: end_of(*ended, most=0))
        distance = end.polished.distance
        known = (f"{distance.largest:.2f}", f"{distance.gain:.2f}")
        found = known if distance.is_known else ("not known", "")
        times = (f"{seconds:.1f}", f"{fitting:.1f}")
        yield (f"{prior}, {hyperprior}", f"{newton.CURVATURE_DRAWS:,}", fit.status, *found, *times)


def timed[T](call: Callable[[], T]) -> tuple[T, float]:
    """What a call returns, and its processor time in seconds."""
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


if __name__ == "__main__":
    main()
