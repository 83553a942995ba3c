"""Worker processes: who gets which job, what comes back, and what happens when one dies.

The processes are real; what they do with a job is scripted, so that no test waits for a fit.
"""

import errno
import importlib
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from pmbnn.core.machine import CPU, Device
from pmbnn.core.stages import StageUpdate
from pmbnn.fitting import workers
from pmbnn.fitting.tasks import JobTask
from pmbnn.fitting.workers import Finished, Progressed, Stored, next_job, run_jobs
from pmbnn.inference.xla import compile
from pmbnn.inference.xla.compile import shared
from pmbnn.results.present import StorageError

SCRIPT = textwrap.dedent(
    '''
    """A worker that does what the only "cell" of its job says."""

    import os
    import signal
    import struct
    import sys
    import time

    from pmbnn.core.stages import StageUpdate
    from pmbnn.results.present import StorageError
    from pmbnn.fitting.workers import Finished, Progressed, Stored, _Sender


    def serve(connection, folder, plugins, device):
        if (folder / "die_before_reading").exists():
            (folder / "die_before_reading").unlink()
            while not connection.poll(0.1):
                pass
            os.kill(os.getpid(), signal.SIGKILL)
        sender = _Sender(connection)
        while (job := sender.receive()) is not None:
            (act,) = job.cells
            if act == "exit":
                sys.exit(3)
            if act == "full disk":
                sender.send(StorageError("no room"))
            if act == "wait":
                time.sleep(0.3)
            sender.report((StageUpdate("choose"), StageUpdate("fit", 1, 2, "step", "ELBO -3.5")))
            if act == "half a message":
                os.write(connection.fileno(), struct.pack("!i", 1000) + b"half")
                os._exit(1)
            names = ("XLA_FLAGS", "OMP_NUM_THREADS", "NPROC")
            variables = {name: os.environ.get(name) for name in names}
            cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
            record = {"group": job.group, "pid": os.getpid(), "cores": cores, **variables}
            record["device"] = device
            sender.send(Stored(0, record))
            if act == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if act == "hang":
                time.sleep(600)
            sender.send(Finished(0))
            if act == "die when done":
                os._exit(0)
    '''
)


UNGUARDED = """
print("script", flush=True)
from pathlib import Path
from pmbnn.fitting.tasks import JobTask
from pmbnn.fitting import workers
import silent_worker
workers._serve = silent_worker.serve
for event in workers.run_jobs([JobTask("a", 1, ())], Path(), 1, False):
    print(event)
"""

SILENT = """
from pmbnn.fitting.workers import Finished
def serve(connection, folder, plugins, device):
    connection.recv()
    connection.send(Finished(0))
"""


HANGING = """
import os
import time
from pmbnn.fitting import workers
def serve(*arguments):
    workers._work = hang
    workers._serve(*arguments)
def hang(*arguments):
    print(os.getpid(), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Events of jobs that scripted workers run; a job is a group and what to do."""
    (tmp_path / "scripted_worker.py").write_text(SCRIPT)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(workers, "_serve", importlib.import_module("scripted_worker").serve)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("NPROC", raising=False)

    def events(jobs, number=1, single_threaded=False, devices=(CPU,)):
        tasks = [JobTask(group, 1, (act,)) for group, act in jobs]
        return run_jobs(tasks, tmp_path, number, single_threaded, devices=devices)

    yield events
    for child in multiprocessing.active_children():
        child.kill()


def stored(events):
    """Records by number of the job."""
    return {event.job: event.record for event in events if isinstance(event, Stored)}


def finished(events):
    """How each worker died, by number of the job; None where it lives."""
    return {event.job: event.died for event in events if isinstance(event, Finished)}


# What comes back


def test_events_of_a_job_come_in_order(run):
    found = list(run([("a", "ok"), ("b", "ok")]))
    assert [type(event) for event in found if event.job == 0] == [Progressed, Stored, Finished]
    assert found[0] == Progressed(
        0, (StageUpdate("choose"), StageUpdate("fit", 1, 2, "step", "ELBO -3.5"))
    )
    assert finished(found) == {0: None, 1: None}
    assert [stored(found)[job]["group"] for job in (0, 1)] == ["a", "b"]
    assert multiprocessing.active_children() == []


def test_no_jobs_need_no_workers(run, monkeypatch):
    monkeypatch.setattr(workers, "_start", lambda *_: pytest.fail("started a worker"))
    assert list(run([], 2)) == []


def test_there_are_no_more_workers_than_asked_for(run):
    found = list(run([("a", "wait")] * 6, 2))
    assert len({record["pid"] for record in stored(found).values()}) == 2
    assert finished(found) == dict.fromkeys(range(6))


@pytest.mark.parametrize(
    ("own", "taken", "number"),
    [
        ("b", {"a", "b"}, 1),  # what it has compiled
        (None, {"a"}, 1),  # what nobody has compiled
        ("c", {"a", "c"}, 1),
        ("c", {"a", "b", "c"}, 0),  # helping out, the first
        (None, set(), 0),
    ],
)
def test_jobs_go_to_workers_that_have_compiled_their_group(own, taken, number):
    assert next_job({0: "a", 1: "b", 2: "b", 3: "a"}, own, taken) == number


def test_workers_do_not_run_the_script_that_started_them(tmp_path):
    """It need not ask for its name: a worker would import it, and sweep within itself."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    (tmp_path / "silent_worker.py").write_text(SILENT)
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "script\nFinished(job=0, died=None, seconds={})\n"


def test_jobs_that_fill_a_processor_run_last_on_all_its_cores():
    """Accelerators run all jobs at once: large jobs come last."""
    jobs, gpus = [9, 1, 8, 2], (Device("gpu", 0), Device("gpu", 1))
    found = workers.turns(jobs, lambda job: job > 5, 4)
    assert found == [([1, 2], 4, True), ([9, 8], 1, False)]
    assert workers.turns(jobs, lambda job: job > 5, 4, gpus) == [([1, 2, 9, 8], 2, False)]


def test_progress_is_thinned_out():
    sent = []

    class Connection:
        send = staticmethod(sent.append)

    sender = workers._Sender(Connection)
    for step in range(1000):
        sender.report((StageUpdate("fit", step, 1000),))
    assert sent[0] == Progressed(0, (StageUpdate("fit", 0, 1000),))
    assert len(sent) < 100
    sender.report((StageUpdate("write"),))
    assert sent[-1] == Progressed(0, (StageUpdate("write"),)), "it may last"


# Death of a worker


@pytest.mark.parametrize(
    ("act", "kept", "died"),
    [
        ("kill", True, "the worker process was ended by SIGKILL"),
        pytest.param(
            *("exit", False, "the worker process ended with exit code 3"), marks=pytest.mark.slow
        ),
        ("half a message", False, "the worker process ended with exit code 1"),
    ],
)
def test_a_dead_worker_is_reported_and_the_others_go_on(run, act, kept, died):
    found = list(run([("a", act), ("a", "ok"), ("b", "ok")]))
    assert finished(found) == {0: died, 1: None, 2: None}
    assert sorted(stored(found)) == ([0, 1, 2] if kept else [1, 2])
    assert multiprocessing.active_children() == []


def test_a_worker_that_dies_before_it_reads_its_job(run, tmp_path):
    """The operating system then reports a connection reset, not the end of the file."""
    (tmp_path / "die_before_reading").touch()
    found = list(run([("a", "ok"), ("a", "ok")]))
    assert finished(found) == {0: "the worker process was ended by SIGKILL", 1: None}
    assert list(stored(found)) == [1]


def test_a_worker_that_dies_between_two_jobs(run):
    found = []
    for event in run([("a", "die when done"), ("a", "ok"), ("a", "ok")]):
        found.append(event)
        if event == Finished(0):
            for child in multiprocessing.active_children():  # none, if it has ended already
                child.join(10)
    assert finished(found) == {0: None, 1: "the worker process ended with exit code 0", 2: None}
    assert sorted(stored(found)) == [0, 2]


def test_every_job_may_kill_its_worker(run):
    found = list(run([("a", "kill")] * 3, 2))
    assert len(finished(found)) == 3
    assert all(finished(found).values())


# Faults of the system


def test_a_full_disk_ends_the_sweep_and_every_worker(run):
    events = run([("a", "hang"), ("b", "full disk")], 2)
    with pytest.raises(StorageError, match="no room"):
        list(events)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("error", "sent"),
    [(OSError(errno.ENOSPC, "No space left on device"), 1), (ZeroDivisionError(), 0)],
)
def test_a_worker_tells_of_a_fault_and_of_no_other_error(monkeypatch, tmp_path, error, sent):
    told = []

    class Connection:
        send = staticmethod(told.append)

    def work(*_):
        raise error

    monkeypatch.setattr(workers, "_work", work)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with nullcontext() if sent else pytest.raises(ZeroDivisionError):
        workers._serve(Connection, tmp_path, (), CPU)
    assert [type(one) for one in told] == [StorageError] * sent


def test_jobs_of_a_worker_share_programs(monkeypatch, tmp_path):
    built, sent = [], []

    class Job:
        def run(self, folder, stored, programs):
            shared("graph", lambda: built.append(folder))

    jobs = [Job(), Job(), None]
    sender = SimpleNamespace(
        receive=lambda: jobs.pop(0), send=sent.append, report=lambda stages: None
    )
    monkeypatch.setattr(workers, "claim", lambda device: device)
    for of_the_process in ("use_compilation_cache", "count_compiling"):
        monkeypatch.setattr(compile, of_the_process, lambda: None)
    workers._work(sender, tmp_path, (), CPU)
    assert len(sent) == 2
    assert built == [tmp_path]


# The end


def test_closing_the_iterator_ends_the_workers(run):
    events = run([("a", "hang"), ("b", "hang"), ("c", "hang")], 2)
    pids = set()
    while len(pids) < 2:
        event = next(events)
        if isinstance(event, Stored):
            pids.add(event.record["pid"])
    events.close()
    assert multiprocessing.active_children() == []
    assert not any(is_running(pid) for pid in pids)


def test_a_worker_without_a_parent_stops(run, tmp_path):
    """A worker that finds nobody to report to ends, and records no failure."""
    ours, theirs = multiprocessing.Pipe()
    ours.close()
    sender = workers._Sender(theirs)
    with pytest.raises(SystemExit) as stop:
        sender.report((StageUpdate("fit", 1, 2),))
    assert stop.value.code == 0
    assert sender.receive() is None


def test_a_worker_ends_with_its_parent(tmp_path):
    """Also in the middle of a job: another sweep may write the folder at once."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    (tmp_path / "silent_worker.py").write_text(HANGING)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    with subprocess.Popen(
        [sys.executable, str(script)], env=environment, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline() == "script\n"
        pid = int(parent.stdout.readline())
        parent.terminate()
    limit = time.monotonic() + 60
    while is_at_work(pid) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not is_at_work(pid)


def is_at_work(pid):
    """Whether a process runs; one that nobody has waited for may be there still."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# Surroundings


def test_workers_of_small_networks_have_one_thread(run):
    before = dict(os.environ)
    (record,) = stored(run([("a", "ok")], 1, single_threaded=True)).values()
    assert record["XLA_FLAGS"] == "--xla_cpu_multi_thread_eigen=false"
    assert record["OMP_NUM_THREADS"] == record["NPROC"] == "1"
    assert record["device"] == CPU
    assert dict(os.environ) == before


def test_workers_of_large_networks_have_all_threads(run):
    (record,) = stored(run([("a", "ok")])).values()
    assert (record["XLA_FLAGS"], record["OMP_NUM_THREADS"]) == (None, None)
    if hasattr(os, "sched_getaffinity"):
        assert record["cores"] == sorted(os.sched_getaffinity(0))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system binds no process")
def test_where_each_core_has_a_worker_it_is_bound_to_its_own(run):
    ours = sorted(os.sched_getaffinity(0))
    tasks = [(str(i), "kill" if i == 0 else "wait") for i in range(len(ours) + 1)]
    found = [record["cores"] for record in stored(run(tasks, len(ours), True)).values()]
    assert all(len(own) == 1 for own in found)
    # That of the one that died is taken by the next.
    assert sorted({core for own in found for core in own}) == ours
    records = stored(run([("a", "ok")], len(ours) + 1, True)).values()
    assert [record["cores"] for record in records] == [ours]


def test_accelerators_have_a_worker_each_bound_to_no_core(run):
    """The device of a worker that died is taken by the next; never two have the same."""
    two = (Device("gpu", 0), Device("gpu", 1))
    tasks = [("a", "kill"), ("b", "wait"), ("c", "wait"), ("d", "wait")]
    found = list(stored(run(tasks, 2, False, two)).values())
    by_pid = {record["pid"]: record["device"] for record in found}
    assert len(by_pid) == 3
    assert sorted(device.number for device in by_pid.values()) in ([0, 0, 1], [0, 1, 1])
    assert {found[0]["device"].number, found[1]["device"].number} == {0, 1}
    assert {record["XLA_FLAGS"] for record in found} == {None}
    if hasattr(os, "sched_getaffinity"):
        assert {tuple(record["cores"]) for record in found} == {
            tuple(sorted(os.sched_getaffinity(0)))
        }


def test_what_the_user_has_set_is_kept(run, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--mine")
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    (record,) = stored(run([("a", "ok")], 1, single_threaded=True)).values()
    assert record["XLA_FLAGS"].split() == ["--mine", "--xla_cpu_multi_thread_eigen=false"]
    assert record["OMP_NUM_THREADS"] == "5"


def test_ctrl_c_does_not_reach_a_worker_that_is_starting(run, monkeypatch):
    """Ctrl-C goes to every process of a terminal; the parent alone decides what it means."""
    start = workers._start

    def start_and_interrupt(*given):
        process, connection = start(*given)
        for _ in range(20):
            os.kill(process.pid, signal.SIGINT)
            time.sleep(0.02)
        return process, connection

    monkeypatch.setattr(workers, "_start", start_and_interrupt)
    assert finished(run([("a", "ok")])) == {0: None}
