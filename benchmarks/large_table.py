"""Memory of a sweep of a table of 100,000 rows and 20 columns, all its processes together.

Thirteen combinations of priors and hyperpriors on one layer of 50 units, minibatches of 1,024, 20
epochs. Memory is the proportional set size, which counts shared pages once, of the command and
all processes below it, looked at once a second; the bar is 3 GB.

Run: ``uv run python benchmarks/large_table.py`` (8 min). Linux only.
"""

import subprocess
import tempfile
import threading
import time
from pathlib import Path

import measuring

ROWS, COLUMNS = 100_000, 20

EXPERIMENT = """
name: large_table
sweeps:
  - name: scaled
    dataset: {kind: table, file: table.csv, target: label}
    network: {kind: dense, hidden: [[50]], activation: relu}
    prior: [normal, laplace, cauchy, flat]
    hyperprior:
      - {kind: fixed, scale: 0.3}
      - half_normal
      - half_cauchy
      - inverse_gamma
    inference: {epochs: 20, batch: 1024, learning_rate: 0.005, initial_scale: 0.02}
    predict: {draws: 100}
"""


def write_table(path: Path) -> None:
    """Write normal inputs, and a label that depends on three of them and on their products."""
    import numpy as np
    import pandas as pd

    generator = np.random.default_rng(0)
    x = generator.normal(size=(ROWS, COLUMNS - 1)).astype(np.float32)
    score = x[:, 0] * x[:, 1] + x[:, 2] + generator.logistic(size=ROWS)
    frame = pd.DataFrame(x, columns=[f"x{i + 1}" for i in range(COLUMNS - 1)])
    frame.assign(label=np.where(score > 0, "yes", "no")).to_csv(path, index=False)


def proportional_memory(root: int) -> int:
    """Bytes of a process and of all below it, shared pages shared out."""
    import psutil

    found = 0
    try:
        processes = [psutil.Process(root), *psutil.Process(root).children(recursive=True)]
    except psutil.NoSuchProcess:
        return found
    for process in processes:
        try:
            found += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def watched(command: list[str], folder: Path) -> tuple[float, int]:
    """Seconds of a command and the most bytes that its processes took."""
    log = (folder / "log").open("w")
    started = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, stdout=log, stderr=log, env=measuring.caches_in(folder / "cache")
    )
    most = 0

    def look() -> None:
        nonlocal most
        while process.poll() is None:
            most = max(most, proportional_memory(process.pid))
            time.sleep(1)

    watcher = threading.Thread(target=look)
    watcher.start()
    status = process.wait()
    spent = time.perf_counter() - started
    watcher.join()
    if status:
        raise RuntimeError(f"The sweep ended with {status}:\n{(folder / 'log').read_text()}")
    return spent, most


def main() -> None:  # noqa: D103
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_table(folder / "table.csv")
        (folder / "large_table.yaml").write_text(EXPERIMENT)
        command = measuring.sweep_command(Path("large_table.yaml"), "--out", "results")
        spent, most = watched(command, folder)
        cells = len(list(folder.glob("results/cells/*/metrics.json")))
    text = (
        f"{measuring.machine_text()}\n\n"
        f"{ROWS:,} rows x {COLUMNS} columns, {cells} cells: {spent:.0f} s with empty caches, "
        f"at most {most / 1e9:.2f} GB over all processes"
    )
    measuring.report(text, Path(__file__).with_suffix(".txt"))


if __name__ == "__main__":
    main()
