"""Small outputs of every kind, which a later state of the package must give again.

``python benchmarks/golden.py FOLDER`` writes, in a few minutes: a sweep of classes, numbers and
digits with ADVI and MCLMC, and the tables that commands make of it; the same sweep killed and
resumed; its folder moved and asked for predictions; an estimator, `fit` and `sample`.
``python benchmarks/same_numbers.py OLD NEW`` then compares two such folders, to the last bit on one
machine.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

PROGRAM = str(Path(sys.executable).with_name("pmbnn"))

DATA = {"train": 120, "test": 60}
PREDICT = {
    "draws": 50,
    "trace_draws": 20,
    "map": {"resolution": 10},
    "fresh": {"size": 100, "draws": 5},
}
CHAINS = {"engine": "mclmc", "chains": 2, "draws": 50, "descent": 50, "tuning": 300}
SCALES = [{"kind": "fixed", "scale": {"tune": {"log": [0.1, 10, 3]}}}, "half_normal"]

EXPERIMENT = {
    "name": "golden",
    "sweeps": [
        {
            "name": "planes",
            "dataset": {"kind": "moons", "noise": 0.3, "seed": [0, 1], **DATA},
            "network": {"kind": "dense", "hidden": [[3]]},
            "prior": ["normal", "laplace", "flat"],
            "hyperprior": SCALES,
            "inference": {"steps": 300, "restarts": 2},
            "predict": PREDICT,
        },
        {
            "name": "chains",
            "dataset": {"kind": "circles", "noise": 0.3, "seed": [0, 1], **DATA},
            "network": {"kind": "dense", "hidden": [[3]]},
            "prior": "normal",
            "hyperprior": ["fixed", "half_normal"],
            "inference": [{"steps": 300, "restarts": 2}, CHAINS],
            "predict": PREDICT,
        },
        {
            "name": "numbers",
            "dataset": {"kind": "table", "file": "rows.csv", "target": "weight", "seed": [0, 1]},
            "network": {"kind": "dense", "hidden": [[3]]},
            "prior": ["normal", "cauchy"],
            "hyperprior": SCALES,
            "inference": {"steps": 300, "restarts": 2},
            "predict": {"draws": 50, "trace_draws": 20},
        },
        {
            "name": "digits",
            "dataset": {"kind": "mnist", "source": "embedded", "train": 200, "test": 60},
            "network": {"kind": "dense", "hidden": [[4]]},
            "prior": ["normal", "laplace"],
            "inference": {"steps": 50},
            "predict": {"draws": 10},
        },
    ],
}


def main() -> None:
    """Write every output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True)
    write_rows(folder)
    file = folder / "golden.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT))
    sweep = folder / "sweep"
    command("sweep", file, "--out", sweep, "--quiet")
    for arguments in (["compare"], ["claims"], ["baselines", "--methods", "linear"]):
        command(*arguments, sweep)
    interrupted(file, folder / "resumed")
    moved(sweep, folder)
    from_python(folder)


def command(*arguments: object) -> None:
    """Run a command of the package to its end."""
    subprocess.run([PROGRAM, *map(str, arguments)], check=True)


def write_rows(folder: Path) -> None:
    """Write a table with columns of every kind, and new rows of it without the target."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"length": rng.normal(5, 2, 150).round(3), "colour": rng.choice(3, 150)})
    rows["colour"] = rows["colour"].map({0: "red", 1: "green", 2: "blue"})
    rows["weight"] = (rows["length"] * 3 + (rows["colour"] == "red") + rng.normal(size=150)).round(
        3
    )
    rows.to_csv(folder / "rows.csv", index=False)
    rows.drop(columns="weight").head(10).to_csv(folder / "new.csv", index=False)


def interrupted(file: Path, out: Path) -> None:
    """Kill a sweep once it has stored a cell; the same command ends it."""
    arguments = ["sweep", str(file), "--out", str(out), "--quiet", "--only", "sweep=planes"]
    process = subprocess.Popen([PROGRAM, *arguments], start_new_session=True)
    while process.poll() is None and not list(out.glob("cells/[!.]*")):
        time.sleep(0.05)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    command(*arguments)


def moved(sweep: Path, folder: Path) -> None:
    """Predict new rows with the cells of a folder that was moved."""
    elsewhere = folder / "moved"
    shutil.copytree(sweep, elsewhere)
    cells = sorted(elsewhere.glob("cells/table-*"))
    assert cells, "the cells on rows.csv are found by their names"
    for cell in cells:
        command("predict", cell, folder / "new.csv", "--out", folder / f"{cell.name}.csv")


def from_python(folder: Path) -> None:
    """Predictions of an estimator, and what `fit` and `sample` find of one model."""
    import pymc as pm
    from sklearn.datasets import make_moons

    import pmbnn as pb

    x, y = make_moons(80, noise=0.3, random_state=0)
    classifier = pb.BNNClassifier(steps=200, random_state=0).fit(x, y)
    pd.DataFrame(classifier.predict_proba(x)).to_csv(folder / "estimator.csv", index=False)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu", 0, 10), pm.HalfNormal("sigma", 5), observed=x[:, 0])
    fit = pb.fit(model, steps=500, random_seed=0)
    sampled = pb.sample(model, chains=2, draws=100, random_seed=0)
    for name, found in {"fit": fit.to_datatree(draws=50), "sample": sampled.to_datatree()}.items():
        posterior = found["posterior"].to_dataset()
        table = pd.DataFrame({v: posterior[v].values.ravel() for v in ("mu", "sigma")})
        table.to_csv(folder / f"{name}.csv", index=False)


if __name__ == "__main__":
    main()
