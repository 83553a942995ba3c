"""What a step and fit costs as things grow: group, rows, width; and what a second process gains.

Run: ``uv run python benchmarks/growth.py`` (about twenty minutes; ``--full`` adds two whole runs
of ``experiments/priors.yaml``, some fifteen more).
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import measuring

GROUPS = (1, 2, 4, 8, 16, 32, 64)
ROWS = (175, 350, 700, 1_400, 2_800, 5_600, 11_200, 22_400, 100_000)
HIDDEN = (5, 10, 25, 50, 100, 200, 400)
GROUP = 16

SWEEP = """
name: growth
sweeps:
  - name: jobs
    dataset: {kind: moons, noise: 0.4, seed: [0, 1, 2, 3, 4, 5, 6, 7]}
    network: {kind: dense, hidden: [[5, 5]]}
    prior: normal
    hyperprior: fixed
    inference: {steps: STEPS, restarts: 16, validation: 0}
    predict: {draws: 100}
"""
"""Eight jobs of sixteen fits, one program."""


def measured_fit(width: int, rows: int, hidden: int, steps: int):
    """Compile a fit; gives a function that returns microseconds a step and fit."""
    from pmbnn.data import Moons
    from pmbnn.inference.advi import build_program
    from pmbnn.inference.groups import fit
    from pmbnn.inference.result import Replica, derive_keys
    from pmbnn.inference.settings import Inference
    from pmbnn.models.build import dense_classifier, model_data
    from pmbnn.models.hyperpriors import Fixed

    data = Moons(noise=0.4, train=rows).load().training
    model = dense_classifier(data.x, data.y, hidden=(hidden, hidden), prior="normal")
    program = build_program(model, Inference(steps=steps), rows, width)
    replicas = [Replica(model_data(Fixed(), data), derive_keys(str(i))) for i in range(width)]
    fit(program, replicas)

    def microseconds() -> float:
        return 1e6 * measuring.seconds(lambda: fit(program, replicas)) / steps / width

    return microseconds


def deterministic_fit(rows: int, steps: int):
    """The same network trained by Adam on its likelihood alone, in JAX by hand, features first."""
    import jax
    import jax.numpy as jnp
    import optax

    from pmbnn.data import Moons

    data = Moons(noise=0.4, train=rows).load().training
    x, one_hot = jnp.asarray(data.x.T, jnp.float32), jax.nn.one_hot(data.y, 2, axis=0)
    shapes = {"w1": (5, 2), "b1": (5, 1), "w2": (5, 5), "b2": (5, 1), "w3": (2, 5), "b3": (2, 1)}
    keys = jax.random.split(jax.random.key(0), len(shapes))
    start = {n: 0.3 * jax.random.normal(k, s) for k, (n, s) in zip(keys, shapes.items())}  # noqa: B905
    optimiser = optax.adam(0.02)

    def loss(v, x, one_hot):
        hidden = jnp.tanh(v["w1"] @ x + v["b1"])
        hidden = jnp.tanh(v["w2"] @ hidden + v["b2"])
        scores = v["w3"] @ hidden + v["b3"]
        return -jnp.sum(one_hot * jax.nn.log_softmax(scores, axis=0))

    @jax.jit
    def train(v, x, one_hot):
        def step(_, carry):
            v, state = carry
            update, state = optimiser.update(jax.grad(loss)(v, x, one_hot), state)
            return optax.apply_updates(v, update), state

        return jax.lax.fori_loop(0, steps, step, (v, optimiser.init(v)))

    def once():
        jax.block_until_ready(train(start, x, one_hot))

    once()
    return lambda: 1e6 * measuring.seconds(once) / steps


def steps_for(work: float) -> int:
    """Steps of a fit, so that a program takes a second or two and the host's part stays small."""
    # Measured: 8 us for the 57 parameters on 700 rows.
    estimate = GROUP * max(8e-6 * work / (57 * 700), 8e-6)
    return int(min(10_000, max(100, 1.5 / estimate)))


def curve(settings: dict[str, tuple[int, int, int, int]], rounds: int) -> dict[str, float]:
    """Median microseconds a step and fit for each setting (width, rows, hidden, steps).

    A width of zero stands for the network trained deterministically.
    """
    calls = {}
    for name, (width, rows, hidden, steps) in settings.items():
        if width:
            calls[name] = measured_fit(width, rows, hidden, steps)
        else:
            calls[name] = deterministic_fit(rows, steps)
        print(f"  {name}: compiled", file=sys.stderr, flush=True)
    times = measuring.interleaved(calls, rounds)
    return {name: statistics.median(found) for name, found in times.items()}


def all_curves(rounds: int, shorter: int) -> dict[str, dict[str, float]]:
    """The curves of one core."""
    from pmbnn.core.machine import CPU

    def steps(rows: int, hidden: int, width: int) -> int:
        parameters = 2 * hidden + hidden * hidden + 4 * hidden + 2
        return max(10, steps_for(width / GROUP * rows * parameters) // shorter)

    def settings(choices, setting):
        return {str(one): (*setting(one), steps(*_order(setting(one)))) for one in choices}

    def width(rows: int) -> int:
        return min(GROUP, max(1, CPU.traits.rows // rows))  # as a sweep does it

    return {
        "fits in one program": curve(settings(GROUPS, lambda g: (g, 700, 5)), rounds),
        "rows": curve(settings(ROWS, lambda r: (width(r), r, 5)), rounds),
        "rows, trained deterministically": curve(settings(ROWS, lambda r: (0, r, 5)), rounds),
        # Large networks are fitted one by one, as a sweep does it.
        "hidden units in each of two layers": curve(
            settings(HIDDEN, lambda h: (1, 700, h)), rounds
        ),
    }


def _order(setting: tuple[int, int, int]) -> tuple[int, int, int]:
    width, rows, hidden = setting
    return rows, hidden, max(1, width)


def wall_times(file: Path, folder: Path, repeats: int, *options: str) -> dict[str, float]:
    """Median wall time of a sweep by 1 and by 2 processes, everything compiled before."""
    environment = measuring.caches_in(folder / "cache")
    number = iter(range(1_000))

    def timed(workers: int, *more: str) -> float:
        out = str(folder / f"results-{next(number)}")
        command = measuring.sweep_command(
            file, "--out", out, "--quiet", "--workers", str(workers), *options, *more
        )
        return measuring.run_quietly(command, environment)

    timed(2)  # fills the cache
    calls = {"1": lambda: timed(1), "2": lambda: timed(2)}
    found = measuring.interleaved(calls, repeats)
    return {name: statistics.median(times) for name, times in found.items()}


def curves_in_one_core(quick: bool, folder: Path) -> dict:
    """The curves, from a process of its own that keeps to one core."""
    import json

    command = [sys.executable, __file__, "--curves-only", *(["--quick"] if quick else [])]
    environment = measuring.caches_in(folder / "curves") | measuring.SINGLE_THREADED
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def plot(curves: dict[str, dict[str, float]], path: Path) -> None:
    """One panel a curve; both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(16, 3.8), layout="constrained")
    for axis, (name, points) in zip(axes, curves.items(), strict=True):
        x, y = [int(key) for key in points], list(points.values())
        axis.loglog(x, y, "o-", color="#1f5fa8", markersize=4, linewidth=1.5)
        for i in (0, len(x) // 2, len(x) - 1):
            axis.annotate(
                f"{y[i]:,.0f}", (x[i], y[i]), xytext=(0, 7), textcoords="offset points", ha="center"
            )
        axis.set_xticks(x, [f"{one:,}" for one in x], rotation=40, ha="right")
        axis.minorticks_off()
        axis.set_xlabel(name)
        axis.set_ylim(min(y) / 2, max(max(y) * 2, min(y) * 10))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("microseconds a step and fit")
    titles = ("2-5-5-2, 700 rows", "2-5-5-2, as many fits at once as in a sweep")
    titles += ("2-5-5-2, JAX by hand", "2-n-n-2, 700 rows, one by one")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=10, loc="left")
    figure.savefig(path, dpi=130)


def text_of(curves: dict, workers: dict[str, dict[str, float]], repeats: int) -> str:
    """Tables of everything."""
    lines = ["compiled engine, microseconds a step and fit on one core, medians"]
    lines += [measuring.machine_text()]
    for name, points in curves.items():
        first = next(iter(points.values()))
        rows = [(name, "us", "ratio to the first")]
        rows += [(f"{int(k):,}", f"{us:.1f}", f"{us / first:.2f}") for k, us in points.items()]
        lines += ["", measuring.table(rows)]
    head = f"whole command, compiled before; medians of {repeats}"
    rows = [(head, "1 process s", "2 processes s", "ratio")]
    rows += [(name, *_compared(walls)) for name, walls in workers.items()]
    short, long = list(workers.values())[:2]
    more = {processes: long[processes] - short[processes] for processes in short}
    rows.append(("the longer jobs less the shorter", *_compared(more)))
    return "\n".join([*lines, "", measuring.table(rows)])


def _compared(walls: dict[str, float]) -> tuple[str, ...]:
    """Seconds of 1 and of 2 processes, and their ratio."""
    one, two = walls["1"], walls["2"]
    return f"{one:.1f}", f"{two:.1f}", f"{one / two:.2f}"


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the steps, no record")
    parser.add_argument("--full", action="store_true", help="priors.yaml by 1 and 2 processes too")
    parser.add_argument("--repeats", type=int, default=3, help="of each whole command")
    parser.add_argument("--out", type=Path, default=measuring.HERE / "growth.txt")
    parser.add_argument("--curves-only", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print, write the table and its plot."""
    given = arguments()
    if given.curves_only:
        import json

        measuring.use_one_core()
        print(json.dumps(all_curves(1 if given.quick else 5, 10 if given.quick else 1)))
        return
    repeats, lengths = (1, (1_000, 5_000)) if given.quick else (given.repeats, (10_000, 50_000))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        curves = curves_in_one_core(given.quick, folder)
        workers = {}
        for steps in lengths:
            file = folder / f"growth-{steps}.yaml"
            file.write_text(SWEEP.replace("STEPS", str(steps)))
            workers[f"8 jobs of 16 x {steps:,} steps"] = wall_times(file, folder, repeats)
        if given.full:
            priors = measuring.PROJECT / "experiments" / "priors.yaml"
            workers["experiments/priors.yaml"] = wall_times(priors, folder, repeats)
    out = Path(os.devnull) if given.quick else given.out
    measuring.report(text_of(curves, workers, repeats), out)
    # A quick run's figure is only for the eye, and has its place apart from the record.
    figure = Path(tempfile.gettempdir()) / "growth.png" if given.quick else out
    plot(curves, figure.with_suffix(".png"))


if __name__ == "__main__":
    main()
