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

import pytest
from clusters import SERVE, finished, script, stored
from distributed import Client, LocalCluster
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.core.stages import News
from pmbnn.data import DataError, Npz
from pmbnn.data.files import copies
from pmbnn.processes.workers import Finished, Progressed, Stored
from pmbnn.results.faults import StorageError
from pmbnn.results.record import CellRecord, StoredFile
from pmbnn.results.store import Results
from pmbnn.sweep.cluster import connect, coordinator, turn, worker
from pmbnn.sweep.cluster.connect import cluster_of, connected
from pmbnn.sweep.cluster.crew import Crew, Seen, differing
from pmbnn.sweep.cluster.data import shipments_of, unpack
from pmbnn.sweep.cluster.errors import ClusterError, ClusterLostError
from pmbnn.sweep.cluster.placement import AHEAD, LARGE, Placement
from pmbnn.sweep.cluster.worker import About


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
    for session in {process.owner[1] for process in worker._PROCESSES}:
        worker.end_processes(session)


@pytest.fixture
def run(client, tmp_path, scripted, monkeypatch):
    """Events of scripted jobs on the cluster, each given by its act or as a job."""
    monkeypatch.setattr(worker, "SERVE", SERVE)
    results = Results(tmp_path / "results")
    results.prepare()
    clusters = []

    def events(acts, single_threaded=True):
        jobs = [
            scripted(f"cell{number}", act) if isinstance(act, str) else act
            for number, act in enumerate(acts)
        ]
        cluster = cluster_of(client)
        cluster.session = "test"  # one for all, so that the next test finds their processes
        clusters.append(cluster)
        lines = []
        cluster.begin(results.folder, lines.append)
        events.lines, events.results, events.cluster = lines, results, cluster
        return cluster.run_jobs(jobs, results, single_threaded, script())

    yield events
    for cluster in clusters:
        cluster._scout.stop()


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
    assert "2 workers, 2 threads" in run.lines[0]


def test_progress_passes_through_the_scheduler(run, scripted, monkeypatch):
    monkeypatch.setattr(coordinator, "LEAST_NEWS", 0.0)
    found = list(run([scripted("cell", seconds=1.0)]))
    assert Progressed(0, (News("fit", 1, 2, "step", "ELBO -3.5"),)) in found
    assert found[-1] == Finished(0, None, {"fit": 1.0})


def test_no_more_jobs_are_on_their_way_than_workers_can_take(run, client):
    most = 0
    for _ in run(["ok"] * 30):
        most = max(most, len(client.futures))
    assert 2 <= most <= 2 * AHEAD + 1
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
    assert damaged.count("cell1") == turn.DAMAGED
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
    assert not worker.about(results.folder, "me").sees_folder
    assert not worker.about(tmp_path / "nowhere", "me").sees_folder


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


@pytest.mark.slow
def test_a_process_that_is_taken_away_has_its_job_done_again(run, tmp_path):
    found = list(run([f"preempted once {tmp_path / 'marker'}", "ok"]))
    assert (tmp_path / "marker").exists()
    assert finished(found) == {0: None, 1: None}


# Versions


def test_workers_of_other_versions_are_rejected(client, tmp_path):
    cluster = cluster_of(client)
    cluster.crew.versions = cluster.crew.versions | {"jax": "0.0.1"}
    there = worker.versions_here()["jax"]
    with pytest.raises(ClusterError, match=f"can be used: jax {there} there, 0.0.1 here") as error:
        cluster.begin(tmp_path, lambda line: None)
    assert not isinstance(error.value, ClusterLostError)
    cluster.end()


def test_those_that_agree_are_used_and_the_others_named():
    crew, lines = Crew({"jax": "1"}), []
    agrees = Seen("tcp://a", 2, {}, About(crew.versions, True, "a", ()))
    other = Seen("tcp://b", 1, {}, "pmbnn 0.1 there, 0.2 here")
    for _ in range(2):
        crew.look_at((agrees, other), lines.append)
    assert lines == ["left out: worker tcp://b: pmbnn 0.1 there, 0.2 here"]
    assert crew.threads == 2
    placement = Placement(large=False)
    placement.update(crew.seen)
    assert {slot.address for slot in placement.slots} == {"tcp://a"}


def test_a_worker_that_came_unasked_checks_versions_itself(run, monkeypatch):
    """Such as the first ones of a cluster that starts them as jobs wait."""
    ours, calls = worker.versions_here(), []

    def versions():
        calls.append(1)
        return ours | {"jax": "0.0.1"} if len(calls) == 1 else ours

    events = run(["ok"])
    monkeypatch.setattr(worker, "versions_here", versions)
    assert finished(events) == {0: None}
    assert len(calls) == 2
    assert len(run.cluster.crew.seen) == 2 and run.cluster.threads == 1, "the other one is used"
    assert f"jax 0.0.1 there, {ours['jax']} here" in run.lines[-1]


def test_versions_are_named_by_what_differs():
    ours, theirs = {"pmbnn": "2", "jax": "1", "numpy": "3"}, {"pmbnn": "1", "jax": "1"}
    assert differing(ours, theirs) == "pmbnn 1 there, 2 here, numpy missing there, 3 here"


def test_a_worker_that_cannot_write_is_left_out(run, monkeypatch):
    """Its disk is full: the jobs that it fails are done elsewhere."""
    unpack, full = worker.unpack, []

    def broken(shipments, folder):
        if not full or full[0] == folder:
            full.append(folder)
            raise OSError(errno.ENOSPC, "No space left on device")
        return unpack(shipments, folder)

    monkeypatch.setattr(worker, "unpack", broken)
    assert finished(run(["ok"] * 6)) == dict.fromkeys(range(6))
    assert "OSError: [Errno 28] No space left on device" in run.lines[-1]
    assert run.cluster.threads == 1


def test_where_no_worker_can_write_the_sweep_ends(run, monkeypatch):
    def broken(shipments, folder):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(worker, "unpack", broken)
    with pytest.raises(ClusterLostError, match="can be used: OSError: .* No space left"):
        list(run(["ok"] * 6))


# The end


@pytest.fixture
def ending(run):
    """Events of scripted jobs of a run of this name, which ends, and the processes it has."""

    def events(acts, session):
        found = run(acts)
        run.cluster.session = session
        return found, lambda: [one for one in worker._PROCESSES if one.owner[1] == session]

    return events


def test_closing_the_events_ends_the_processes(run, ending, scripted):
    events, processes = ending([scripted("cell0"), scripted("cell1", seconds=600)], "closed")
    while not isinstance(event := next(events), Stored):
        pass
    assert event.job == 0
    events.close()
    run.cluster.end()
    assert eventually(lambda: not processes())


@pytest.mark.parametrize("moment", ["unpack", "_done"])
def test_no_process_is_kept_whose_run_ends_meanwhile(ending, monkeypatch, moment):
    """As a job begins, whose process is not there yet, and as it is done."""
    real = getattr(worker, moment)

    def end_meanwhile(*arguments):
        found = real(*arguments)
        worker.end_processes(f"ends at {moment}")
        return found

    monkeypatch.setattr(worker, moment, end_meanwhile)
    events, processes = ending(["ok"], f"ends at {moment}")
    assert finished(events) == {0: None}
    assert not processes()


# Placement


def seen(address, host="a", threads=1, cores=(), **resources):
    return Seen(address, threads, resources, About({}, True, host, cores))


def given(placement, groups):
    """Addresses by job, of all that have a place."""
    found = {}
    while placed := placement.next({n: g for n, g in groups.items() if n not in found}):
        found[placed[0]] = placed[1].address
    return found


def test_groups_stay_with_workers():
    placement = Placement(large=False)
    placement.update([seen("x"), seen("y")])
    assert given(placement, dict(enumerate("aabb"))) == {0: "x", 2: "y", 1: "x", 3: "y"}
    assert placement.next({4: "a"}) is None, "all have enough"
    placement.done(2)
    number, slot = placement.next({4: "a", 5: "b"})
    assert (number, slot.address) == (5, "y")


def test_each_thread_of_a_worker_has_jobs():
    placement = Placement(large=False)
    placement.update([seen("x", threads=3)])
    assert len(given(placement, dict.fromkeys(range(9), "a"))) == 3 * AHEAD


def test_workers_come_and_go():
    placement = Placement(large=False)
    placement.update([seen("x")])
    given(placement, dict.fromkeys(range(2), "a"))
    placement.update([seen("y")])
    assert given(placement, {2: "a"}) == {2: "y"}
    placement.update([])
    assert placement.next({3: "a"}) is None


def test_large_jobs_go_to_labelled_workers_or_to_one_of_each_machine():
    placement = Placement(large=True)
    placement.update([seen("x", "a"), seen("y", "a"), seen("z", "b", threads=4)])
    assert given(placement, dict.fromkeys(range(5), "a")) == {0: "x", 1: "z"}
    placement = Placement(large=True)
    placement.update([seen("x"), seen("y", "a", **{LARGE: 1}), seen("z", "b", **{LARGE: 0})])
    assert given(placement, dict.fromkeys(range(5), "a")) == {0: "y"}


def test_processes_are_bound_where_a_machine_has_a_thread_for_each_core():
    placement = Placement(large=False)
    full = [seen("x", "a", 1, (4, 5)), seen("y", "a", 1, (4, 5))]
    others = [seen("z", "b", 1, (0, 1)), seen("u", "c", 2, (2, 3))]
    placement.update([*full, *others])
    cores = {slot.address: slot.cores for slot in placement.slots}
    assert cores == {"x": (4,), "y": (5,), "z": (), "u": (2, 3)}
    placement.update([full[1], seen("w", "a", 1, (4, 5))])
    assert {slot.address: slot.cores for slot in placement.slots} == {"y": (5,), "w": (4,)}


# Data


def test_files_that_a_worker_does_not_have_come_along(tmp_path, made_archive):
    spec = Npz(file=str(made_archive))
    fingerprint = spec.load().fingerprint
    carried = shipments_of(spec, fingerprint)
    places = unpack(carried, tmp_path / "there")
    assert unpack(carried, tmp_path / "there") == places, "once"
    made_archive.unlink()
    with pytest.raises(DataError):
        spec.load()
    with copies({shipment.named: path for shipment, path in places.items()}):
        assert spec.load().fingerprint == fingerprint


def test_data_that_changed_do_not_travel(made_archive):
    with pytest.raises(DataError, match="the data changed while the sweep was running"):
        shipments_of(Npz(file=str(made_archive)), "another")


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
        (False, 2, "error: a cluster needs the packages dask and distributed: install"),
    ],
)
def test_the_command_says_so_in_one_line(monkeypatch, packages, status, match):
    monkeypatch.setattr(connect, "PATIENCE", 0.2)
    if not packages:
        monkeypatch.setitem(sys.modules, "distributed", None)
    given = ["experiment.yaml", "--scheduler", "tcp://127.0.0.1:1"]
    done = CliRunner().invoke(app, ["sweep", *given])
    assert (done.exit_code, done.output.count("\n")) == (status, 1)
    assert done.output.startswith(match)


def test_nobody_answers(monkeypatch):
    monkeypatch.setattr(connect, "PATIENCE", 0.5)
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
    with pytest.raises(ClusterError, match=r"install `pmbnn\[cluster\]`"), connected("tcp://a:1"):
        pass


def test_what_is_no_client_is_rejected():
    with pytest.raises(TypeError, match="`client` must be a `dask.distributed.Client`"):
        cluster_of("tcp://a:1")


def test_fits_on_a_cluster_run_on_processors():
    assert connect.device_of_workers("auto") == connect.device_of_workers("cpu") == "cpu"
    with pytest.raises(ClusterError, match="`--device` must be cpu"):
        connect.device_of_workers("gpu")


def test_records_say_where_they_are_from_only_if_it_is_elsewhere():
    record = CellRecord(sweep="s", name="n", status="error", settings={})
    assert record.machine is None
