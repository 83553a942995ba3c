"""One training step of large networks, against the same trained deterministically, and NumPyro.

Dense 784-400-400-10 and the report's convolutional network, batches of 128 and 500, on all
cores; and dense ones of up to ten million parameters, with the memory they take. Each contestant
has a process of its own, stays compiled and does a chunk of steps on request; rounds go through
all contestants of one network and batch. The yardstick is the fastest deterministic form in JAX;
the gather of the batch and Adam are part of every step.

Run: ``uv run python benchmarks/large_networks.py`` (about ten minutes).
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import measuring
from processes import Entry, Running, start, stop

DETERMINISTIC = "deterministic, JAX by hand"

GROWING = {
    "dense13": "10,527",
    "dense115": "104,775",
    "dense660": "960,970",
    "dense2780": "9,941,290",
}
"""Dense networks of growing size, and their parameters; fitted in batches of 128."""


def entries(network: str, batch: int) -> list[Entry]:
    """Contestants of one network and batch."""
    variant, found = f"{network}-{batch}", []
    orders = ("rows", "features") if network == "dense" else ("features",)
    for order in orders:
        name = f"{DETERMINISTIC}, {order} first"
        found.append(Entry(name, "project", "large_jax", f"{variant}-{order}"))
    estimators = ["reparameterisation"]
    if network == "dense":
        estimators.append("local_reparameterisation")
    if network not in GROWING:
        estimators.append("flipout")
    for estimator in estimators:
        name = f"pmbnn, {estimator}"
        found.append(Entry(name, "project", "large_engine", f"{variant}-{estimator}"))
    if network in GROWING:
        return found
    name = f"NumPyro kept scan, {orders[0]} first"
    return [*found, Entry(name, "peers", "large_numpyro", f"{variant}-{orders[0]}")]


def measure(network: str, batch: int, rounds: int, pythons: dict) -> list[tuple[str, ...]]:
    """Rows of the table of one network and batch."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        running = [
            start(entry, number, pythons, folder, folder)
            for number, entry in enumerate(entries(network, batch))
        ]
        try:
            times, memory = _timed(running, rounds)
        finally:
            stop(running)
    return _rows(f"{network}, {batch}", running, times, memory)


def _timed(running: list[Running], rounds: int):
    """Microseconds a step, and megabytes at most, by name."""
    for one in running:
        one.greet()
        one.fault or one.ask("compile")
        print(f"  {one.entry.name}: {one.fault or 'compiled'}", file=sys.stderr, flush=True)
    able = {one.entry.name: one for one in running if not one.fault}
    times = measuring.interleaved({n: one.microseconds for n, one in able.items()}, rounds)
    return times, {n: one.ask("memory")["megabytes"] for n, one in able.items()}


def _rows(task: str, running: list[Running], times: dict, memory: dict) -> list[tuple[str, ...]]:
    """Times and ratios to the fastest deterministic form."""
    plain = [name for name in times if name.startswith(DETERMINISTIC)]
    yardstick = times[min(plain, key=lambda name: statistics.median(times[name]))]
    found = []
    for one in running:
        name = one.entry.name
        if one.fault:
            found.append((f"{task}: {name}", "failed", one.fault[:40], ""))
            continue
        middle = f"{statistics.median(times[name]) / 1000:.2f}"
        compared = measuring.median_and_range(measuring.ratios(times[name], yardstick))
        found.append((f"{task}: {name}", middle, compared, f"{memory[name]:.0f}"))
    return found


def main() -> None:
    """Measure all four and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=measuring.HERE / "large_networks.txt")
    given = parser.parse_args()
    pythons = {"project": [sys.executable], "peers": measuring.peers_python()}
    table = [("network, batch: contestant", "ms a step", "ratio", "peak MB")]
    for network in ("dense", "conv"):
        for batch in (128, 500):
            table += measure(network, batch, given.rounds, pythons)
    growing = [("parameters: contestant", *table[0][1:])]
    for network, size in GROWING.items():
        rows = measure(network, 128, given.rounds, pythons)
        growing += [(name.replace(f"{network}, 128", size), *rest) for name, *rest in rows]
    lines = [
        "one training step with Adam, 5,000 rows of 784 pixels; medians, ratios round by round to",
        f"the fastest deterministic form, with their range; {given.rounds} rounds",
        measuring.machine_text(),
        "",
        measuring.table(table),
        "",
        "784-n-n-10 of growing size, batches of 128",
        "",
        measuring.table(growing),
        "",
        "peak MB is of the whole process, Python and libraries included",
    ]
    measuring.report("\n".join(lines), given.out)


if __name__ == "__main__":
    main()
