"""Which cases of a test run every time, and which in the slow tier alone."""

from collections.abc import Collection, Sequence
from itertools import combinations

import pytest


def slow_but(quick: Collection, cases: Sequence) -> list:
    """Cases for ``parametrize``; those that are not among `quick` are marked slow.

    What a test shows of one case it hardly ever denies of the next, and each compiles anew.
    """
    missing = [case for case in quick if case not in cases]
    assert not missing, f"no cases: {missing}"
    return [case if case in quick else _slow(case) for case in cases]


def pairwise(cases: Sequence[tuple]) -> list[tuple]:
    """A few of the cases in which any two values meet that meet in one of them all."""
    pairs = {case: set(combinations(enumerate(case), 2)) for case in cases}
    left, chosen = set().union(*pairs.values()), []
    while left:
        chosen.append(max(cases, key=lambda case: len(pairs[case] & left)))
        left -= pairs[chosen[-1]]
    return chosen


def _slow(case):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
