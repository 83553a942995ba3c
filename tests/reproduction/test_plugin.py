"""What the study's plugin brings to the experiments that name it, and what it leaves alone."""

from pathlib import Path

import pytest

from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plugins import OUTPUTS, experiment_parts, sources_of

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
NAMING = sorted(
    file.stem
    for file in EXPERIMENTS.glob("*.yaml")
    if "plugins: [reproduction/study]" in file.read_text(encoding="utf-8")
)

pytestmark = pytest.mark.usefixtures("registries")


def test_experiments_that_need_its_figures_name_it():
    """Images of noise beside a point fit, a line across a gap, an evidence."""
    images = ["mnist_backprop", "mnist_lenet", "mnist_report", "mnist_tempered"]
    assert sorted([*images, "in_between", "trust_samplers"]) == NAMING


def test_it_registers_figures_and_tables_alone():
    experiment = load_experiment(EXPERIMENTS / "in_between.yaml")
    with experiment_parts(experiment.plugins):
        names = {kind: sorted(functions) for kind, functions in OUTPUTS.items()}
    assert names == {"figure": ["gap", "noise"], "table": ["in_between", "symmetry"]}
    assert sources_of(experiment.cells[0]) == {}
