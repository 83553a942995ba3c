"""What a GPU makes of groups of up to 4,096 fits, of large networks, and of the report's network.

Run: ``uv run --extra cuda python benchmarks/accelerator.py`` on a machine with a GPU; ``--full``
adds the report's network at full length, as `experiments/mnist_report.yaml` has it, for which
``PMBNN_DATA`` names the digits. Without a GPU it says so and ends; ``--device cpu --rounds 1``
tries it out, and writes nothing.
"""

import argparse
import statistics
import sys
import tempfile

import measuring

GROUPS = (16, 64, 256, 1_024, 4_096)
STEPS = 2_000
VARIANTS = (
    "dense-128-reparameterisation",
    "dense-500-reparameterisation",
    "conv-128-reparameterisation",
    "conv-128-flipout",
    "conv-500-reparameterisation",
)
"""Of `contestants/large.py`."""


def small_rows(groups: tuple[int, ...], steps: int, rounds: int) -> list[tuple[str, ...]]:
    """Microseconds a step of a whole group of the 2-5-5-2 network, and a step and fit."""
    from growth import measured_fit

    calls = {str(n): measured_fit(n, 700, 5, steps) for n in groups}
    times = measuring.interleaved(calls, rounds)
    found = {n: statistics.median(values) for n, values in times.items()}
    return [(f"{n} fits at once", f"{int(n) * t:.1f}", f"{t:.3f}") for n, t in found.items()]


def large_rows(rounds: int) -> list[tuple[str, ...]]:
    """Milliseconds a step of large networks, one fit."""
    from contestants.large_engine import Engine

    engines = {variant: Engine(None, variant) for variant in VARIANTS}
    for engine in engines.values():
        engine.warm_up()
    calls = {v: lambda e=e: 1e3 * measuring.seconds(e.chunk) for v, e in engines.items()}
    times = measuring.interleaved(calls, rounds)
    return [
        (variant, f"{statistics.median(found) / engines[variant].task.steps:.3f}")
        for variant, found in times.items()
    ]


def report_row(device: str) -> list[tuple[str, ...]]:
    """Minutes of the whole command for the report's network at full length."""
    file = measuring.PROJECT / "experiments" / "mnist_report.yaml"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options = ("--only", "sweep=full", "--device", device, "--out", folder)
        spent = measuring.run_quietly(measuring.sweep_command(file, *options))
    return [("mnist_report.yaml, sweep full", f"{spent / 60:.1f}")]


def main() -> int:
    """Measure and write the table; 2 where there is no such device."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--groups", type=int, nargs="+", default=GROUPS)
    parser.add_argument("--full", action="store_true")
    given = parser.parse_args()
    from pmbnn.core.machine import DeviceError, claim, device_text, find_devices, running_on

    try:
        device = find_devices(given.device)[0]
    except DeviceError as error:
        print(f"nothing measured: {error}", file=sys.stderr)
        return 2
    # Before this process takes hold of the device.
    whole = report_row(given.device) if given.full else []
    with running_on(claim(device)):
        small = small_rows(tuple(given.groups), STEPS, given.rounds)
        large = large_rows(given.rounds)
    lines = [
        f"{device_text([device])}; {measuring.machine_text()}; medians of {given.rounds} rounds",
        "",
        measuring.table([("2-5-5-2, 700 rows", "us a step", "us a step and fit"), *small]),
        "",
        measuring.table([("network-batch-estimator, one fit", "ms a step"), *large]),
    ]
    if whole:
        lines += ["", measuring.table([("whole command", "minutes"), *whole])]
    out = measuring.HERE / "accelerator.txt" if device.is_accelerator else None
    measuring.report("\n".join(lines), out if given.rounds > 1 else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
