"""Whole sweeps on several devices, which a processor passes for."""

import pytest

from pmbnn.core.machine import CPU, Device
from pmbnn.experiment.load import load_experiment
from pmbnn.fitting.progress import RunOptions
from pmbnn.results.loading import load_results
from pmbnn.sweep import stages

PLUGIN = """
from pmbnn.experiment.plugins import register

@register
def device_number(predictive: "ClassProbabilities", target):
    import jax

    (device,) = jax.numpy.zeros(()).devices()
    return float(device.id)
"""

EXPERIMENT = """
name: devices
plugins: [where.py]
sweeps:
  - name: points
    dataset: {kind: moons, noise: 0.3, train: 60, test: 40, seed: [0, 1]}
    network: {kind: dense, hidden: [[3]]}
    prior: normal
    hyperprior: half_normal
    inference: {steps: 50, restarts: 2, validation: 0}
    predict: {draws: 5, trace_draws: 4, map: {resolution: 5}, fresh: {size: 50, draws: 2}}
  - name: images
    dataset: {kind: mnist, source: embedded, train: 60, test: 40}
    network:
      kind: layers
      layers: [[{kind: convolution, filters: 4, size: 3}, {kind: max_pool}, {kind: flatten}]]
    prior: normal
    hyperprior: half_normal
    inference: {steps: 20, batch: 20, validation: 0}
    predict: {draws: 5}
"""


@pytest.fixture
def sweep(tmp_path, monkeypatch, registries):
    """Records of the cells, in their order, of a sweep on some devices."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
    (tmp_path / "where.py").write_text(PLUGIN)
    (tmp_path / "devices.yaml").write_text(EXPERIMENT)
    experiment = load_experiment(tmp_path / "devices.yaml")

    def run(name, devices):
        options = RunOptions(stages.Console(quiet=True), 2, quiet=True, devices=devices)
        folder = tmp_path / name
        stages.run_experiment(experiment, experiment.cells, folder, options)
        return load_results(folder).records

    return run


def numbers(record):
    """Every number of a cell but where it was fitted and how long that took."""
    found = {k: v for k, v in record.results.items() if not k.endswith("device_number")}
    return found, record.restarts, record.images


@pytest.mark.slow
def test_two_workers_have_a_device_each_and_the_same_numbers(sweep):
    """On one of two devices or the only one to the last bit; on a processor but for rounding."""
    first, third = (Device("gpu", number, platform="cpu") for number in (0, 2))
    on_two, on_one = sweep("two", (first, third)), sweep("one", (first,))
    places = [[record.results["device_number"] for record in of] for of in (on_two, on_one)]
    assert places[1] == [0, 0, 0]
    assert places[0][0] == places[0][1], "a group stays together"
    assert {places[0][0], places[0][2]} == {0, 2}
    assert [record.name for record in on_two] == [record.name for record in on_one]
    assert list(map(numbers, on_two)) == list(map(numbers, on_one))
    assert {(record.device, record.status) for record in on_two} <= {
        ("gpu", "converged"),
        ("gpu", "not_converged"),
    }
    on_cpu = sweep("cpu", (CPU,))
    for record, other in zip(on_two, on_cpu, strict=True):
        assert other.device == "cpu"
        assert record.results["elbo"] == pytest.approx(other.results["elbo"], rel=1e-4)
        assert record.results["nll"] == pytest.approx(other.results["nll"], rel=1e-3)
