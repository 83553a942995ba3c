"""Functions of equal graphs are one where sharing is asked for, and others never."""

import gc
import weakref

import numpy as np
import pytensor.tensor as pt

from pmbnn.core.machine import Device, running_on
from pmbnn.inference.xla.compile import KEPT, jax_function, precision, shared, sharing_programs


def graph(name="x", factor=2.0, length=3, twice=False):
    """Inputs and outputs of a graph made anew."""
    x = pt.tensor(name, dtype="float64", shape=(length,))
    return [x], [pt.exp(factor * x)] * (2 if twice else 1)


def made(dtype="float32", **how):
    with precision(dtype):
        return jax_function(*graph(**how))


def test_nothing_is_shared_unless_asked_for():
    assert made() is not made()
    with sharing_programs():
        inside = made()
    assert made() is not inside


def test_equal_graphs_have_one_function():
    with sharing_programs():
        first = made()
        assert made(name="another name") is first
        others = [made(factor=3.0), made(length=4), made(twice=True), made("float64")]
        with running_on(Device("gpu", platform="cpu")):
            others.append(made())
        assert len({first, *others}) == 6
        assert [made(factor=3.0), made(length=4), made(twice=True)] == others[:3]
        with precision("float32"):
            np.testing.assert_allclose(others[0](np.float32([0, 1, 2]))[0], np.exp([0, 3, 6]), 1e-6)


def test_inputs_count_by_their_order():
    x, y, a, b = (pt.tensor(name, dtype="float64", shape=()) for name in "xyab")
    with sharing_programs():
        ahead, behind = jax_function([x, y], [x - y]), jax_function([y, x], [x - y])
        assert ahead is not behind
        assert jax_function([a, b], [a - b]) is ahead
        assert jax_function([a, b], [b - a]) is behind
        with precision("float64"):
            assert (ahead(5.0, 3.0)[0], behind(5.0, 3.0)[0]) == (2.0, -2.0)


def test_an_inner_block_has_its_own():
    with sharing_programs():
        outer = made()
        with sharing_programs():
            assert made() is not outer
        assert made() is outer


def test_what_was_used_last_is_kept():
    built = []
    with sharing_programs():
        for number in range(KEPT + 1):
            shared(number, lambda number=number: built.append(number))
            shared(0, lambda: built.append("again"))
        shared(1, lambda: built.append("anew"))
    assert built == [*range(KEPT + 1), "anew"]


def test_nothing_outlives_its_block():
    class Large:
        pass

    def build():
        large = Large()
        return shared("large", lambda: large), weakref.ref(large)

    with sharing_programs():
        held, gone = build()
        assert shared("large", Large) is held
    alone, gone_too = build()
    assert alone is not held
    del held, alone
    gc.collect()
    assert gone() is gone_too() is None
