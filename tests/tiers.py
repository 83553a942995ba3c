"""Which cases of a test run every time, and which in the slow tier alone."""

from collections.abc import Collection, Sequence

import pytest


def slow_but(quick: Collection, cases: Sequence) -> list:
    """Cases for ``parametrize``; those that are not among `quick` are marked slow.

    What a test shows of one case it hardly ever denies of the next, and each compiles anew.
    """
    missing = [case for case in quick if case not in cases]
    assert not missing, f"no cases: {missing}"
    return [case if case in quick else _slow(case) for case in cases]


def _slow(case):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.slow)
