"""Microseconds a step and fit of the 2-5-5-2 network on 700 points: this project and its peers.

Every contestant fits the same thing on one core: moons with noise 0.4, tanh, N(0, 1) priors,
mean-field guide started at the same scale, one draw a step, full batch, Adam. Each stays in a
process of its own, compiled, and does a chunk of steps on request; rounds go through all of
them, so that noise of the machine hits all alike and ratios of one round can be trusted.

As a check that all do the same job, the ELBO of every final guide is estimated here, by one
function, from draws of the guide.

Run: ``uv run python benchmarks/small_network.py`` (ten to fifteen minutes, most of it
compilation and the slowest peers; ``--quick`` three).
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import measuring
import numpy as np
from contestants.serving import SHAPES, Problem, split
from processes import Entry, Running, start, stop

NOISE, LEARNING_RATE, INITIAL_SCALE = 0.4, 0.02, 0.05
REPLICAS, DRAWS = 64, 1_000
JAX_16, C = "bare JAX loop by hand, 16 at once", "loop in C by hand, alone"


ENTRIES = (
    Entry("pmbnn compiled engine, alone", "project", "compiled_engine", "1"),
    Entry("pmbnn compiled engine, 4 at once", "project", "compiled_engine", "4"),
    Entry("pmbnn compiled engine, 16 at once", "project", "compiled_engine", "16"),
    Entry("pmbnn compiled engine, 64 at once", "project", "compiled_engine", "64"),
    Entry("bare JAX loop by hand, alone", "project", "by_hand", "1"),
    Entry(JAX_16, "project", "by_hand", "16"),
    Entry(C, "project", "by_hand", "c"),
    Entry("NumPyro svi.run, x @ W, alone*", "peers", "numpyro_svi", "run-plain"),
    Entry("NumPyro kept scan, x @ W, alone", "peers", "numpyro_svi", "scan-plain"),
    Entry("NumPyro svi.run, features first, alone*", "peers", "numpyro_svi", "run-features"),
    Entry("NumPyro kept scan, features first, alone", "peers", "numpyro_svi", "scan-features"),
    Entry("NumPyro kept scan, features first, 16", "peers", "numpyro_svi", "vmap-features"),
    Entry("NumPyro the same, one-hot factor, alone", "peers", "numpyro_svi", "scan-factor"),
    Entry("NumPyro the same, one-hot factor, 16", "peers", "numpyro_svi", "vmap-factor"),
    Entry("pymc-extras Trainer, JAX", "peers", "trainer", "jax", "one-cycle, f64"),
    Entry("pymc-extras Trainer, Numba", "peers", "trainer", "numba", "one-cycle, f64"),
    Entry("pm.fit, C", "project", "pymc_fit", "c", "constant, f64"),
    Entry("pm.fit, Numba", "project", "pymc_fit", "numba", "constant, f64"),
    Entry("Pyro, Trace_ELBO", "pyro", "pyro_svi", "Trace_ELBO", "constant, f32"),
    Entry("Pyro, JitTrace_ELBO", "pyro", "pyro_svi", "JitTrace_ELBO", "constant, f32"),
)


def build_problem(steps: int, rounds: int) -> Problem:
    """Data and starts: matrices at normal draws with variance 1 / fan-in, biases at zero."""
    from pmbnn.data import Moons

    rows = Moons(noise=NOISE).load().training
    rng = np.random.default_rng(0)
    starts = []
    for _ in range(REPLICAS):
        parts = [
            rng.standard_normal(shape).ravel() / shape[0] ** 0.5
            if len(shape) > 1
            else np.zeros(shape)
            for shape in SHAPES.values()
        ]
        starts.append(np.concatenate(parts))
    # Contestants that can stop anywhere share one fit of all steps out between the rounds.
    chunk = steps // (rounds + 1)
    return Problem(
        rows.x, rows.y, np.array(starts), INITIAL_SCALE, LEARNING_RATE, steps=steps, chunk=chunk
    )


def elbo(loc, scale, problem: Problem) -> float:
    """ELBO of one guide in nats, from draws of it and its exact entropy."""
    rng = np.random.default_rng(1)
    draws = loc + scale * rng.standard_normal((DRAWS, len(loc)))
    log_p = [_log_joint(draw, problem) for draw in draws]
    entropy = np.log(scale).sum() + 0.5 * len(loc) * (1 + np.log(2 * np.pi))
    return float(np.mean(log_p) + entropy)


def _log_joint(flat, problem: Problem) -> float:
    v = split(flat)
    hidden = np.tanh(v["weight_1"].T @ problem.x.T + v["bias_1"][:, None])
    hidden = np.tanh(v["weight_2"].T @ hidden + v["bias_2"][:, None])
    outputs = v["weight_3"].T @ hidden + v["bias_3"][:, None]
    sign = np.where(problem.y == 1, 1.0, -1.0)
    log_likelihood = -np.logaddexp(0, -sign * (outputs[1] - outputs[0])).sum()
    return log_likelihood - 0.5 * (flat**2).sum() - 0.5 * len(flat) * np.log(2 * np.pi)


def elbo_text(guide: dict, problem: Problem) -> str:
    """ELBO of a guide; of several their mean and range."""
    pairs = list(zip(guide["loc"], guide["scale"], strict=True))[:16]
    found = [elbo(np.array(loc), np.array(scale), problem) for loc, scale in pairs]
    if len(found) == 1:
        return f"{found[0]:.0f}"
    return f"{np.mean(found):.0f} ({min(found):.0f} to {max(found):.0f})"


def measure(running: list[Running], rounds: int) -> dict[str, list[float]]:
    """Compile all, time rounds, and ask for the final guides."""
    for one in running:
        one.greet()
        if not one.fault:
            one.preparation = one.ask("compile")
        print(f"  {one.entry.name}: {one.fault or 'compiled'}", file=sys.stderr, flush=True)
    able = [one for one in running if not one.fault]
    calls = {one.entry.name: one.microseconds for one in able}
    times = measuring.interleaved(calls, rounds)
    for one in able:
        if not one.fault:
            one.guide = one.ask("guide")
    return times


def compile_text(one: Running, median: float) -> str:
    """Seconds before the steady state: all of the first call but its steps."""
    spent = one.preparation["seconds"] - 1e-6 * median * one.preparation["steps"]
    return f"{max(0.0, spent):.1f}"


def rows_of(running: list[Running], times: dict[str, list[float]], problem: Problem) -> list:
    """The table, head first."""
    head = ("", "us a step and fit", "ratio to JAX loop x16", "ratio to C loop", "compile s")
    found = [(*head, f"ELBO at {problem.steps:,}", "schedule, float")]
    for one in running:
        if one.fault:
            continue
        ours = times[one.entry.name]
        median = statistics.median(ours)
        compared = [
            measuring.median_and_range(measuring.ratios(ours, times[name]))
            if name in times
            else "-"
            for name in (JAX_16, C)
        ]
        compiling, quality = compile_text(one, median), elbo_text(one.guide, problem)
        found.append(
            (one.entry.name, f"{median:.1f}", *compared, compiling, quality, one.entry.remark)
        )
    return found


def text_of(running: list[Running], times: dict, problem: Problem, rounds: int) -> str:
    """The whole report."""
    environments: dict[str, dict[str, str]] = {}
    for one in running:
        environments.setdefault(one.entry.environment, {}).update(one.versions)
    lines = [
        "one ADVI step of one fit: 2-5-5-2 tanh, moons noise 0.4, 700 points, full batch,",
        f"N(0, 1) prior, mean-field, Adam at {problem.learning_rate}; one core, {rounds} rounds;",
        "medians, ratios round by round with their range",
        measuring.machine_text(),
        "",
        measuring.table(rows_of(running, times, problem)),
        "",
        "* traces and compiles at every call, which is part of its time; compile s is what the",
        "  first call took beyond that",
        *(f"not measured: {one.entry.name}: {one.fault}" for one in running if one.fault),
        *(
            f"{name}: {measuring.versions_text(found) or 'not installed'}"
            for name, found in environments.items()
        ),
    ]
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="rounds, at least 5 for a record")
    parser.add_argument("--quick", action="store_true", help="2 rounds of 1,000 steps, no record")
    parser.add_argument("--out", type=Path, default=measuring.HERE / "small_network.txt")
    parser.add_argument("--only", nargs="+", help="contestants whose script or name holds a word")
    parser.add_argument("--pyro-python", help="a Python that has pyro-ppl and torch")
    return parser.parse_args()


def main() -> None:
    """Run everything and write the table."""
    given = arguments()
    measuring.use_one_core()  # and with this process those that it starts
    rounds, steps = (2, 1_000) if given.quick else (given.rounds, 10_000)
    words = given.only or [""]
    chosen = [e for e in ENTRIES if any(word in f"{e.script} {e.name}" for word in words)]
    # An empty program for Pyro is one that says so and ends.
    absent = [sys.executable, "-c", "raise SystemExit('not installed: give --pyro-python')"]
    pythons = {
        "project": [sys.executable],
        "peers": measuring.peers_python(),
        "pyro": [given.pyro_python] if given.pyro_python else absent,
    }
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        problem = build_problem(steps, rounds)
        problem.save(folder / "problem.npz")
        running = [
            start(entry, number, pythons, folder, folder / "problem.npz")
            for number, entry in enumerate(chosen)
        ]
        try:
            times = measure(running, rounds)
            text = text_of(running, times, problem, rounds)
        finally:
            stop(running)
    measuring.report(text, None if given.quick or given.only else given.out)


if __name__ == "__main__":
    main()
