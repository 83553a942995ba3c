"""Numbers as text."""

import math

import numpy as np
import pytest

from pmbnn.core.numbers import difference_text, interval_text, number_text, p_value_text


@pytest.mark.parametrize(
    ("value", "words"),
    [(None, ""), (math.nan, ""), (math.inf, "∞"), (-math.inf, "−∞"), (True, "yes"),
     (-1234, "−1,234"), (0.0, "0"), (-0.0, "0"), (7.9e-17, "0"), (-7.9e-17, "0"), (12.0, "12"),
     (0.123456, "0.1235"), (-1234.56, "−1,235"), (4.2e-5, "4.2e−5"), (2.5e9, "2.5e9"),
     ("relu", "relu"), (np.float32(7.9e-17), "0"), (np.float32(-0.5), "−0.5"),
     (np.int64(-1234), "−1,234")],
)  # fmt: skip
def test_numbers_without_an_error(value, words):
    assert number_text(value) == words


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [(54.84, 1.41, "54.8 ± 1.4"), (0.9774, 0.0157, "0.977 ± 0.016"),
     (0.9774, 0.0577, "0.98 ± 0.06"),
     (1234.5, 210.0, "1,234 ± 210"), (0.98, math.nan, "0.98"), (0.98, 0.0, "0.98"),
     (0.98, 7.9e-17, "0.98"), (-1e-5, 0.0031, "0.000 ± 0.003"), (0.5, None, "0.5"),
     (1.0, 0.0996, "1.00 ± 0.10")],
)  # fmt: skip
def test_digits_by_the_error(value, error, words):
    assert number_text(value, error) == words


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [(5.5e-7, 9e-8, "5.5e−7 ± 0.9e−7"), (-12.3456e-7, 1e-8, "−1.235e−6 ± 0.010e−6"),
     (5e-15, 3e-16, "5.0e−15 ± 0.3e−15"), (5e-15, None, "5e−15"),
     (0.5, 1e-9, "0.5000000000 ± 0.0000000010"),
     (3e-7, 5e-5, "0.00000 ± 0.00005"), (0.0, 0.0, "0"), (2.5, None, "2.5")],
)  # fmt: skip
def test_numbers_in_unusual_units(value, error, words):
    assert number_text(value, error, rounding=0.0) == words


def test_intervals_in_unusual_units():
    assert difference_text(2e-9, -1e-9, 3e-9) == "+2.0e−9 (−1.0e−9 to +3.0e−9)"


def test_decimals_of_a_column():
    assert number_text(0.5, decimals=3) == "0.500"
    assert number_text(0.5, 0.0123, decimals=4) == "0.500 ± 0.012"
    assert number_text(-0.00001, decimals=3) == "0.000"
    assert number_text(-0.04, decimals=1) == "0.0"


def test_signs_of_differences():
    values = (0.25, -0.25, 0.0, None)
    assert [number_text(v, signed=True) for v in values] == ["+0.25", "−0.25", "0", ""]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.03149, "0.031"), (1.0, "1"), (1e-4, "0.0001"), (9.9e-5, "< 0.0001"), (0.0, "< 0.0001"),
     (math.nan, "")],
)  # fmt: skip
def test_p_values(value, words):
    assert p_value_text(value) == words


def test_differences_with_intervals():
    assert interval_text(-0.0042, 0.0123) == "−0.0042 to +0.0123"
    assert difference_text(0.004, -0.0042, 0.0123) == "+0.0040 (−0.0042 to +0.0123)"
    assert difference_text(0.00412, math.nan, math.nan) == "+0.0041"
    assert difference_text(math.nan, math.nan, math.nan) == ""
