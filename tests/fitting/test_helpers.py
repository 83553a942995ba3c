"""Starting processes: what Ctrl-C does meanwhile, and what children see of the caller."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from functools import partial

import pytest

from pmbnn.fitting.helpers import ENOUGH, Helpers, deferred_interrupts, spawning


@pytest.fixture(autouse=True)
def interruptible():
    """Tests started in the background of a script ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt():
    """Ctrl-C as the kernel delivers it: to any thread of the process."""
    other = threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))
    other.start()
    other.join()


def test_an_interrupt_waits_until_everything_has_started():
    done = []
    with pytest.raises(KeyboardInterrupt), spawning():
        interrupt()
        done.append("started")
    assert done == ["started"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_without_an_interrupt_nothing_is_raised_and_nothing_stays_changed():
    with spawning():
        assert signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_deferred_interrupt_comes_where_it_is_allowed():
    done = []
    with deferred_interrupts() as allowed:
        with spawning():
            interrupt()
        done.append("deferred")
        with pytest.raises(KeyboardInterrupt), allowed():
            done.append("entered")
        with allowed():
            done.append("came once")
        with pytest.raises(KeyboardInterrupt), allowed():
            interrupt()
            time.sleep(10)
        done.append("came at once")
    assert done == ["deferred", "came once", "came at once"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_processes_may_be_started_from_another_thread():
    mains = []

    def start():
        with spawning():
            mains.append(sys.modules["__main__"])

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert [hasattr(main, "__file__") for main in mains] == [False]


def test_a_child_is_not_ended_by_ctrl_c():
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0.2,))
    with spawning():
        child.start()
    os.kill(child.pid, signal.SIGINT)
    child.join(60)
    assert child.exitcode == 0


def told(_):
    return None


def slowly(number):
    """The number and the process: slow, so that both take part."""
    time.sleep(0.02)
    return number, os.getpid()


def test_helpers_take_part_in_several_pieces_of_work():
    calls = [partial(slowly, number) for number in range(100)]
    with Helpers(2, len(calls)) as helpers:
        helpers.start("decimal")
        (child,) = multiprocessing.active_children()
        for _ in range(2):
            numbers, pids = zip(*helpers.share(calls, told), strict=True)
            assert numbers == tuple(range(100))
            assert set(pids) <= {os.getpid(), child.pid}
        assert len(set(pids)) == 2
    assert multiprocessing.active_children() == []


def test_another_helper_takes_the_place_of_one_that_was_ended():
    calls = [partial(slowly, number) for number in range(100)]
    with Helpers(2, len(calls)) as helpers:
        helpers.start()
        (ended,) = multiprocessing.active_children()
        ended.kill()
        ended.join()
        for _ in range(2):
            numbers, pids = zip(*helpers.share(calls, told), strict=True)
            assert numbers == tuple(range(100))
        assert len(set(pids) - {ended.pid}) == 2


@pytest.mark.parametrize(("processes", "calls"), [(1, 100), (2, 2 * ENOUGH - 1)])
def test_few_calls_or_one_process_start_none(processes, calls):
    with Helpers(processes, calls) as helpers:
        helpers.start("decimal")
        assert helpers.share([partial(int, 3)] * calls, told) == [3] * calls
        assert multiprocessing.active_children() == []
