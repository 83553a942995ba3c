"""Ensembles of a network on airfoil self-noise: `mile`, modes, ADVI, and the peer bde.

Run: ``uv run python benchmarks/ensembles.py airfoil.csv`` (one to ten minutes of one core a run).
The table has five inputs and the target in its last column. Ten members of 4 x 16 rectified units
with normal noise that depends on the inputs, under a standard normal prior; 80 % of the rows train,
inputs and target are standardised by them. Every run is a process of its own on one core, and its
processor time includes compilation. With ``--peer PYTHON``, the Python of an environment that has
sklearn-contrib-bde, its ensemble runs with its published settings.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import measuring
import numpy as np

# Starts as the peer's, about one over the root of the width, and as many steps.
LONG = {"tuning": 40_000, "spread": 0.25, "descent": 500, "descent_rate": 1e-3}
FAR = {"decoherence": 1.0}
CHAINS = {
    "mile": {},
    "mile, long": LONG,
    "mile, decoherence 1": FAR,
    "mile, decoherence 1, long": FAR | LONG,
}
FITS = {"modes": {"guide": "map"}, "ADVI": {}}
MEMBERS, DRAWS, PEER = 10, 200, "bde"


def main() -> None:
    """Run everything for every seed and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, help="the table, a CSV file")
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(5)])
    parser.add_argument("--only", nargs="+", default=[*CHAINS, *FITS, PEER])
    parser.add_argument("--peer", help="Python that has sklearn-contrib-bde")
    parser.add_argument("--folder", type=Path, help="keep runs there, and take what is there")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "SEED"))
    parser.add_argument("--out", type=Path, default=measuring.HERE / "ensembles.txt")
    given = parser.parse_args()
    measuring.use_one_core()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if given.one:
            run(*given.one, folder, rows_of(given.data))
            return
        rows = rows_of(given.data)
        np.savez(folder / "data.npz", **rows)
        for seed, name in [(s, n) for s in given.seeds for n in given.only]:
            out = file_of(folder, name, seed)
            command = [sys.executable, __file__, str(given.data.resolve()), "--folder"]
            command += [str(folder), "--one", name, str(seed)]
            if name == PEER:
                command = [given.peer, "-m", "contestants.deep_ensemble_of_peers"]
                command += [str(folder / "data.npz"), str(out), str(seed)]
            if not out.exists() and command[0] is not None:
                subprocess.run(command, check=True, cwd=measuring.HERE)
        measuring.report(table(folder, rows["y_test"]), given.out)


def file_of(folder: Path, name: str, seed: int | str) -> Path:
    """Where a run is kept."""
    return folder / f"{name.replace(', ', '_')}-{seed}.npz"


def rows_of(path: Path) -> dict[str, np.ndarray]:
    """Standardised rows, split as the peer's authors did."""
    import pandas as pd
    from sklearn.model_selection import train_test_split

    values = pd.read_csv(path).to_numpy(float)
    train, test = train_test_split(values, test_size=0.2, random_state=0)
    train, test = ((v - train.mean(axis=0)) / train.std(axis=0) for v in (train, test))
    return {"x": train[:, :-1], "y": train[:, -1], "x_test": test[:, :-1], "y_test": test[:, -1]}


def run(name: str, seed: str, folder: Path, rows: dict[str, np.ndarray]) -> None:
    """One ensemble: means and standard deviations, ``(member, draw, row)``, and its time."""
    import pmbnn as pb
    from pmbnn.data.arrays import Rows
    from pmbnn.prediction.draws import KeptDraws

    columns = tuple(f"x{i}" for i in range(rows["x"].shape[1]))
    network = {"kind": "dense", "hidden": [16] * 4, "activation": "relu"}
    start = time.process_time()
    model = pb.build_model(
        network,
        "normal",
        {"kind": "fixed", "scale": 1.0},
        {"kind": "normal", "sd": "heteroscedastic"},
        Rows(rows["x"], rows["y"], columns, ()),
    )
    settings = {"random_seed": int(seed), "progress": False}
    if name in CHAINS:
        found = pb.sample(model, engine="mile", chains=MEMBERS, **CHAINS[name], **settings)
        members = dict(enumerate(map(KeptDraws, found.chains.values)))
    else:
        found = pb.fit(model, restarts=MEMBERS, **FITS[name], **settings)
        members = found.sources
    seconds = time.process_time() - start
    found = replace(found, sources=members, weights=dict.fromkeys(members, 1 / MEMBERS))
    parts = [parameters for _, parameters in found.single_draws(rows["x_test"], DRAWS)]
    mean, sd = (np.concatenate([p[n] for p in parts]).astype(float) for n in ("mu", "sigma"))
    shape = (MEMBERS, -1, len(rows["y_test"]))
    sd = sd.reshape(shape)
    np.savez(file_of(folder, name, seed), mean=mean.reshape(shape), sd=sd, seconds=seconds)


def table(folder: Path, y: np.ndarray) -> str:
    """Means over the seeds, with standard errors."""
    rows = [("ensemble", "seeds", "NLL, moments", "NLL, mixture", "RMSE", "member's NLL", "CPU s")]
    for name in (*CHAINS, *FITS, PEER):
        found = [np.load(path) for path in sorted(folder.glob(file_of(folder, name, "*").name))]
        if found:
            scores = np.array([scores_of(one["mean"], one["sd"], y) for one in found])
            seconds = f"{np.mean([one['seconds'] for one in found]):.0f}"
            rows.append((name, str(len(found)), *map(mean_and_error, scores.T), seconds))
    return "\n".join([__doc__.splitlines()[2], measuring.machine_text(), "", measuring.table(rows)])


def scores_of(mean: np.ndarray, sd: np.ndarray, y: np.ndarray) -> tuple[float, ...]:
    """NLL of a normal with the moments of all draws, of their mixture; RMSE; NLL of members."""
    pooled, spread = moments(mean, sd, (0, 1))
    mixture = -np.log(np.exp(-nll(mean, sd, y)).mean(axis=(0, 1)))
    error = np.sqrt(((pooled - y) ** 2).mean())
    single = nll(*moments(mean, sd, 1), y).mean()
    return nll(pooled, spread, y).mean(), mixture.mean(), error, single


def moments(mean: np.ndarray, sd: np.ndarray, axes) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of a mixture of normals over some axes."""
    return mean.mean(axis=axes), np.sqrt((sd**2).mean(axis=axes) + mean.var(axis=axes))


def nll(mean: np.ndarray, sd: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Negative log-density of targets under normals, in nats."""
    return 0.5 * np.log(2 * np.pi * sd**2) + 0.5 * ((y - mean) / sd) ** 2


def mean_and_error(values: np.ndarray) -> str:
    """Mean, and its standard error if there are several values."""
    error = f" ± {values.std(ddof=1) / np.sqrt(len(values)):.3f}" if len(values) > 1 else ""
    return f"{values.mean():.3f}{error}"


if __name__ == "__main__":
    main()
