"""Numbers of functions drawn from a prior: by hand, by closed forms, and errors by simulation."""

import numpy as np
import pytest
from scipy.special import entr, expit

from pmbnn.prior_predictive.evaluate import (
    _Plane,
    boundary_length,
    class_measures,
    mean,
    median,
    number_measures,
    share,
)

X1, X2 = np.linspace(-2, 2, 101), np.linspace(-1, 1, 61)
GRID = np.stack(np.meshgrid(X1, X2, indexing="ij"), axis=-1)


def two_classes(log_odds):
    return np.stack([expit(log_odds), expit(-log_odds)], axis=-1)


def line(angle, steepness=3.0):
    """Log-odds that change their sign on a line through the centre of the map."""
    return steepness * (GRID @ [-np.sin(angle), np.cos(angle)])


def length_of_line(angle):
    """In widths of the map, which is 4 wide and 2 high."""
    return 2 * min(2 / max(abs(np.cos(angle)), 1e-9), 1 / max(abs(np.sin(angle)), 1e-9)) / 4


ANGLES = np.radians([0, 10, 22.5, 45, 70, 90, 130])


@pytest.mark.parametrize("angle", ANGLES)
@pytest.mark.parametrize("steepness", [1e-3, 3.0, 500.0])
def test_a_line_has_its_length(angle, steepness):
    """However steep, as long as probabilities are told apart from 0 and 1."""
    found = boundary_length(X1, X2, two_classes(line(angle, steepness)))
    assert found == pytest.approx(length_of_line(angle), rel=2e-3)


def test_lines_of_steps_are_too_long():
    """By as much as is told: on average, and in the worst directions."""
    rng, ratios = np.random.default_rng(0), []
    for angle in rng.uniform(0, 2 * np.pi, 300):
        probability = two_classes(np.where(line(angle) > 0, 1e9, -1e9))
        ratios.append(boundary_length(X1, X2, probability) / length_of_line(angle))
    assert np.mean(ratios) == pytest.approx(1.06, abs=0.02)
    assert min(ratios) > 0.97 and max(ratios) < 1.16


def test_a_circle():
    radius = np.hypot(GRID[..., 0], GRID[..., 1])
    found = boundary_length(X1, X2, two_classes(20 * (0.7 - radius)))
    assert found == pytest.approx(2 * np.pi * 0.7 / 4, rel=2e-3)


def test_lines_between_several_classes_count_once():
    """Three sectors that meet in the centre; a fourth class is never the most probable."""
    directions = np.radians([90, 210, 330])
    towards = np.stack([np.cos(directions), np.sin(directions)])
    score = np.concatenate([3 * GRID @ towards, np.full((101, 61, 1), -9.0)], axis=-1)
    probability = np.exp(score) / np.exp(score).sum(axis=-1, keepdims=True)
    # Down to the edge, and to both sides at 30 degrees up.
    expected = (1 + 2 * 1 / np.sin(np.radians(30))) / 4
    assert boundary_length(X1, X2, probability) == pytest.approx(expected, rel=2e-2)


def test_lengths_are_those_of_the_map_as_it_is_drawn():
    """A map of inputs of other units is drawn as a square."""
    probability, lengths = two_classes(line(np.pi / 6)).reshape(1, -1, 2), []
    for unit in (1.0, 1e3):
        plane = _Plane(X1, unit * X2, np.zeros((X1.size * X2.size, 2)))
        plane.add(probability)
        lengths += plane.lengths
    across = length_of_line(np.pi / 6)
    assert lengths == pytest.approx([across, np.hypot(across * np.cos(np.pi / 6), 1)], rel=2e-3)


def test_one_class_has_no_boundary():
    assert boundary_length(X1, X2, two_classes(np.full((101, 61), 0.1))) == 0
    assert boundary_length(X1, X2, two_classes(np.full((101, 61), -1e9))) == 0


def test_measures_by_hand():
    """Two functions at two inputs: one of one class, one of another class at each."""
    p = np.array([[[0.9, 0.1], [0.7, 0.3]], [[0.5, 0.5], [0.0, 1.0]]])
    found = class_measures(p)

    def entropy(first):
        return -sum(q * np.log(q) for q in (first, 1 - first) if q)

    assert found["constant"] == 0.5
    of_each = [(entropy(0.9) + entropy(0.7)) / 2, entropy(0.5) / 2]
    assert found["expected_entropy"] == pytest.approx(np.mean(of_each))
    assert found["expected_entropy_mcse"] == pytest.approx(np.std(of_each, ddof=1) / 2**0.5)
    assert found["entropy"] == pytest.approx((entropy(0.7) + entropy(0.35)) / 2)
    assert found["common_class"] == pytest.approx((0.8 + 0.75) / 2)
    assert found["common_class_sd"] == pytest.approx(0.025)


def linear(draws, rng, inputs=None, shift=0.0):
    """Class probabilities of linear functions with weights and biases drawn from N(0, 1)."""
    angle = np.linspace(0, 2 * np.pi, 200, endpoint=False)
    x = 1.5 * np.column_stack([np.cos(angle), np.sin(angle)]) if inputs is None else inputs
    weight, bias = rng.normal(size=(2, draws, 2)), rng.normal(size=(2, draws, 1))
    return two_classes((weight[0] - weight[1]) @ x.T + bias[0] - bias[1] + shift)


def test_linear_functions_on_a_circle():
    """Constant on radius R: the cosine of a direction drawn evenly from a sphere is > R/√(1+R²)."""
    found = class_measures(linear(4_000, np.random.default_rng(0)))
    expected = 1 - 1.5 / np.hypot(1, 1.5)
    assert found["constant"] == pytest.approx(expected, abs=4 * found["constant_mcse"])
    # The log-odds at any one of the inputs are N(0, 2 (1 + R²)).
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    p = expit(np.sqrt(2 * (1 + 1.5**2)) * nodes)
    entropy = weights @ (entr(p) + entr(1 - p)) / weights.sum()
    error = 4 * found["expected_entropy_mcse"]
    assert found["expected_entropy"] == pytest.approx(entropy, abs=error)
    assert found["entropy"] == pytest.approx(np.log(2), abs=4 * found["entropy_mcse"])


def spread_and_told(shift):
    """Of 300 repetitions: the spread of each measure, and the error that each tells of itself."""
    rng = np.random.default_rng(5)
    inputs = np.array([[0.3, 1.0], [2.0, -0.5], [-1.0, 0.2]])
    repeated = [class_measures(linear(200, rng, inputs, shift)) for _ in range(300)]
    for name in ("constant", "expected_entropy", "common_class", "entropy"):
        spread = np.std([found[name] for found in repeated])
        yield name, spread, np.sqrt(np.mean([found[f"{name}_mcse"] ** 2 for found in repeated]))


def test_errors_are_those_of_repetitions():
    for name, spread, told in spread_and_told(shift=2.0):
        # The spread of 300 is known to 4 %.
        assert told == pytest.approx(spread, rel=0.15), name


def test_the_error_of_the_largest_entropy_is_no_less_than_that_of_repetitions():
    """Where the mean says nothing its entropy has no slope, and a jackknife tells too much."""
    told = {name: (spread, error) for name, spread, error in spread_and_told(shift=0.0)}
    spread, error = told["entropy"]
    assert spread < error < 2 * spread


def test_the_error_of_a_median():
    rng = np.random.default_rng(6)
    repeated = [median("m", rng.standard_cauchy(400)) for _ in range(400)]
    spread = np.std([found["m"] for found in repeated])
    told = np.mean([found["m_mcse"] for found in repeated])
    assert told == pytest.approx(spread, rel=0.12)


def test_the_error_of_a_median_is_none_or_unknown_where_it_says_so():
    assert median("m", np.full(100, 1 / 3))["m_mcse"] == 0
    assert np.isnan(median("m", np.array([1.0, 2.0, 3.0, np.inf] * 25))["m_mcse"])
    far = median("m", 1e8 + np.random.default_rng(7).normal(0, 1e-3, 400))["m_mcse"]
    assert far == pytest.approx(1e-3 * np.sqrt(np.pi / 2 / 400), rel=0.5)


def test_a_share_of_none_has_an_error():
    found = share("s", np.zeros(96, bool))
    assert found == {"s": 0.0, "s_mcse": pytest.approx(np.sqrt(0.02 * 0.98 / 100))}


def test_a_mean_and_its_error():
    assert mean("m", np.array([1.0, 3.0])) == {"m": 2.0, "m_mcse": pytest.approx(1.0)}


def test_measures_of_numbers():
    """Straight lines through 0 with slopes N(0, 2²), seen from -1 to 3."""
    rng = np.random.default_rng(1)
    slope, x = 2 * rng.normal(size=(20_000, 1)), np.linspace(-1, 3, 9)
    found = number_measures(slope * x, np.abs(slope) * 0 + 0.5)
    error = 4 * found["output_range_mcse"]
    assert found["output_range"] == pytest.approx(4 * 2 * 0.67449, abs=error)
    assert 0 < error < 0.2
    # Of nine inputs the median distance from 0 is 1; 68 % of a normal lie within 0.9945 sd.
    assert found["output_sd"] == pytest.approx(2 * 0.9945, rel=0.03)
    assert found["noise"] == 0.5
