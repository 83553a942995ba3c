"""Names, identities, groups, jobs, the estimate of the work, and the printed plan."""

import re
from dataclasses import replace

import pytest

from pmbnn.core import machine
from pmbnn.core.errors import ConfigError
from pmbnn.core.machine import CPU, Device
from pmbnn.core.spec import Specification, Tune, added
from pmbnn.data import Circles, Mnist, Moons, RandomSplit, Table
from pmbnn.data.ood import NormalNoise
from pmbnn.data.synthetic import Sine
from pmbnn.experiment import plan
from pmbnn.experiment.axes import Choice
from pmbnn.experiment.cells import Cell, Experiment, cell_label, choosing_rows
from pmbnn.experiment.cost import (
    CHAIN_LENGTH,
    MULTIPLY_ADD,
    PARAMETER,
    PREDICTION,
    ROW,
    STORING,
    cell_work,
    multiply_adds,
    takes_all_cores,
    total_work,
)
from pmbnn.experiment.expand import Sweep
from pmbnn.experiment.load import as_written
from pmbnn.experiment.plan import (
    group_key,
    identity,
    job_label,
    jobs,
    plan_lines,
    print_plan,
    settings_digest,
    wall_seconds,
    width,
)
from pmbnn.inference.samplers.settings import Mclmc, Mile
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed, HalfNormal, Match, PyMCHyperprior
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.likelihoods import Normal as NormalLikelihood
from pmbnn.models.likelihoods import StudentT as StudentTLikelihood
from pmbnn.models.networks import Dense, Lenet5, ReportConv
from pmbnn.models.priors import Flat, Horseshoe, Laplace, Normal, PyMCPrior, ScaleMixture, StudentT
from pmbnn.prediction.settings import Fresh, Map, Predict

CELL = Cell(
    "sweep",
    Moons(noise=0.4),
    Dense(),
    Normal(),
    HalfNormal(),
    Categorical(),
    Inference(restarts=3),
    Predict(),
)
CELL16 = replace(CELL, inference=Inference(restarts=16))
MNIST = replace(CELL, dataset=Mnist(source="embedded"), network=Dense(hidden=(64, 64)))


PRIORS = (Normal(), Laplace())


@pytest.fixture(autouse=True)
def _reference_machine(monkeypatch):
    """Times are told for two cores of the machine that the constants are from."""
    monkeypatch.setattr(plan, "slowness", lambda: 1.0)
    monkeypatch.setattr(plan, "cores", lambda: 2)


def grid(priors=PRIORS, seeds=12, restarts=3):
    """Cells of a small grid, data sets slowest."""
    return [
        replace(
            CELL,
            dataset=Moons(noise=0.4, seed=s),
            prior=p,
            inference=Inference(restarts=restarts),
        )
        for s in range(seeds)
        for p in priors
    ]


# Labels


@pytest.mark.parametrize(
    ("changes", "label"),
    [
        ({}, "moons-noise0.4-seed0_dense-5-5_normal_half_normal"),
        (
            {"dataset": Circles(noise=0.35, factor=0.6, seed=2)},
            "circles-noise0.35-factor0.6-seed2_dense-5-5_normal_half_normal",
        ),
        (
            {"network": Dense(hidden=(), activation="relu"), "prior": Laplace(fan_in=True)},
            "moons-noise0.4-seed0_dense-linear-relu_laplace-fan_in_half_normal",
        ),
        (
            {"prior": Laplace(bias_scale=2.0)},
            "moons-noise0.4-seed0_dense-5-5_laplace-bias_scale2_half_normal",
        ),
        (
            {"hyperprior": Fixed(scale=0.1), "inference": Inference(steps=10_000)},
            "moons-noise0.4-seed0_dense-5-5_normal_fixed-scale0.1",
        ),
        (
            {"hyperprior": Fixed(scale=Tune(log=(0.1, 10, 7)))},
            "moons-noise0.4-seed0_dense-5-5_normal_fixed-tuned-0.1-10-7",
        ),
        (
            {"hyperprior": HalfNormal(on="variance"), "inference": Inference(steps=50, seed=3)},
            "moons-noise0.4-seed0_dense-5-5_normal_half_normal-variance_steps50-seed3",
        ),
        (
            {"dataset": Mnist(source="local", folder="/a b/c")},
            "mnist-local-seed0_dense-5-5_normal_half_normal",
        ),
        ({"prior": StudentT()}, "moons-noise0.4-seed0_dense-5-5_student_t-nu4_half_normal"),
        (
            {"prior": PyMCPrior(dist="Gumbel", mu=0, beta=0.7, fan_in=True)},
            "moons-noise0.4-seed0_dense-5-5_pymc-Gumbel-beta0.7-mu0-fan_in_half_normal",
        ),
        (
            {"hyperprior": PyMCHyperprior(dist="Gamma", alpha=2, beta=1, on="variance")},
            "moons-noise0.4-seed0_dense-5-5_normal_pymc-Gamma-alpha2-beta1-variance",
        ),
        ({"prior": Horseshoe()}, "moons-noise0.4-seed0_dense-5-5_horseshoe_half_normal"),
        (
            {"prior": ScaleMixture(sigma_1=0.5, learned=True)},
            "moons-noise0.4-seed0_dense-5-5_scale_mixture-sigma_1_0.5-learned_half_normal",
        ),
    ],
)
def test_label_shows_what_is_unusual(changes, label):
    assert cell_label(replace(CELL, **changes)) == label


def test_label_is_short_and_safe():
    label = cell_label(replace(CELL, network=Dense(hidden=(100,) * 100)))
    assert len(label) < 120
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*[A-Za-z0-9]", label)


# Identity


def test_identity_depends_on_everything_but_the_sweep():
    versions = {"jax": "1"}
    first = identity(CELL, "data", versions)
    assert re.fullmatch("[0-9a-f]{12}", first)
    assert identity(replace(CELL, sweep="other"), "data", versions) == first
    others = [
        identity(CELL, "other data", versions),
        identity(CELL, "data", {"jax": "2"}),
        *(identity(replace(CELL, **{k: v}), "data", versions) for k, v in CHANGES.items()),
    ]
    assert len({first, *others}) == 1 + len(others)


CHANGES = {
    "dataset": Moons(noise=0.4, seed=1),
    "network": Dense(hidden=(5,)),
    "prior": Laplace(),
    "hyperprior": HalfNormal(sigma=2),
    "inference": Inference(restarts=3, seed=1),
    "predict": Predict(map=Map(margin=1)),
}


def test_identities_stay_what_they_are():
    """Folders of results and PRNG keys hang on these digits."""
    assert identity(CELL, "data", {"jax": "1"}) == "3baa00f941f0"
    digest = "3df08470a8e2d12e58209dd275f3802ffa495b0d0ccb413ddae34ef81773fd4d"
    assert settings_digest(CELL) == digest


def test_fits_do_not_depend_on_what_is_predicted_or_on_the_number_of_restarts():
    more = replace(CELL, inference=Inference(restarts=5), predict=Predict(draws=7))
    assert settings_digest(more) == settings_digest(CELL)
    assert settings_digest(replace(CELL, inference=Inference(seed=1))) != settings_digest(CELL)


def test_identity_depends_on_everything_of_the_search_cell():
    tuned = replace(CELL, inference=Inference(learning_rate=Tune(log=(0.01, 0.1, 3))))
    search_cell = replace(tuned, dataset=Moons(noise=0.4, seed=1))
    first = identity(tuned, "data", {}, (search_cell, "its data"))
    assert identity(replace(tuned, sweep="other"), "data", {}, (search_cell, "its data")) == first
    assert identity(tuned, "data", {}, (replace(search_cell, sweep="other"), "its data")) == first
    others = [
        identity(tuned, "data", {}),
        identity(tuned, "data", {}, (tuned, "its data")),
        identity(tuned, "data", {}, (search_cell, "other data")),
        identity(
            replace(tuned, hyperprior=HalfNormal(sigma=2)), "data", {}, (search_cell, "its data")
        ),
    ]
    assert len({first, *others}) == 5


# Groups


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": Circles(noise=0.1, seed=4)},
        {"hyperprior": HalfNormal(sigma=3)},
        {"inference": Inference(seed=5, restarts=2)},
        {"inference": Inference(learning_rate=0.1)},
        {"sweep": "other"},
    ],
)
def test_values_do_not_split_a_group(changes):
    assert group_key(replace(CELL, **changes)) == group_key(CELL)


@pytest.mark.parametrize(
    "changes",
    [
        {"dataset": Moons(noise=0.4, train=701)},
        {"dataset": Mnist(source="embedded")},
        {"network": Dense(hidden=(5,))},
        {"prior": Laplace()},
        {"prior": Flat(), "hyperprior": Fixed(scale=None)},
        {"hyperprior": HalfNormal(per="unit")},
        {"hyperprior": Fixed()},
        {"inference": Inference(learning_rate=Tune(log=(0.01, 0.1, 3)))},
        {"inference": Inference(validation=0)},
        {"predict": Predict(draws=10)},
    ],
)
def test_structure_splits_a_group(changes):
    assert group_key(replace(CELL, **changes)) != group_key(CELL)


class Strips(Mnist):
    """The same pixels in another shape."""

    image_shape = (14, 56)


def test_shapes_of_images_split_a_group():
    cells = [replace(MNIST, dataset=cls(source="embedded")) for cls in (Mnist, Strips)]
    assert group_key(cells[0]) != group_key(cells[1])


def test_fixed_and_tuned_scales_share_a_group():
    scales = [1.0, 0.1, Tune(log=(0.1, 10, 7))]
    assert len({group_key(replace(CELL, hyperprior=Fixed(scale=s))) for s in scales}) == 1


def test_data_of_unknown_size_are_a_group_of_their_own():
    cells = [replace(CELL, dataset=Mnist(seed=seed)) for seed in (0, 1)]
    assert group_key(cells[0]) != group_key(cells[1])


def test_width():
    # Two features and classes: 3 h + 2 (h + 1) parameters.
    assert width(replace(CELL, network=Dense(hidden=(399,)))) == 15  # of 3 restarts each
    assert width(replace(CELL, network=Dense(hidden=(400,)))) == 1


@pytest.mark.parametrize(
    ("restarts", "expected"),
    [(1, 16), (3, 15), (5, 15), (6, 12), (9, 9), (16, 16), (17, 9), (40, 14)],
)
def test_no_place_of_a_program_stays_empty(restarts, expected):
    found = width(replace(CELL, inference=Inference(restarts=restarts)))
    assert found == expected
    assert found % restarts == 0 or 0 <= found * -(-restarts // found) - restarts < 3


@pytest.mark.parametrize(
    ("rows", "batch", "restarts", "expected"),
    [(6_250, None, 1, 16), (25_000, None, 1, 4), (25_000, 100, 1, 16), (10**6, None, 6, 1)]
    + [(25_000, None, 6, 3), (25_000, None, 2, 4), (40_000, None, 2, 2)],
)
def test_many_rows_are_fitted_by_few_at_once(rows, batch, restarts, expected):
    changed = {"inference": Inference(restarts=restarts, batch=batch)}
    cell = replace(CELL, dataset=Moons(noise=0.4, train=rows), **changed)
    assert width(cell) == expected


GPU = Device("gpu", 0, "NVIDIA A")


@pytest.mark.parametrize(
    ("rows", "restarts", "expected"),
    [(700, 1, 256), (700, 3, 255), (10_000, 1, 100), (10**6, 6, 1), (700, 300, 150)],
)
def test_a_gpu_has_hundreds_of_fits_in_a_program(rows, restarts, expected):
    inference = Inference(restarts=restarts)
    cell = replace(CELL, dataset=Moons(noise=0.4, train=rows), inference=inference)
    assert width(cell, GPU) == expected


def test_large_networks_and_chains_are_one_program_each_whatever_the_device():
    assert width(MNIST, GPU) == width(replace(CELL, inference=Mclmc()), GPU) == 1


def test_a_device_decides_numbers_but_no_name_of_a_processor(monkeypatch):
    """Cells of a processor keep their names; those of a GPU have others, for each width."""
    before = identity(CELL, "data", {})
    assert identity(CELL, "data", {}, device=CPU) == before
    assert identity(CELL, "data", {}, device=Device("cpu", 3)) == before
    found = {before}
    for replicas in (256, 128):
        monkeypatch.setitem(machine.TRAITS, "gpu", GPU.traits._replace(replicas=replicas))
        found.add(identity(CELL, "data", {}, device=GPU))
        assert identity(CELL, "data", {}, device=Device("gpu", 7)) in found, "one is as another"
    assert len(found) == 3


# Jobs


def test_jobs_of_a_gpu_hold_as_many_cells_as_fit():
    (first, second) = jobs(grid(priors=(Normal(),), seeds=100), device=GPU)
    assert [len(job.cells) for job in (first, second)] == [85, 15]
    assert first.width == second.width == 255


def test_jobs_hold_every_cell_once_in_groups():
    cells = grid()
    cut = jobs(cells)
    assert sorted(map(cells.index, (c for job in cut for c in job.cells))) == list(range(24))
    assert [len(job.cells) for job in cut] == [5, 5, 2, 5, 5, 2]
    assert all({group_key(cell) for cell in job.cells} == {job.group} for job in cut)


@pytest.mark.parametrize(("restarts", "cells_a_job"), [(1, 16), (3, 5), (16, 1), (40, 1)])
def test_jobs_have_room_for_all_restarts(restarts, cells_a_job):
    cut = jobs(grid(priors=(Normal(),), seeds=20, restarts=restarts))
    assert max(len(job.cells) for job in cut) == cells_a_job


def test_cells_with_different_restarts_share_a_group_but_no_job():
    cells = [replace(CELL, inference=Inference(restarts=r)) for r in (1, 2, 3)]
    cut = jobs(cells)
    assert [job.cells for job in cut] == [(cell,) for cell in cells]
    assert len({job.group for job in cut}) == 1


def test_large_networks_run_one_by_one():
    cut = jobs([MNIST, replace(MNIST, dataset=Mnist(source="embedded", seed=1))])
    assert [(job.width, len(job.cells)) for job in cut] == [(1, 1), (1, 1)]


@pytest.mark.parametrize(
    ("network", "alone"),
    [
        (Dense(hidden=(64, 64)), False),
        (Dense(hidden=(200, 200)), False),
        (Dense(hidden=(400, 400)), True),
        (ReportConv(), True),
        (Lenet5(), True),
    ],
)
def test_the_largest_networks_take_all_cores(network, alone):
    assert takes_all_cores(replace(MNIST, network=network)) == alone
    assert not takes_all_cores(CELL)


def test_a_cell_keeps_its_place_whatever_else_is_wanted():
    cells = grid()
    whole = jobs(cells)
    wanted = {cells[0], cells[7], cells[22]}
    part = jobs(cells, wanted)
    blanked = [
        replace(job, cells=tuple(c if c in wanted else None for c in job.cells)) for job in whole
    ]
    assert part == [job for job in blanked if job.wanted]
    assert [job.cells.index(job.wanted[0]) for job in part] == [0, 1, 3]
    assert jobs(cells, []) == []


def test_job_label():
    (job,) = jobs(grid(priors=(Normal(),), seeds=3))
    assert (
        job_label(job.wanted) == "normal × half_normal, moons-noise0.4-seed0 dense-5-5 and 2 more"
    )
    (job,) = jobs([CELL])
    assert job_label(job.wanted) == "normal × half_normal, moons-noise0.4-seed0 dense-5-5"


# Work


def test_rows_left_to_choose_with_are_those_of_the_split():
    from sklearn.model_selection import train_test_split

    for rows, share in [(700, 0.2), (701, 0.2), (333, 0.3), (10, 0.15), (4000, 0.07)]:
        kept, _ = train_test_split(range(rows), test_size=share)
        assert choosing_rows(rows, share) == len(kept)
    assert choosing_rows(700, 0.0) == 700


def test_work_of_a_small_cell():
    work = cell_work(CELL)
    assert (work.choosing_fits, work.final_fits, work.steps) == (3, 3, 60_000)
    assert work.operations == 30_000 * 57 * (560 + 700)
    assert work.fitting == pytest.approx(30_000 * ((560 + 700) * ROW + 2 * 57 * PARAMETER))
    assert work.seconds == work.fitting + work.evaluating


def test_work_of_choosing():
    tuned = replace(CELL, hyperprior=Fixed(scale=Tune(log=(0.1, 10, 7))))
    assert cell_work(tuned).choosing_fits == 21
    without = replace(CELL, inference=Inference(restarts=3, validation=0))
    assert (cell_work(without).choosing_fits, cell_work(without).steps) == (0, 30_000)
    assert cell_work(replace(CELL, prior=Flat(), hyperprior=Fixed(scale=None))).fits == 6


def test_work_of_a_large_cell():
    cell = replace(MNIST, inference=Inference(epochs=2, batch=100, validation=0))
    work, size = cell_work(cell), 784 * 64 + 64 * 64 + 64 * 10 + 138
    assert work.steps == 80
    assert work.fitting == pytest.approx(80 * size * (100 * MULTIPLY_ADD + PARAMETER))


def test_work_of_chains():
    settings = Mclmc(chains=4)
    work = cell_work(replace(CELL, inference=settings))
    assert (work.choosing_fits, work.final_fits) == (0, 1)
    assert work.steps == CHAIN_LENGTH * 4 * settings.gradients
    assert work.fitting == pytest.approx(work.steps * (700 * ROW + 57 * PARAMETER))
    tuned = replace(CELL, inference=settings, hyperprior=Fixed(scale=Tune(log=(0.1, 10, 7))))
    assert (cell_work(tuned).choosing_fits, cell_work(tuned).steps) == (7, 8 * work.steps)


def test_work_of_a_convolution():
    """Every position of a kernel is computed, its weights are drawn once."""
    cell = replace(MNIST, network=ReportConv())
    cell = replace(cell, inference=Inference(epochs=1, batch=100, validation=0))
    maps = (25 + 1) * 32 * 24**2 + (800 + 1) * 32 * 8**2
    work, dense = cell_work(cell), 513 * 64 + 65 * 10
    assert work.operations == 40 * 100 * (maps + dense)
    seconds = 100 * (maps + dense) * MULTIPLY_ADD + 59_946 * PARAMETER
    assert work.fitting == pytest.approx(40 * seconds)


def test_work_adds_up():
    total = total_work([CELL, CELL])
    assert (total.fits, total.steps) == (12, 120_000)
    assert total.seconds == 2 * cell_work(CELL).seconds


def predictions(cell):
    """Rows × draws that a cell is taken to predict."""
    a_prediction = PREDICTION["categorical"] + MULTIPLY_ADD * multiply_adds(cell)
    return (cell_work(cell).evaluating - STORING) / a_prediction


SHORT = Predict(draws=100, trace_draws=10, map=Map(resolution=5), fresh=Fresh(size=50, draws=20))


def test_predictions_of_all_restarts_and_of_the_best():
    few = replace(CELL, predict=SHORT)
    # Test rows by all three; the map and, beside all pooled, fresh points by one; the trace.
    assert predictions(few) == pytest.approx(100 * (3 * 300 + 25) + 2 * 20 * 50 + 10 * 700)
    alike = replace(few, predict=SHORT.model_copy(update={"mixture": "equal"}))
    assert predictions(alike) == pytest.approx(100 * 3 * (300 + 25) + 3 * 20 * 50 + 10 * 700)
    point = replace(few, inference=Inference(guide="map"))
    assert predictions(point) == pytest.approx(300 + 25 + 50 + 10 * 700)
    quick = replace(few, predict=SHORT.model_copy(update={"map": Map(resolution=5, draws=30)}))
    assert predictions(few) - predictions(quick) == pytest.approx(70 * 25)


def test_predictions_of_all_chains():
    sampled = replace(CELL, predict=SHORT, inference=Mclmc(chains=4, draws=40))
    assert predictions(sampled) == pytest.approx(4 * (40 * (300 + 25) + 20 * 50) + 10 * 700)


def test_predictions_of_images():
    predict = SHORT.model_copy(update={"ood": (NormalNoise(size=500),)})
    cell = replace(MNIST, dataset=Mnist(source="embedded", validation=200), predict=predict)
    cell = replace(cell, inference=Inference(restarts=1))
    assert predictions(cell) == pytest.approx(100 * (1000 + 500 + 200))


def test_predicted_densities_take_longer():
    """Their quantiles and scores see all draws of a row many times."""
    curve = replace(CELL, dataset=Sine(), likelihood=NormalLikelihood(sd=1.0), predict=SHORT)
    a_prediction = PREDICTION["normal"] + MULTIPLY_ADD * multiply_adds(curve)
    train, test = curve.dataset.rows
    expected = 100 * (3 * test + train + 2 * 501) + 10 * train  # and two curves
    assert (cell_work(curve).evaluating - STORING) / a_prediction == pytest.approx(expected)
    normal, student = (
        cell_work(replace(curve, likelihood=likelihood)).evaluating - STORING
        for likelihood in (curve.likelihood, StudentTLikelihood())
    )
    assert student > 7 * normal


@pytest.mark.parametrize(
    ("hidden", "seconds"),
    # Measured on one core: `match_of` with a normal prior.
    [((5, 5), 1.6), ((50,), 2.8), ((100, 100), 25)],
)
def test_scales_that_are_matched_take_their_time(hidden, seconds):
    given = replace(CELL, network=Dense(hidden=hidden), hyperprior=Fixed(scale=1.0))
    matched = replace(given, hyperprior=Fixed(scale=Match()))
    more = cell_work(matched).seconds - cell_work(given).seconds
    assert seconds / 3 < more < 3 * seconds
    assert cell_work(matched).fitting == cell_work(given).fitting


def test_a_map_of_numbers_is_of_moments(tmp_path):
    file = tmp_path / "plane.csv"
    file.write_text("left,up,y\n" + "".join(f"{i},{i % 7},{i / 3}\n" for i in range(40)))
    plane = Table(file=str(file), target="y", task="regression")
    small = replace(CELL, dataset=plane, likelihood=NormalLikelihood(sd=1.0), predict=SHORT)
    large = replace(small, predict=SHORT.model_copy(update={"map": Map(resolution=105)}))
    a_point = PREDICTION["categorical"] + MULTIPLY_ADD * multiply_adds(small)
    more = cell_work(large).evaluating - cell_work(small).evaluating
    assert more == pytest.approx(100 * (105**2 - 5**2) * a_point)


# Wall-clock time


def test_empty_places_of_a_program_take_as_long_as_others():
    groups = [jobs([replace(CELL, inference=Inference(restarts=5, validation=0))])]
    assert groups[0][0].width == 15
    work = cell_work(groups[0][0].cells[0])
    around = plan.STARTING + plan.COMPILING + plan.CLOSING
    assert wall_seconds(groups, 1) == pytest.approx(around + 3 * work.fitting + work.evaluating)


def test_workers_share_all_but_the_longest_job():
    groups = [jobs(grid((prior,), n, restarts=16)) for prior, n in zip(PRIORS, (3, 1), strict=True)]
    assert [len(cut) for cut in groups] == [3, 1]
    one = cell_work(CELL16).seconds
    before = plan.STARTING + 4 * plan.CLOSING
    every = 2 * plan.COMPILING + 4 * one
    assert wall_seconds(groups, workers=1) == pytest.approx(before + every)
    assert wall_seconds(groups, workers=2) == pytest.approx(before + every / 2)
    assert wall_seconds(groups, workers=9) == pytest.approx(before + plan.COMPILING + one)


def test_a_sampled_cell_compiles_its_chains():
    sampled = [jobs([replace(CELL, inference=Mclmc())])]
    seconds = wall_seconds(sampled, 1) - cell_work(sampled[0][0].cells[0]).seconds
    assert seconds == pytest.approx(plan.STARTING + plan.COMPILING_CHAINS + plan.CLOSING)


def test_jobs_that_take_all_cores_have_the_machine_to_themselves():
    large = replace(MNIST, network=Dense(hidden=(1200, 1200)))
    assert takes_all_cores(large)
    both = wall_seconds([jobs([CELL]), jobs([large])], 2)
    apart = wall_seconds([jobs([CELL])], 2) + wall_seconds([jobs([large])], 2)
    assert both == pytest.approx(apart - plan.STARTING)
    assert wall_seconds([jobs([large])], 1) == wall_seconds([jobs([large])], 2)


def test_the_speed_of_a_machine_is_that_of_the_fastest_of_several_loops(monkeypatch):
    seconds = [4 * machine.REFERENCE, 3 * machine.REFERENCE]
    monkeypatch.setattr(machine.timeit, "repeat", lambda *_, **__: seconds)
    assert machine.slowness.__wrapped__() == pytest.approx(3)


class Since(Moons):
    """Moons with fields that were added later, one of them within a part."""

    class Inner(Specification):
        depth: int = 1
        tilt: float = added(0.0, ge=0)

    inner: Inner = Inner()
    decimal: str = added(".")
    several: tuple[int, ...] = added(())


class Before(Moons):
    """The same before."""

    class Inner(Specification):
        depth: int = 1

    inner: Inner = Inner()


def test_a_field_that_was_added_is_in_the_text_only_where_it_is_another():
    before, since = Before(noise=0.4), Since(noise=0.4)
    cells = [replace(CELL, dataset=dataset) for dataset in (before, since)]
    assert len({identity(cell, "data", {}) for cell in cells}) == 1
    assert len({settings_digest(cell) for cell in cells}) == 1
    assert since.model_dump(mode="json") == before.model_dump(mode="json")
    others = [{"decimal": ","}, {"several": (1,)}, {"inner": Since.Inner(tilt=0.5)}]
    changed = [replace(CELL, dataset=Since(noise=0.4, **other)) for other in others]
    assert len({identity(cell, "data", {}) for cell in (*cells, *changed)}) == 4
    assert Since(noise=0.4, decimal=",").model_dump(mode="json")["decimal"] == ","
    # What results keep reads back, and experiment files name it.
    assert Since.model_validate_json(since.model_dump_json()) == since
    assert as_written(since)["decimal"] == "."
    with pytest.raises(ConfigError, match="`tilt` must be >= 0"):
        Since.Inner(tilt=-1.0)


def test_what_was_renamed_keeps_its_first_name_in_the_text_alone():
    table = Table(file="t.csv", target="y", task="regression", split=RandomSplit(test_size=0.3))
    text, kept = (table.model_dump(mode="json", by_alias=first) for first in (True, False))
    assert text["split"] == {"kind": "share", "test": 0.3, "group": None}
    assert kept["split"] == {"kind": "random", "test_size": 0.3, "group": None}
    names = (("target_is", "numbers"), ("missing", "refuse"), ("redundant", "refuse"))
    assert [text[name] for name, _ in names] == [first for _, first in names]
    assert [kept[name] for name in ("task", "missing", "redundant")] == [
        "regression",
        "error",
        "error",
    ]
    assert Table.model_validate_json(table.model_dump_json()) == table


# The printed plan


@pytest.fixture
def experiment():
    """Three cells, one of them flat, and what was left out."""
    sections = {name: (spec,) for name, spec in CELL.settings.items()}
    sections |= {"prior": (Normal(), Flat()), "hyperprior": (HalfNormal(), Fixed())}
    written = {
        name: [Choice(f"sweeps[0].{name}", spec, {}) for spec in specs]
        for name, specs in sections.items()
    }
    return Experiment("test", (Sweep("sweep", "sweeps[0]", written),))


def of_cells(experiment, cells):
    """The experiment with other cells than its sections stand for."""
    sweep = replace(experiment.sweeps[0])
    vars(sweep)["cells"] = cells
    return replace(experiment, sweeps=(sweep,))


def test_plan_in_words(experiment, capsys, monkeypatch):
    monkeypatch.setattr("pmbnn.experiment.cost.total_memory", lambda: 24e9)
    assert plan_lines(experiment) == [
        "test: 3 cells",
        "  sweep: 3 cells = 3 prior × hyperprior",
        "    left out: prior flat with half_normal: `flat` has no scale to put a hyperprior on",
        "",
        "compiled together:",
        "  group  cells  jobs  fits  parameters  core time  what",
        "      1      1     1     6          57        1 s  moons dense-5-5 normal half_normal",
        "      2      1     1     6          57        1 s  moons dense-5-5 normal fixed",
        "      3      1     1     6          57        1 s  moons dense-5-5 flat fixed",
        "",
        "in all: 18 fits (9 to choose by), 180,000 gradient steps, about 13 s on this machine with "
        "2 workers, compiling included",
        "memory: about 3.1 GB at most of 24.0 GB",
    ]
    *_, work, memory = plan_lines(experiment, verbose=True)
    assert work.startswith(
        "in all: 18 fits (9 to choose by), 180,000 gradient steps, 6.5e+09 step × row × "
        "multiply-add, about 13 s"
    )
    assert memory == (
        "memory: about 3.1 GB at most of 24.0 GB; a network of up to 298 million parameters could "
        "be fitted"
    )
    print_plan(experiment)
    assert capsys.readouterr().out.splitlines() == plan_lines(experiment)


def test_the_plan_of_a_gpu_promises_no_time(experiment):
    """Nothing is known of how long one takes."""
    lines = plan_lines(experiment, workers=8, devices=(GPU, replace(GPU, number=1)))
    *_, work, memory = lines
    assert work.endswith(
        "gradient steps, in an unknown time on gpu, 2 × NVIDIA A: core times are a processor's"
    )
    # Two workers of what would be eight.
    assert memory == plan_lines(experiment, workers=2)[-1]


def test_the_time_of_chains_is_a_range(experiment):
    """How many draws chains need until they agree is not known beforehand."""
    sampled = replace(CELL, inference=Mclmc())
    *_, work, _ = plan_lines(of_cells(experiment, (sampled,)))
    assert re.search(r"steps, [0-9]+ (s|min) to [0-9]+ (s|min|h) on this machine with 2", work)


@pytest.mark.parametrize("inference", [Mclmc(doublings=0), Mile()])
def test_chains_that_never_double_are_planned_as_long_as_they_are(experiment, inference):
    sampled = replace(CELL, inference=inference)
    assert cell_work(sampled).steps == inference.chains * inference.gradients
    *_, work, _ = plan_lines(of_cells(experiment, (sampled,)))
    assert re.search(r"steps, about [0-9]+ (s|min) on this machine with 2", work)


def test_a_group_is_named_by_what_it_is_compiled_for(experiment):
    """Constants of a hyperprior are data; its form is not."""
    forms = (HalfNormal(sigma=0.5), HalfNormal(sigma=0.5, centred=True))
    cells = tuple(replace(CELL, hyperprior=form) for form in forms)
    changed = of_cells(experiment, cells)
    groups = [line for line in plan_lines(changed) if "dense-5-5" in line]
    assert [line.split()[-1] for line in groups] == ["half_normal", "half_normal-centred"]


def test_only_the_first_groups_have_a_line(experiment):
    cells = tuple(replace(CELL, dataset=Moons(noise=0.4, train=10 + i)) for i in range(52))
    lines = plan_lines(of_cells(experiment, cells))
    assert sum("dense-5-5" in line for line in lines) == 50
    assert lines[-5].split()[0] == "50"
    assert lines[-4] == "  and 2 more groups"
    assert lines[-2].startswith("in all: 312 fits")


def test_a_plan_says_what_does_not_fit(experiment, monkeypatch):
    cells = (replace(CELL, network=Dense(hidden=(17_000, 17_000))),)
    huge = of_cells(experiment, cells)
    words = []
    for there in (24e9, 16e9, None, 1.5e9):
        monkeypatch.setattr("pmbnn.experiment.cost.total_memory", lambda there=there: there)
        words.append("\n".join(plan_lines(huge, verbose=True)[9:]))
    enough, too_little, unknown, nearly_none = words
    assert enough.startswith("memory: about 23.3 GB at most of 24.0 GB; a network")
    assert " GB at most of 16.0 GB: TOO MUCH for this machine; " in too_little
    assert too_little.splitlines()[1:] == [
        "too large: sweep moons dense-17000-17000 normal half_normal: about 23.3 GB of 16.0 GB: "
        "its worker may be killed"
    ]
    assert unknown == "memory: about 23.3 GB at most"
    assert nearly_none.splitlines()[0].endswith("of 1.5 GB: TOO MUCH for this machine")


def test_plan_of_a_selection(experiment):
    lines = plan_lines(experiment, [CELL])
    assert lines[:2] == ["test: 1 of 3 cells", "  sweep: 1 of 3 cells = 3 prior × hyperprior"]
    assert sum("dense-5-5" in line for line in lines) == 1
