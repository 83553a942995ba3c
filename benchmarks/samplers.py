"""MCLMC, MAMS, NUTS and tempered SMC on the 2-5-5-2 network on moons; MCLMC on UCI tables.

Run: ``uv run python benchmarks/samplers.py`` (two to six minutes of one core a model). Each sampler
runs with its default settings in a process of its own on one core; processor time includes
compilation, and that of a second run in the same process stands beside it. With ``--peers`` NUTS of
NumPyro and of nutpie run on the first model too. Class probabilities at test inputs are compared by
total variation, between samplers and between random halves of the chains of one, which is the floor
of what can be told apart.

With ``--uci``, chains of MCLMC sample networks of 50 units on two splits of tables in the folder
that PMBNN_DATA names. Both splits have the same programs, which the first compiles.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import measuring
import numpy as np
import pandas as pd

ENGINES = ("mclmc", "mams", "nuts", "smc")
PEERS = ("numpyro", "nutpie")
MODELS = tuple((p, h) for h in ("fixed", "half_normal") for p in ("normal", "laplace", "cauchy"))
NOISE, HIDDEN = 0.4, (5, 5)

UCI = ("boston", "concrete", "energy", "wine")
CHAINS = {"start": "map", "chains": 8, "draws": 200, "thin": 60, "doublings": 0}
"""Settings of the chains there: 30,000 gradients each."""


def main() -> None:
    """Run every sampler on every model and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", help="of models, as PRIOR/HYPERPRIOR")
    parser.add_argument("--folder", type=Path, help="keep runs there, and take what is there")
    parser.add_argument("--one", nargs=3, metavar=("PRIOR", "HYPERPRIOR", "ENGINE"))
    parser.add_argument("--peers", action="store_true", help="NumPyro and nutpie too")
    parser.add_argument("--uci", action="store_true", help="MCLMC on UCI tables too")
    parser.add_argument("--found", action="store_true", help="tables of the runs that are there")
    parser.add_argument("--out", type=Path, default=measuring.HERE / "samplers.txt")
    given = parser.parse_args()
    measuring.use_one_core()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if given.one:
            run(*given.one, folder)
            return
        models = [tuple(m.split("/")) for m in given.only] if given.only else MODELS
        for model in models:
            for engine in ENGINES:
                if not given.found and not file_of(folder, *model, engine).exists():
                    command = [sys.executable, __file__, "--folder", str(folder), "--one"]
                    subprocess.run([*command, *model, engine], check=True)
        if given.peers and not given.found:
            run_peers(folder)
        if given.uci and not given.found:
            rows = [("table", "split", "rows", "CPU s", "status", "R-hat", "NLL", "NLL, one chain")]
            rows += [row for name in UCI for row in run_uci(name)]
            (folder / "uci.txt").write_text(measuring.table(rows))
        measuring.report(tables(folder, models), given.out)


def file_of(folder: Path, prior: str, hyperprior: str, engine: str) -> Path:
    """Where a run is kept."""
    return folder / f"{prior}-{hyperprior}-{engine}.npz"


def run_peers(folder: Path) -> None:
    """Samplers of the peers on the first model."""
    from pmbnn.data import Moons

    data, given = Moons(noise=NOISE).load(), folder / "data.npz"
    np.savez(given, x=data.x_train, y=data.y_train, x_test=data.x_test)
    for name in PEERS:
        out = file_of(folder, *MODELS[0], name)
        if not out.exists():
            command = [*measuring.peers_python(), "-m", "contestants.nuts_of_peers", name]
            files = [str(given.resolve()), str(out.resolve())]
            subprocess.run([*command, *files], check=True, cwd=measuring.HERE)


def run(prior: str, hyperprior: str, engine: str, folder: Path) -> None:
    """One sampler on one model: what is kept of it."""
    import pmbnn as pb
    from pmbnn.data import Moons
    from pmbnn.inference.batches import model_values
    from pmbnn.prediction.draws import KeptDraws

    data = Moons(noise=NOISE).load()
    model = pb.dense_classifier(
        data.x_train, data.y_train, hidden=HIDDEN, prior=prior, hyperprior=hyperprior
    )
    start = time.process_time()
    found = pb.sample(model, engine=engine, progress=False)
    spent = time.process_time() - start
    start = time.process_time()
    pb.sample(model, engine=engine, progress=False, random_seed=1)
    again = time.process_time() - start
    chains, settings = found.chains, found.settings
    # The microcanonical integrator takes two gradients a step.
    n_steps, per_step = chains.statistics["n_steps"], 2 if engine in ("mclmc", "mams") else 1
    steps, before = n_steps.sum() * per_step, 0
    if engine == "mclmc":
        before = settings.descent + 2 * settings.tuning
    if engine == "mams":  # trajectories of the warm-up are about as long as those of draws
        before = settings.descent + 2 * settings.tuning * n_steps.mean()
    if engine == "nuts":
        before = settings.descent + found.samples.tuned["warm_up_steps"]
    values = model_values(model)
    means = [
        found.predictor.predict(
            [KeptDraws.spread(chain)], [1.0], values, data.x_test, chains.draws
        ).mean
        for chain in chains.values
    ]
    np.savez(
        file_of(folder, prior, hyperprior, engine),
        status=found.status,
        largest=np.nan if found.convergence is None else found.convergence.largest,
        seconds=spent,
        again=again,
        gradients=steps + before * settings.chains,
        shape=chains.values.shape,
        probabilities=np.asarray(means, float),
        log_evidence=chains.statistics.get("log_evidence", np.empty(0)),
    )


def run_uci(name: str) -> Iterator[tuple[str, ...]]:
    """Chains of MCLMC on two splits of a table: a row each."""
    import pmbnn as pb
    from pmbnn.prediction.density import mixture

    folder = Path(os.environ["PMBNN_DATA"]) / "uci"
    rows = pd.read_csv(folder / f"{name}.csv.gz").to_numpy(float)
    splits = np.load(folder / f"{name}_splits.npz")
    regressor = pb.BNNRegressor(50, "relu", engine="mclmc", settings=CHAINS)
    for split in range(2):
        is_test = np.isin(np.arange(len(rows)), splits[f"test_{split}"])
        start = time.process_time()
        regressor.fit(rows[~is_test, :-1], rows[~is_test, -1])
        spent, found = time.process_time() - start, regressor.posterior_
        mean, sd = regressor.target_mean_, regressor.target_sd_
        likelihood, target = found.origin.parts.likelihood, (rows[is_test, -1] - mean) / sd

        def nll(draws, likelihood=likelihood, target=target, sd=sd) -> float:
            weights, parameters = zip(*draws, strict=True)
            density = mixture(likelihood, parameters, weights).log_density(target)
            return np.log(sd) - density.mean()

        draws = found.single_draws(rows[is_test, :-1])
        alone = np.mean([nll([(1.0, chain)]) for _, chain in draws])
        rhat = f"{found.convergence.percentile:.3f}"
        cost = (str((~is_test).sum()), f"{spent:.1f}", found.status, rhat)
        yield (name, str(split), *cost, f"{nll(draws):.3f}", f"{alone:.3f}")


def tables(folder: Path, models) -> str:
    """All runs, and the distances between those of a model."""
    runs = [("model", "sampler", "status", "chains", "draws", "CPU s", "again")]
    runs[0] += ("million gradients", "largest R-hat", "log evidence", "of runs")
    apart = [("model", "samplers", "total variation", "floor of the first", "of the second")]
    for model in models:
        found = {
            engine: np.load(file_of(folder, *model, engine))
            for engine in (*ENGINES, *PEERS)
            if file_of(folder, *model, engine).exists()
        }
        name = " × ".join(model)
        runs += [(name, engine, *of_run(engine, one)) for engine, one in found.items()]
        for first, second in combinations(found, 2):
            both = [found[e]["probabilities"] for e in (first, second)]
            apart.append((name, f"{first} and {second}", *distances(*both)))
    head = f"2-5-5-2 tanh network on {NOISE} moons, 700 points; 300 test inputs; of all chains"
    parts = [head, measuring.machine_text(), "", measuring.table(runs), "", measuring.table(apart)]
    if (uci := folder / "uci.txt").exists():
        chains = (
            "50 rectified units, normal × half-normal, learned noise; 8 chains of 30,000 gradients"
        )
        parts += ["", f"UCI tables: {chains}", "", uci.read_text()]
    return "\n".join(parts)


def of_run(engine: str, found) -> tuple[str, ...]:
    """Cells of one run."""
    if engine in PEERS:
        return ("", "8", "500", f"{found['seconds']:.1f}", f"{found['again']:.1f}", *[""] * 4)
    chains, draws, _ = found["shape"]
    evidence = ("", "")
    if engine == "smc":
        from pmbnn.inference.samplers.chains import Evidence

        runs = found["log_evidence"]
        evidence = (str(Evidence.of(runs)), " ".join(f"{v:.1f}" for v in np.unique(runs)))
    cost = (f"{found['seconds']:.1f}", f"{found['again']:.1f}")
    cost += (f"{found['gradients'] / 1e6:.2f}",)
    status = str(found["status"])
    return (status, str(chains), str(draws), *cost, f"{found['largest']:.3f}", *evidence)


def distances(first: np.ndarray, second: np.ndarray) -> tuple[str, ...]:
    """Total variation between two samplers, and between halves of the chains of each."""
    from pmbnn.prediction.chain_errors import floor_of, total_variation

    apart = total_variation(first.mean(axis=0), second.mean(axis=0)).value
    floors = (floor_of(blocks, total_variation) for blocks in (first, second))
    return tuple(f"{v:.4f}" for v in (apart, *floors))


if __name__ == "__main__":
    main()
