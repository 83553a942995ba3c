"""`pb.fit` against ``pm.fit`` on models that nobody wrote for this project.

Run: ``uv run python benchmarks/any_models.py`` (about four minutes). One core, double precision for
both, mean-field, Adam at 0.02. Whole calls are what a user waits for, compilation included; steps
alone are the difference of a long and a short run, compiled before. The models are those that
``tests/inference/test_any_models.py`` holds against ``pm.fit`` at the same noise.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import measuring

STEPS, SHORT = 10_000, 1_000

sys.path.insert(0, str(measuring.PROJECT / "tests"))


def main() -> None:
    """Time both on every model and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=measuring.HERE / "any_models.txt")
    given = parser.parse_args()
    measuring.use_one_core()
    from any_models import EIGHT

    rows = [
        ("model", "pb.fit", "pm.fit", "ratio", "µs a step", "pm.fit's", "ratio", "ELBO", "pm.fit's")
    ]
    for name, build in EIGHT.items():
        rows.append(row(name, build, given.rounds))
        print("  ".join(rows[-1]), flush=True)
    text = "\n".join(
        [
            f"whole calls of {STEPS:,} steps in seconds, and steps alone; medians of "
            f"{given.rounds} rounds for steps; pm.fit over ours",
            measuring.machine_text(),
            "",
            measuring.table(rows),
        ]
    )
    measuring.report(text, given.out)


def row(name: str, build, rounds: int) -> tuple[str, ...]:
    """One model: whole calls, steps, and the mean ELBO over the last thousand steps."""
    model = build()
    whole, ours, elbo = fit_by_us(model)
    whole_pymc, theirs, elbo_pymc = fit_by_pymc(model)
    steps = measuring.interleaved({"ours": ours, "pymc": theirs}, rounds)
    us, them = (statistics.median(steps[key]) for key in ("ours", "pymc"))
    return (
        name,
        f"{whole:.1f}",
        f"{whole_pymc:.1f}",
        f"{whole_pymc / whole:.1f}",
        f"{1e6 * us:.1f}",
        f"{1e6 * them:.0f}",
        f"{them / us:.0f}",
        f"{elbo:.1f}",
        f"{elbo_pymc:.1f}",
    )


def fit_by_us(model):
    """Seconds of a whole call, seconds of a step when asked again, and the final ELBO."""
    import pmbnn as pb
    from pmbnn.inference.batches import model_values
    from pmbnn.inference.engines import fit_model
    from pmbnn.inference.groups import fit
    from pmbnn.inference.result import Replica, derive_keys

    found = []
    whole = measuring.seconds(lambda: found.append(pb.fit(model, steps=STEPS, progress=False)))
    replicas = [Replica(model_values(model), derive_keys("benchmark"))]

    def step() -> float:
        program, _ = fit_model(model, pb.Inference(steps=STEPS))
        long, short = (
            measuring.seconds(lambda n=n: fit(program, replicas, steps=n)) for n in (STEPS, SHORT)
        )
        return (long - short) / (STEPS - SHORT)

    return whole, step, found[0].elbo


def fit_by_pymc(model):
    """The same through ``pm.fit``'s own class, whose function can be asked again."""
    import numpy as np
    import pymc as pm

    adam = pm.adam(learning_rate=0.02)
    found = []

    def whole_call() -> None:
        with model:
            found.append(pm.ADVI(random_seed=0))
            found[0].fit(STEPS, progressbar=False, obj_optimizer=adam)

    whole = measuring.seconds(whole_call)

    def step() -> float:
        long, short = (
            measuring.seconds(lambda n=n: found[0].refine(n, progressbar=False))
            for n in (STEPS // 2, SHORT)
        )
        return (long - short) / (STEPS // 2 - SHORT)

    return whole, step, -float(np.mean(found[0].hist[-STEPS // 10 :]))


if __name__ == "__main__":
    # A cache of compiled programs from before would make a whole call look quicker.
    with tempfile.TemporaryDirectory() as folder:
        if "--cold" not in sys.argv:
            sys.exit(
                measuring.subprocess.call(
                    [sys.executable, *sys.argv, "--cold"], env=measuring.caches_in(Path(folder))
                )
            )
        sys.argv.remove("--cold")
        main()
