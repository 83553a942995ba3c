"""Files made at random: planned as their axes say, or one line of what is wrong.

``benchmarks/faults.py files`` does thousands.
"""

from random_experiments import at_random, broken_text, valid_experiment

from pmbnn.core.errors import ConfigError
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.yaml_file import yaml_text


def test_a_valid_file_has_the_cells_of_its_axes(tmp_path):
    @at_random(6)
    def check(rng):
        content, cells = valid_experiment(rng)
        (tmp_path / "made.yaml").write_text(yaml_text(content))
        assert len(load_experiment(tmp_path / "made.yaml").cells) == cells

    check()


def test_a_broken_file_is_one_line(tmp_path):
    lines = []

    @at_random(60)
    def check(rng):
        text = broken_text(yaml_text(valid_experiment(rng)[0]), rng)
        (tmp_path / "made.yaml").write_text(text, encoding="utf-8")
        try:
            load_experiment(tmp_path / "made.yaml")
        except ConfigError as error:
            lines.append(str(error))
            assert len(lines[-1].splitlines()) == 1

    check()
    assert len(lines) > 20
