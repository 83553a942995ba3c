"""Files made at random: planned as their axes say, or one line of what is wrong.

``benchmarks/faults.py files`` does thousands.
"""

import random

import pytest
from random_experiments import broken_text, valid_experiment

from pmbnn.experiment.errors import ConfigError
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.yaml_file import yaml_text


@pytest.mark.parametrize("seed", range(15))
def test_a_valid_file_has_the_cells_of_its_axes(tmp_path, seed):
    content, cells = valid_experiment(random.Random(seed))
    (tmp_path / "made.yaml").write_text(yaml_text(content))
    assert len(load_experiment(tmp_path / "made.yaml").cells) == cells


def test_a_broken_file_is_one_line(tmp_path):
    rng, lines = random.Random(0), []
    for _ in range(40):
        text = broken_text(yaml_text(valid_experiment(rng)[0]), rng)
        (tmp_path / "made.yaml").write_text(text, encoding="utf-8")
        try:
            load_experiment(tmp_path / "made.yaml")
        except ConfigError as error:
            lines.append(str(error))
    assert len(lines) > 12
    assert [line for line in lines if len(line.splitlines()) != 1] == []
