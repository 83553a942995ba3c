"""Samplers and guides against the reference draws of posteriordb.

Run: ``uv run python benchmarks/posteriordb.py --folder RUNS`` (hours of one core; runs that are in
the folder are not repeated, and the table is written anew after each). PMBNN_DATA must name a
folder with ``posteriordb``. Every method runs with its default settings on every posterior, in a
process of its own on one core with empty caches; guides give 10,000 draws, nutpie runs four chains
one after the other, and ``pymc_advi`` is PyMC's own ``pm.fit``. Times go from the model to draws of
its variables, with compilation; those of a second run in the same process, with another seed, stand
beside them.

Means and standard deviations of all parameters are compared with those of the reference draws.
Samplers are right if means are within 0.05 reference standard deviations and standard deviations
within 3 %, or beyond these tolerances by no more than three joint Monte-Carlo errors. Guides are
right if means are within 0.25: the standard deviations of their families are others.

``--stein`` checks the models instead of the methods: over the reference draws, the gradient of the
log-density has mean zero, and mean -1 when multiplied by the distance from the mean.
"""

import argparse
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import measuring
import numpy as np

SAMPLERS, GUIDES = ("mclmc", "nuts"), ("mean_field", "full_rank")
PEER, PEER_GUIDE = "nutpie", "pymc_advi"
METHODS = (*SAMPLERS, *GUIDES, PEER, PEER_GUIDE)

MEAN, SPREAD, ERRORS = 0.05, 0.03, 3.0
"""Tolerances: of means in reference standard deviations, of standard deviations relative to the
reference, and beyond these in joint Monte-Carlo errors."""

GUIDE_MEAN = 0.25
"""Tolerance of the means of guides. On posteriors that are far from normal the optimum of the
family may be off by more."""

DRAWS = 10_000
"""Draws of a guide: the error of a standard deviation is 0.7 %."""

LIMIT, CHEAP = 1_800, 60
"""Processor seconds after which a run is stopped, and below which it is repeated."""


def main() -> None:
    """Run every method on every posterior and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names of posteriors")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=METHODS)
    parser.add_argument("--folder", type=Path, help="keep runs there, and take what is there")
    parser.add_argument("--one", nargs=3, metavar=("POSTERIOR", "METHOD", "FOLDER"))
    parser.add_argument("--stein", action="store_true", help="check the models")
    parser.add_argument("--out", type=Path, default=measuring.HERE / "posteriordb.txt")
    given = parser.parse_args()
    if unknown := set(given.methods) - set(METHODS):
        parser.error(f"--methods must be of {', '.join(METHODS)}, got {', '.join(unknown)}")
    measuring.use_one_core()
    if given.one:
        posterior, method, folder = given.one
        run(posterior, method, Path(folder))
        return
    import posteriordb_models as models

    names = [n for n in models.posteriors() if any(part in n for part in given.only)]
    if given.stein:
        check_models(names)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            for method in given.methods:
                if models.posteriors()[name].model in models.REFUSED:
                    continue
                if not file_of(folder, name, method).exists():
                    start(name, method, folder)
                    given.out.write_text(text_of(folder, names, given.methods) + "\n")
        measuring.report(text_of(folder, names, given.methods), given.out)


# Runs


class Run(NamedTuple):
    """What is kept of a run besides its draws: seconds are pairs of wall and processor time."""

    status: str
    reason: str
    cold: tuple[float, float] | None = None
    again: tuple[float, float] | None = None
    commit: str = ""


type Draws = dict[str, np.ndarray]
"""Draws of scalar parameters by name, ``(chain, draw)``."""


def file_of(folder: Path, posterior: str, method: str) -> Path:
    """Where a run is kept."""
    return folder / f"{posterior}-{method}.npz"


def store(path: Path, run: Run, draws: Draws) -> None:
    """Keep a run."""
    np.savez(path, run=json.dumps(run._asdict()), **draws)


def load(path: Path) -> tuple[Run, Draws]:
    """A run that was kept."""
    with np.load(path) as arrays:
        draws = {name: arrays[name] for name in arrays.files if name != "run"}
        return Run(**json.loads(str(arrays["run"]))), draws


def start(posterior: str, method: str, folder: Path) -> None:
    """One run in a process of its own; a failed one is kept with the last line of its output."""
    python = [sys.executable]
    if method == PEER:
        python = [*measuring.peers_python(), "-c", "import sys; print(sys.executable)"]
        python = [measuring.output_of(python).strip()]
    command = [*python, __file__, "--one", posterior, method, str(folder)]
    with tempfile.TemporaryDirectory() as caches:
        environment = measuring.caches_in(Path(caches))
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        (*_, reason) = done.stderr.splitlines() or [f"ended with {done.returncode}"]
        path = file_of(folder, posterior, method)
        store(path, Run("failed", reason, commit=commit()), {})


def run(posterior: str, method: str, folder: Path) -> None:
    """One method on one posterior: its draws, status and times."""
    import posteriordb_models as models

    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 60))
    signal.signal(signal.SIGXCPU, _stop)
    listed = models.posteriors()[posterior]
    model, names = models.build(listed), list(models.reference_draws(listed))
    peers = {PEER: by_nutpie, PEER_GUIDE: by_pymc}
    draw = peers[method](model) if method in peers else by_pmbnn(model, method)
    (status, reason, arrays), cold = timed(lambda: draw(0))
    kept = Run(status, reason, cold, None, commit())
    path, draws = file_of(folder, posterior, method), models.scalars(arrays, names)
    store(path, kept, draws)
    if cold[1] < CHEAP:
        store(path, kept._replace(again=timed(lambda: draw(1))[1]), draws)


def _stop(*_) -> None:
    raise TimeoutError(f"stopped after {LIMIT:,} s of processor time")


def timed(call: Callable):
    """What a call returns, and its wall and processor time in seconds."""
    wall, processor = time.perf_counter(), time.process_time()
    result = call()
    return result, (time.perf_counter() - wall, time.process_time() - processor)


def by_pmbnn(model, method: str) -> Callable[[int], tuple[str, str, Draws]]:
    """Function of a seed: status, reason and draws ``(chain, draw, *shape)`` by name."""
    import pmbnn as pb

    def fit(seed: int):
        fitted = pb.fit(model, guide=method, random_seed=seed, progress=False)
        arrays = {name: v[None] for name, v in fitted.sample(DRAWS).items()}
        return fitted.status, fitted.reason, arrays

    def sample(seed: int):
        sampled = pb.sample(model, engine=method, random_seed=seed, progress=False)
        arrays, whole = sampled.to_datatree()["posterior"], ~sampled.chains.broken
        return sampled.status, sampled.reason, {n: arrays[n].values[whole] for n in arrays}

    return fit if method in GUIDES else sample


def by_nutpie(model) -> Callable[[int], tuple[str, str, Draws]]:
    """The same of nutpie, which has no status; its reason is the largest R-hat."""
    import nutpie
    from arviz_stats.base import array_stats

    compiled = []

    def sample(seed: int):
        if not compiled:
            compiled.append(nutpie.compile_pymc_model(model))
        tree = nutpie.sample(compiled[0], chains=4, cores=1, seed=seed, progress_bar=False)
        arrays = {name: array.values for name, array in tree["posterior"].items()}
        flat = np.concatenate([v.reshape(*v.shape[:2], -1) for v in arrays.values()], axis=-1)
        rhat = array_stats.rhat(flat, chain_axis=0, draw_axis=1).max()
        divergent = int(tree["sample_stats"]["diverging"].sum())
        return "", f"largest R-hat {rhat:.3f}, {divergent} divergent draws", arrays

    return sample


def by_pymc(model) -> Callable[[int], tuple[str, str, Draws]]:
    """The same of PyMC's mean-field ADVI, which has no status either."""
    import pymc as pm

    def fit(seed: int):
        fitted = pm.fit(model=model, random_seed=seed, progressbar=False)
        posterior = fitted.sample(DRAWS, random_seed=seed)["posterior"]
        reason = f"mean ELBO of the last tenth {-fitted.hist[-len(fitted.hist) // 10 :].mean():.1f}"
        return "", reason, {name: posterior[name].values for name in posterior}

    return fit


def commit() -> str:
    """Short name of the commit, marked if files differ from it."""
    return measuring.output_of(["git", "describe", "--always", "--dirty"]).strip()


# Comparison with the reference


class Moments(NamedTuple):
    """Means and standard deviations of parameters, and their Monte-Carlo errors."""

    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray

    @classmethod
    def of(cls, draws: Draws, names: list[str]) -> "Moments":
        """Moments of parameters in the order of their names."""
        from arviz_stats.base import array_stats

        stacked = np.stack([draws[name] for name in names])
        errors = (array_stats.mcse(stacked, method=method) for method in ("mean", "sd"))
        return cls(stacked.mean(axis=(1, 2)), stacked.std(axis=(1, 2), ddof=1), *errors)


class Comparison(NamedTuple):
    """Largest differences over parameters; a quantity that is not a number counts as wrong.

    Attributes
    ----------
    mean
        Difference of means, in standard deviations of the reference.
    mean_errors
        The same in joint Monte-Carlo errors.
    spread
        Difference of standard deviations, relative to the reference.
    spread_errors
        The same in joint Monte-Carlo errors.
    precision
        Joint Monte-Carlo error of a mean, in standard deviations of the reference.
    is_right
        Whether all differences are within the tolerances.
    """

    mean: float
    mean_errors: float
    spread: float
    spread_errors: float
    precision: float
    is_right: bool


def compare(
    draws: Draws, reference: Draws, mean_within: float = MEAN, spread_within: float = SPREAD
) -> Comparison:
    """Draws of the parameters against reference draws, with tolerances."""
    names = list(reference)
    ours, theirs = (Moments.of(d, names) for d in (draws, reference))
    mean = np.abs(ours.mean - theirs.mean) / theirs.sd
    spread = np.abs(ours.sd / theirs.sd - 1)
    mean_error = np.hypot(ours.mean_error, theirs.mean_error) / theirs.sd
    spread_error = np.hypot(ours.sd_error, theirs.sd_error) / theirs.sd
    are_right = mean <= mean_within + ERRORS * mean_error
    are_right &= spread <= spread_within + ERRORS * spread_error
    largest = (mean, mean / mean_error, spread, spread / spread_error, mean_error)
    return Comparison(*(float(v.max()) for v in largest), bool(are_right.all()))


# Tables


class Row(NamedTuple):
    """A run and its comparison, which is None without draws."""

    posterior: str
    method: str
    run: Run
    comparison: Comparison | None

    @property
    def verdict(self) -> str:
        """Whether the run is right."""
        if self.comparison is None:
            return "no draws"
        return "right" if self.comparison.is_right else "off"

    @property
    def is_vague(self) -> bool:
        """Whether the error of a mean exceeds its tolerance: the verdict says little."""
        return self.comparison is not None and not self.comparison.precision <= MEAN


def rows_of(folder: Path, names, methods) -> Iterator[Row]:
    """All runs that are there."""
    import posteriordb_models as models

    for name in names:
        reference = models.reference_draws(models.posteriors()[name])
        for method in methods:
            if (path := file_of(folder, name, method)).exists():
                run, draws = load(path)
                has_draws = bool(draws) and min(v.size for v in draws.values()) > 0
                is_guide = method in (*GUIDES, PEER_GUIDE)
                within = (GUIDE_MEAN, np.inf) if is_guide else (MEAN, SPREAD)
                found = compare(draws, reference, *within) if has_draws else None
                yield Row(name, method, run, found)


def text_of(folder: Path, names, methods) -> str:
    """All tables, with the command, the commit and the machine."""
    import posteriordb_models as models

    rows = list(rows_of(folder, names, methods))
    refused = [
        f"{name}: refused, {models.REFUSED[listed.model]}"
        for name, listed in models.posteriors().items()
        if name in names and listed.model in models.REFUSED
    ]
    commits = ", ".join(sorted({row.run.commit for row in rows}))
    parts = [
        f"python benchmarks/posteriordb.py --methods {','.join(methods)}, at {commits}",
        measuring.machine_text(),
        f"differences are the largest of all parameters; tolerances: {MEAN} sd for means, "
        f"{SPREAD:.0%} for standard deviations, and {ERRORS:g} joint Monte-Carlo errors; of guides "
        f"{GUIDE_MEAN} sd for means alone",
        "MC error: the largest of a mean, in sd; second runs in the same process: again",
    ]
    tables = (totals(rows, methods), by_status(rows, methods), details(rows))
    for table in tables:
        parts += ["", measuring.table(table)]
    return "\n".join([*parts, *([""] if refused else []), *refused])


def details(rows: list[Row]) -> list[tuple[str, ...]]:
    """A line for each run."""
    head = ("posterior", "method", "status", "verdict", "mean, sd", "errors", "sd, %", "errors")
    table = [(*head, "MC error", "s", "CPU s", "again, s", "CPU s", "  reason")]
    for row in rows:
        cells = [""] * 5
        if (c := row.comparison) is not None:
            cells = [f"{c.mean:.3f}", f"{c.mean_errors:.1f}", f"{100 * c.spread:.1f}"]
            cells += [f"{c.spread_errors:.1f}", f"{c.precision:.3f}"]
        times = [f"{t:.1f}" for pair in (row.run.cold, row.run.again) for t in pair or ()]
        times += [""] * (4 - len(times))
        start = (row.posterior, row.method, row.run.status, row.verdict)
        table.append((*start, *cells, *times, f"  {row.run.reason}"))
    # Aligned to the left.
    width = max(len(line[-1]) for line in table)
    return [(*line[:-1], line[-1].ljust(width)) for line in table]


def totals(rows: list[Row], methods) -> list[tuple[str, ...]]:
    """A line for each method: verdicts, and times over those of nutpie, both cold."""
    head = ("method", "right", "off", "no draws", "wrong and converged", "MC error > tolerance")
    table = [(*head, f"time / {PEER}", "CPU / its")]
    peers = {row.posterior: row.run.cold for row in rows if row.method == PEER}
    for method in methods:
        of = [row for row in rows if row.method == method]
        verdicts = Counter(row.verdict for row in of)
        wrong = sum(row.verdict == "off" and row.run.status == "converged" for row in of)
        counts = [*(verdicts[v] for v in ("right", "off", "no draws")), wrong]
        counts.append(sum(row.is_vague for row in of))
        pairs = [(row.run.cold, peers.get(row.posterior)) for row in of]
        ratios = [np.divide(ours, theirs) for ours, theirs in pairs if ours and theirs]
        medians = [f"{m:.2f}" for m in np.median(ratios, axis=0)] if ratios else ["", ""]
        table.append((method, *map(str, counts), *medians))
    return table


def by_status(rows: list[Row], methods) -> list[tuple[str, ...]]:
    """A line for each method and status, with the numbers of right and wrong runs."""
    table = [("method and status", "right", "off", "no draws")]
    counts = Counter((row.method, row.run.status, row.verdict) for row in rows)
    kinds = {(row.method, row.run.status) for row in rows}
    for method, status in sorted(kinds, key=lambda kind: (methods.index(kind[0]), kind[1])):
        cells = (str(counts[method, status, v]) for v in ("right", "off", "no draws"))
        table.append((f"{method}, {status or 'no status'}", *cells))
    return table


# Check of the models


def check_models(names) -> None:
    """Print the largest means of Stein's identities for each model, in Monte-Carlo errors."""
    import posteriordb_models as models

    print(f"{'posterior':<45}{'gradient':>12}{'and distance':>15}")
    for name in names:
        if (listed := models.posteriors()[name]).model not in models.REFUSED:
            first, second = stein(listed, models.reference_draws(listed))
            print(f"{name:<45}{np.abs(first).max():12.2f}{np.abs(second).max():15.2f}", flush=True)


def stein(posterior, draws: Draws) -> tuple[np.ndarray, np.ndarray]:
    """Means over draws that are 0 if these are of the model's posterior, in Monte-Carlo errors.

    Of the unconstrained variables u with log-density log p, in coordinates with mean 0 and
    covariance 1: the means of the gradient of log p, and of 1 + u times it, ``(variable,)`` each.

    References
    ----------
    Stein (1972), A bound for the error in the normal approximation.
    """
    import jax
    import posteriordb_models as models
    from arviz_stats.base import array_stats

    from pmbnn.inference.batches import model_values
    from pmbnn.inference.flat import n_observations
    from pmbnn.inference.log_density import build_log_density

    model = models.build(posterior)
    density = build_log_density(model, n_observations(model), "float64")
    values = unconstrained(model, free_variables(posterior, draws))
    vectors = np.concatenate([values[s.name] for s in density.flat.layout.slots], axis=-1)
    function = jax.grad(density.at(density.prepare(model_values(model))))
    flat = vectors.reshape(-1, density.flat.size)
    gradients = np.asarray(jax.lax.map(function, flat, batch_size=500)).reshape(vectors.shape)
    # Without these coordinates, a wrong prior of correlated variables would be lost in the noise.
    factor = np.linalg.cholesky(np.cov(flat.T))
    gradients = gradients @ factor
    standardised = (vectors - flat.mean(axis=0)) @ np.linalg.inv(factor).T
    products = 1 + standardised * gradients
    return tuple(
        terms.mean(axis=(0, 1)) / array_stats.mcse(terms, chain_axis=0, draw_axis=1)
        for terms in (gradients, products)
    )


def unconstrained(model, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Unconstrained free variables of a model, ``(chain, draw, element)``, by value variable."""
    import pytensor.tensor as pt
    from pytensor.graph.replace import vectorize_graph

    graphs = {}
    for v in model.free_RVs:
        transform = model.rvs_to_transforms[v]
        value = v if transform is None else transform.forward(v, *v.owner.inputs)
        graphs[model.rvs_to_values[v].name] = pt.atleast_1d(value).ravel()
    replaced = {v: pt.constant(arrays[v.name]) for v in model.free_RVs}
    found = vectorize_graph(list(graphs.values()), replaced)
    return dict(zip(graphs, (graph.eval(mode="FAST_COMPILE") for graph in found), strict=True))


def free_variables(posterior, draws: Draws) -> dict[str, np.ndarray]:
    """Free variables by name, ``(chain, draw, *shape)``, from draws of what they determine."""
    import posteriordb_models as models

    by_name: dict[str, list[np.ndarray]] = {}
    for name, values in draws.items():
        by_name.setdefault(name.partition("[")[0], []).append(values)
    arrays = {n: np.stack(v, -1) if f"{n}[1]" in draws else v[0] for n, v in by_name.items()}
    if posterior.model in models.STANDARDISED:
        arrays |= models.STANDARDISED[posterior.model](models.data_of(posterior), arrays)
    return arrays


if __name__ == "__main__":
    main()
