"""The coordinator of a cluster and its workers: who gets what, what comes back, what goes wrong.

Scheduler and workers of Dask live in this process; the processes that these start are real but
scripted, so that no test waits for a fit or for JAX. Whole sweeps: `test_cluster_sweeps.py`.
"""

import errno
import hashlib
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from clusters import SERVE, finished, script, stored
from distributed import Client, KilledWorker, LocalCluster
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.core.stages import StageUpdate
from pmbnn.data import DataError, Npz
from pmbnn.data.base import copies
from pmbnn.fitting.workers import Finished, Progressed, Stored
from pmbnn.results.present import StorageError
from pmbnn.results.record import CellRecord, StoredFile
from pmbnn.results.store import Results
from pmbnn.sweep.cluster import coordinator, jobs, worker
from pmbnn.sweep.cluster.coordinator import (
    ClusterError,
    ClusterLostError,
    WorkerPool,
    assign_cores,
    cluster_of,
    connected,
    device_of_workers,
)
from pmbnn.sweep.cluster.jobs import JOBS_PER_WORKER, SubmittedJobs, pack_dataset
from pmbnn.sweep.cluster.worker import (
    LARGE,
    RunSettings,
    WorkerInfo,
    unfit_reason,
    unpack,
    worker_info,
)


@pytest.fixture(scope="module")
def client():
    """Client of a cluster of two workers in this process."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client
        for _, session in list(worker._CHILDREN):
            client.run(worker.end_session, session)
        assert eventually(lambda: not worker._CHILDREN)


@pytest.fixture
def run(client, tmp_path, scripted, monkeypatch):
    """Events of scripted jobs on the cluster, each given by its act or as a job."""
    monkeypatch.setattr(worker, "SERVE", SERVE)
    results = Results(tmp_path / "results")
    results.prepare()
    clusters = []

    def jobs(acts):
        return [
            scripted(f"cell{number}", act) if isinstance(act, str) else act
            for number, act in enumerate(acts)
        ]

    def events(acts):
        cluster = cluster_of(client)
        # One session for all, so that the next test finds their processes.
        cluster.settings = replace(cluster.settings, session="test")
        clusters.append(cluster)
        lines = []
        cluster.begin(results.folder, lines.append)
        events.lines, events.cluster = lines, cluster
        return cluster.run_jobs(jobs(acts), results, True, script())

    events.jobs, events.results = jobs, results
    yield events
    for cluster in clusters:
        cluster.settings = replace(cluster.settings, session="another")  # processes stay
        cluster._has_ended.set()


def eventually(holds):
    """Whether something comes true within some seconds."""
    for _ in range(200):
        if holds():
            return True
        time.sleep(0.05)
    return False


# What comes back


def test_cells_come_back_whole_and_processes_stay(run, scripted):
    """As local ones do: compiled programs are kept, and each job has one thread."""
    found = list(run([scripted(f"cell{i}", group="a" if i < 3 else "b") for i in range(6)]))
    assert finished(found) == dict.fromkeys(range(6))
    told = {job: record.settings["told"] for job, record in stored(found).items()}
    assert len({one["pid"] for one in told.values()}) <= 2
    assert [one["programs"] for one in told.values()].count("None") <= 2
    assert {one["programs"] for one in told.values()} <= {"None", "a", "b"}
    assert {one["NPROC"] for one in told.values()} == {"1"}
    assert {one["XLA_FLAGS"].split()[-1] for one in told.values()} == {
        "--xla_cpu_multi_thread_eigen=false"
    }
    for number, record in stored(found).items():
        assert run.results.load_record(f"cell{number}") == record
        content = (run.results.cells / f"cell{number}" / "trace.nc").read_bytes()
        assert record.files["trace.nc"].holds(content)
        assert not list(Path(told[number]["folder"]).glob("cells/*")), "nothing stays there"
    assert ": 2 workers" in run.lines[0]


def test_progress_passes_through_the_scheduler(run, scripted, monkeypatch):
    monkeypatch.setattr(coordinator, "PROGRESS_EVERY", 0.0)
    found = list(run([scripted("cell", seconds=1.0)]))
    assert Progressed(0, (StageUpdate("fit", 1, 2, "step", "ELBO -3.5"),)) in found
    assert found[-1] == Finished(0, None, {"fit": 1.0})


def test_no_more_jobs_are_on_their_way_than_workers_can_take(run, client, monkeypatch):
    submit, running = SubmittedJobs.submit, []

    def submit_and_count(jobs):
        submit(jobs)
        running.append(len(jobs.running))

    monkeypatch.setattr(SubmittedJobs, "submit", submit_and_count)
    list(run(["ok"] * 30))
    assert max(running) == 2 * JOBS_PER_WORKER
    assert eventually(lambda: not client.futures), "nothing is kept"
    assert len(run.results.cell_names()) == 30


def test_cells_that_change_on_their_way_are_asked_for_again(run, monkeypatch):
    packed, damaged = worker._packed, []

    def pack(record, folder, setting):
        cell = packed(record, folder, setting)
        if record.name == "cell1" or (record.name == "cell0" and not damaged):
            damaged.append(record.name)
            return replace(cell, files={"trace.nc": b"other"})
        return cell

    monkeypatch.setattr(worker, "_packed", pack)
    died = finished(run(["ok", "ok", "ok"]))
    assert died[0] is None and died[2] is None
    assert "trace.nc of cell1 has changed on its way" in died[1]
    assert damaged.count("cell1") == jobs.DAMAGED
    assert run.results.cell_names() == ["cell0", "cell2"]


@pytest.fixture
def in_shared_folder(client, tmp_path, monkeypatch):
    """Events of scripted jobs whose workers write into the results folder themselves."""
    monkeypatch.setattr(worker, "SERVE", SERVE)
    results = Results(tmp_path / "results")
    results.prepare()
    (results.folder / ".writer.json").write_text("me")
    cluster = cluster_of(client, shared_folder=True)
    cluster.begin(results.folder, lambda line: None)

    def events(job):
        return list(cluster.run_jobs([job], results, True, script()))

    events.results, events.cluster = results, cluster
    yield events
    cluster.end()


def test_in_a_shared_folder_workers_write_themselves(in_shared_folder, tmp_path, scripted):
    found, results = in_shared_folder(scripted("cell")), in_shared_folder.results
    assert stored(found)[0].settings["told"]["folder"] == str(results.folder)
    assert results.load_record("cell") == stored(found)[0]
    # A worker that sees another folder, or none, is of no use.
    (results.folder / ".writer.json").write_text("somebody else")
    versions = worker.worker_versions()
    for folder in (results.folder, tmp_path / "nowhere"):
        settings = RunSettings("test", versions, folder=folder, writer="me")
        assert "does not see the results folder" in unfit_reason(settings, 1)


def test_a_full_shared_folder_is_the_fault_of_no_worker(in_shared_folder, scripted):
    with pytest.raises(StorageError, match="cells` cannot be written or read: No space left"):
        in_shared_folder(scripted("cell", "full "))
    assert in_shared_folder.cluster.threads == 2
    # A disk of its own is: the job goes to the others, while there are any.
    with pytest.raises(ClusterLostError, match="no worker can be used: `/own` cannot be written"):
        in_shared_folder(scripted("cell", "full /own"))


# Death


def test_a_process_that_dies_is_reported_and_the_others_go_on(run):
    found = list(run(["kill process", "ok", "ok"]))
    assert finished(found) == {0: "the worker process was ended by SIGKILL", 1: None, 2: None}
    assert sorted(stored(found)) == [1, 2]


def killed(task, *files):
    """Run a task as if Dask had given it up: the second one always, the first one once."""
    worker.given_up.append(task.number)
    if worker.given_up.count(task.number) <= {0: 1, 1: 5}.get(task.number, 0):
        raise KilledWorker("job", SimpleNamespace(address="tcp://lost"), 1)
    return worker.original(task, *files)


def test_of_jobs_that_dask_gives_up_the_guilty_one_alone_fails(run, monkeypatch):
    """Dask gives up every job that its lost workers had: each is tried again by itself."""
    monkeypatch.setattr(worker, "given_up", [], raising=False)
    monkeypatch.setattr(worker, "original", worker.run_task, raising=False)
    monkeypatch.setattr(worker, "run_task", killed)
    died = finished(run(["ok", "ok", "ok"]))
    assert died == {0: None, 1: "2 workers died while they had it", 2: None}
    assert [worker.given_up.count(job) for job in range(3)] == [2, 2, 1]


def test_a_job_whose_workers_died_fails_only_if_they_had_no_other_job():
    """Whether others are still running or not."""
    error = KilledWorker("job", SimpleNamespace(address="tcp://lost"), 1)
    future = SimpleNamespace()
    cluster = SimpleNamespace(client=None, pool=SimpleNamespace(usable=[], workers=()))
    submitted = jobs.SubmittedJobs(cluster, ["one", "two"], None, RunSettings("", {}, ""), ())
    submitted.waiting, submitted.running = [], {0: (future, []), 1: (future, [])}
    assert [event for job in (0, 1) for event in submitted.receive(job, future, error)] == []
    submitted._submit = lambda job, _: submitted.running.update({job: (future, [])})
    for job in (0, 1):
        submitted.submit()
        assert list(submitted.running) == [job]
        [event] = submitted.receive(job, future, error)
        assert event == Finished(job, "2 workers died while they had it")
    assert submitted.is_done


@pytest.mark.slow
def test_a_process_that_is_taken_away_has_its_job_done_again(run, tmp_path):
    found = list(run([f"preempted once {tmp_path / 'marker'}", "ok"]))
    assert (tmp_path / "marker").exists()
    assert finished(found) == {0: None, 1: None}


# Versions


def test_workers_of_other_versions_are_rejected(client, tmp_path):
    cluster = cluster_of(client)
    versions = cluster.settings.versions | {"jax": "0.0.1"}
    cluster.settings = replace(cluster.settings, versions=versions)
    there = worker.worker_versions()["jax"]
    with pytest.raises(ClusterError, match=f"can be used: jax {there} there, 0.0.1 here") as error:
        cluster.begin(tmp_path, lambda line: None)
    assert not isinstance(error.value, ClusterLostError)
    cluster.end()


def test_those_that_agree_are_used_and_the_others_named():
    pool, lines = WorkerPool(), []
    agrees = WorkerInfo("tcp://a")
    other = WorkerInfo("tcp://b", unfit="pmbnn 0.1 there, 0.2 here")
    for _ in range(2):
        pool.update((agrees, other), lines.append)
    assert lines == ["left out: worker tcp://b: pmbnn 0.1 there, 0.2 here"]
    assert pool.usable == [agrees]


def test_a_worker_that_came_unasked_checks_versions_itself(run, monkeypatch):
    """Such as the first ones of a cluster that starts them as jobs wait."""
    ours, calls = worker.worker_versions(), []

    def versions():
        calls.append(1)
        return ours | {"jax": "0.0.1"} if len(calls) == 1 else ours

    events = run(["ok"])
    monkeypatch.setattr(worker, "worker_versions", versions)
    assert finished(events) == {0: None}
    assert len(calls) == 2
    assert len(run.cluster.pool.workers) == 2 and run.cluster.threads == 1, "the other one is used"
    assert f"jax 0.0.1 there, {ours['jax']} here" in run.lines[-1]


def test_versions_are_named_by_what_differs(monkeypatch):
    ours, theirs = {"pmbnn": "2", "jax": "1", "numpy": "3"}, {"pmbnn": "1", "jax": "1"}
    monkeypatch.setattr(worker, "worker_versions", lambda: theirs)
    reason = unfit_reason(RunSettings("test", ours), 1)
    assert reason == "pmbnn 1 there, 2 here, numpy missing there, 3 here"


def test_a_worker_of_several_threads_is_left_out():
    settings = RunSettings("test", worker.worker_versions())
    assert unfit_reason(settings, 1) is None
    reason = "it has 4 threads: start it with `--nworkers 4 --nthreads 1`"
    assert unfit_reason(settings, 4) == reason
    with pytest.raises(ClusterError, match="no worker can be used: it has 4 threads: start it"):
        WorkerPool().update((WorkerInfo("tcp://a", unfit=reason),), lambda line: None)


def test_a_worker_that_cannot_write_is_left_out(run, monkeypatch):
    """Its disk is full: the jobs that it fails are done elsewhere."""
    unpack, full = worker.unpack, []

    def broken(files, contents, folder):
        if not full or full[0] == folder:
            full.append(folder)
            raise OSError(errno.ENOSPC, "No space left on device")
        return unpack(files, contents, folder)

    monkeypatch.setattr(worker, "unpack", broken)
    assert finished(run(["ok"] * 6)) == dict.fromkeys(range(6))
    assert "OSError: [Errno 28] No space left on device" in run.lines[-1]
    assert run.cluster.threads == 1


def test_where_no_worker_can_write_the_sweep_ends(run, monkeypatch):
    def broken(files, contents, folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(worker, "unpack", broken)
    with pytest.raises(ClusterLostError, match="can be used: OSError: .* No space left"):
        list(run(["ok"] * 6))


# The end


@pytest.fixture
def ending(run):
    """Events of scripted jobs of a session of this name, which ends, and its processes."""

    def events(acts, session):
        run([])
        run.cluster.settings = replace(run.cluster.settings, session=session)
        found = run.cluster.run_jobs(run.jobs(acts), run.results, True, script())
        return found, lambda: [key for key in worker._CHILDREN if key[1] == session]

    return events


def test_closing_the_events_ends_the_processes(run, ending, scripted):
    events, processes = ending([scripted("cell0"), scripted("cell1", seconds=600)], "closed")
    while not isinstance(event := next(events), Stored):
        pass
    assert event.job == 0
    events.close()
    run.cluster.end()
    assert eventually(lambda: not processes())


@pytest.mark.parametrize("moment", ["unpack", "_run"])
def test_no_process_is_kept_whose_run_ends_meanwhile(run, ending, client, monkeypatch, moment):
    """As a job begins, whose process is not there yet, and as it is done."""
    real = getattr(worker, moment)

    def end_meanwhile(*arguments):
        found = real(*arguments)
        client.run(worker.end_session, f"ends at {moment}")
        return found

    monkeypatch.setattr(worker, moment, end_meanwhile)
    events, processes = ending(["ok"], f"ends at {moment}")
    list(events)
    assert eventually(lambda: not processes())


# Placement


def test_jobs_whose_workers_are_all_gone_are_submitted_again(run):
    """Dask would wait for the address of a worker, which no other worker ever has."""
    events, there = run(["ok"]), run.cluster.pool.workers
    gone = (
        WorkerInfo("tcp://127.0.0.1:1"),
        WorkerInfo("tcp://127.0.0.1:2", unfit="its disk is full"),
    )
    run.cluster.pool.workers = gone
    run.cluster.inbox.put(there)
    assert finished(events) == {0: None}


def test_workers_that_are_labelled_for_large_networks_say_so():
    def is_for_large(**resources):
        state = SimpleNamespace(nthreads=1, total_resources=resources)
        asked = SimpleNamespace(contact_address="tcp://a", state=state)
        return worker_info(RunSettings("test", worker.worker_versions()), asked).is_for_large

    assert is_for_large(**{LARGE: 1}) and not is_for_large(**{LARGE: 0}) and not is_for_large()


def test_large_jobs_go_to_labelled_workers_or_to_one_of_each_machine():
    def for_large_jobs(*workers):
        pool = WorkerPool()
        pool.update(workers, lambda line: None)
        return [worker.address for worker in pool.for_large_jobs()]

    x, y, z = WorkerInfo("x", "a"), WorkerInfo("y", "a"), WorkerInfo("z", "b")
    assert sorted(for_large_jobs(x, y, z)) == ["x", "z"]
    assert for_large_jobs(x, replace(y, is_for_large=True), z) == ["y"]


def test_processes_are_bound_where_a_machine_has_a_worker_for_each_core():
    x, y, w = (WorkerInfo(address, "a", (4, 5)) for address in "xyw")
    z, u = WorkerInfo("z", "b", (0, 1)), WorkerInfo("u", "c", (2,))
    cores = assign_cores([x, y, z, u], {})
    assert cores == {"x": 4, "y": 5, "u": 2}
    assert assign_cores([y, w], cores) == {"y": 5, "w": 4}
    assert assign_cores([y], cores) == {"y": 5}


# Data


def test_files_that_a_worker_does_not_have_come_along(tmp_path, made_archive):
    spec = Npz(file=str(made_archive))
    fingerprint = spec.load().fingerprint
    carried = pack_dataset(spec, fingerprint)
    paths = unpack(tuple(carried), tuple(carried.values()), tmp_path / "there")
    assert unpack(tuple(carried), (b"",) * len(carried), tmp_path / "there") == paths, "once"
    made_archive.unlink()
    with pytest.raises(DataError):
        spec.load()
    with copies({file.setting: path for file, path in zip(carried, paths, strict=True)}):
        assert spec.load().fingerprint == fingerprint


def test_data_that_changed_do_not_travel(made_archive):
    with pytest.raises(DataError, match="the data changed while the sweep was running"):
        pack_dataset(Npz(file=str(made_archive)), "another")


@pytest.fixture
def made_archive(tmp_path):
    import numpy as np

    rng = np.random.default_rng(0)
    path = tmp_path / "rows.npz"
    np.savez(path, x=rng.normal(size=(20, 2)), y=np.array(["no", "yes"] * 10))
    return path


def test_a_file_knows_its_bytes():
    file = StoredFile(size=1, sha256=hashlib.sha256(b"x").hexdigest())
    assert file.holds(b"x")
    assert not file.holds(b"y") and not file.holds(b"xx")


# The way there


@pytest.mark.parametrize(
    ("packages", "status", "match"),
    [
        (True, 3, "error: no scheduler answers at tcp://127.0.0.1:1 within 0 seconds."),
        (False, 2, "error: a cluster needs the packages dask and distributed: pip install"),
    ],
)
def test_the_command_says_so_in_one_line(monkeypatch, packages, status, match):
    monkeypatch.setattr(coordinator, "PATIENCE", 0.2)
    if not packages:
        monkeypatch.setitem(sys.modules, "distributed", None)
    given = ["experiment.yaml", "--scheduler", "tcp://127.0.0.1:1"]
    done = CliRunner().invoke(app, ["sweep", *given])
    assert (done.exit_code, done.output.count("\n")) == (status, 1)
    assert done.output.startswith(match)


def test_nobody_answers(monkeypatch):
    monkeypatch.setattr(coordinator, "PATIENCE", 0.5)
    with (
        pytest.raises(ClusterLostError, match="no scheduler answers at tcp://127.0.0.1:1 within"),
        connected("tcp://127.0.0.1:1"),
    ):
        pass


@pytest.mark.parametrize(
    ("scheduler", "match"),
    [
        ("host:8786", "must be an address like tcp://host:8786 or a scheduler file"),
        ("nowhere.json", "the scheduler file `nowhere.json` cannot be read: No such file"),
        ("other.json", "`other.json` must be a scheduler file of Dask"),
        ("carrier://pigeon", "must be an address, got 'carrier://pigeon': unknown"),
    ],
)
def test_a_scheduler_that_is_none_is_rejected(tmp_path, monkeypatch, scheduler, match):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ClusterError, match=match), connected(scheduler):
        pass


def test_without_the_packages_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(ClusterError, match=r"pip install \'\.\[cluster\]\'"),
        connected("tcp://a:1"),
    ):
        pass


def test_what_is_no_client_is_rejected():
    with pytest.raises(TypeError, match="`client` must be a `dask.distributed.Client`"):
        cluster_of("tcp://a:1")


def test_fits_on_a_cluster_run_on_processors():
    assert device_of_workers("auto") == device_of_workers("cpu") == "cpu"
    with pytest.raises(ClusterError, match="`--device` must be cpu"):
        device_of_workers("gpu")


def test_records_say_where_they_are_from_only_if_it_is_elsewhere():
    record = CellRecord(sweep="s", name="n", status="error", settings={})
    assert record.machine is None
