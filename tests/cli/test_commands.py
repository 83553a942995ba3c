"""The one command ``pmbnn``: its parts, its version, and what its help loads."""

import errno
import json
import signal
import sys
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

import pmbnn
from pmbnn import results
from pmbnn.cli import app
from pmbnn.cli.command import INTERRUPTED_LINE
from pmbnn.fitting.helpers import deferred_interrupts
from pmbnn.results.store import ResultsError

COMMANDS = [
    "sweep",
    "merge",
    "check",
    "prior",
    "calibrate",
    "predict",
    "report",
    "claims",
    "compare",
]
COMMANDS += ["diff", "export", "show", "table"]
COMMANDS += ["verify", "prune", "baselines", "schema", "new"]


def call(*arguments):
    return CliRunner().invoke(app, arguments)


def test_version():
    assert call("--version").output == f"{pmbnn.__version__}\n"


def test_help_has_a_whole_line_for_each_command():
    _, *panels = call("--help").output.partition("Commands of every day:")
    lines = [line.split(maxsplit=1) for line in "".join(panels).splitlines() if line[:2] == "  "]
    assert sorted(name for name, _ in lines) == sorted(COMMANDS)
    assert all(words.endswith(".") and "..." not in words for _, words in lines)


def test_help_lists_commands_in_the_order_of_a_day_and_has_completion():
    shown = call("--help").output
    day = ["new", "sweep", "show", "report", "predict", "table", "compare", "check"]
    places = [shown.index(f"\n  {name} ") for name in day]
    assert places == sorted(places)
    assert "--install-completion" in shown


@pytest.mark.parametrize(
    ("command", "options"),
    [("sweep", "ovwq"), ("check", "vwq"), ("table", "fo"), ("report", "o"), ("predict", "o")],
)
def test_short_options_and_usual_metavariables(command, options):
    shown = call(command, "--help").output
    assert all(f"\n  -{letter}, --" in shown for letter in options)
    assert "RESULTS" in shown or "FILE" in shown
    assert "<int" not in shown and "RESULT_CELL" not in shown and "EXPERIMENT" not in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help(command):
    done = call(command, "--help")
    assert done.exit_code == 0
    assert "Exit status" in done.output


def test_a_sweep_is_planned_by_the_command(tmp_path):
    (tmp_path / "bad.yaml").write_text("name: bad")
    done = call("sweep", str(tmp_path / "bad.yaml"), "--dry-run")
    assert done.exit_code == 2
    assert "error: `sweeps` must be a list" in done.output


@pytest.mark.parametrize(
    ("found", "code", "output"),
    [([], 0, ""), (["a is short", "b is gone"], 1, "a is short\nb is gone\n")],
)
def test_verify_names_what_is_broken(monkeypatch, tmp_path, found, code, output):
    asked = []
    monkeypatch.setattr(
        results, "verify", lambda *given: asked.append(given) or found, raising=False
    )
    done = call("verify", str(tmp_path), "--repair")
    assert (done.exit_code, done.output) == (code, output)
    assert asked == [(tmp_path, True)]


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full disk")


@FULL
def test_a_full_disk_is_one_line_and_a_status_of_its_own():
    done = call("schema", "--out", "/dev/full")
    assert done.exit_code == 3
    assert done.output == (
        "error: `/dev/full` cannot be written: No space left on device; fix this and run "
        "the same command again, finished work is kept.\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a limit of the size of files is POSIX's")
@pytest.mark.parametrize("old", [None, "what was there"])
def test_a_disk_that_gets_full_leaves_no_half_file(tmp_path, old):
    import resource

    out, limits = tmp_path / "schema.json", resource.getrlimit(resource.RLIMIT_FSIZE)
    if old is not None:
        out.write_text(old)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        done = call("schema", "--out", str(out))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.exit_code == 3 and f"`{out}` cannot be written: File too large" in done.output
    assert [path.read_text() for path in tmp_path.iterdir()] == ([] if old is None else [old])


def test_a_link_stays_one(tmp_path):
    """As /dev/stdout, which must not become a file."""
    (tmp_path / "link.json").symlink_to(tmp_path / "schema.json")
    done = call("schema", "--out", str(tmp_path / "link.json"))
    assert done.exit_code == 0 and (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "schema.json").read_text())["title"]


@pytest.mark.parametrize("command", ["sweep", "calibrate"])
def test_an_error_of_the_system_that_nobody_expects_is_one_line(monkeypatch, tmp_path, command):
    def load(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("pmbnn.experiment.load.load_experiment", load)
    done = call(command, str(tmp_path / "x.yaml"))
    assert (done.exit_code, len(done.output.splitlines())) == (3, 1)
    assert "error: Too many open files; fix this" in done.output


def test_a_warning_is_one_line(monkeypatch, tmp_path):
    """Not behind a path and a line of this program, as it was of a broken cell."""
    before = warnings.formatwarning

    def warned(*_, **__):
        return [warnings.formatwarning("`a` is missing", UserWarning, "a.py", 7).rstrip("\n")]

    monkeypatch.setattr(results, "verify", warned, raising=False)
    assert call("verify", str(tmp_path)).output == "warning: `a` is missing\n"
    assert warnings.formatwarning is before


@pytest.mark.parametrize("command", ["sweep", "prior", "calibrate", "verify"])
def test_ctrl_c_is_one_line_and_a_status_of_its_own(monkeypatch, tmp_path, command):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("pmbnn.experiment.load.load_experiment", interrupted)
    monkeypatch.setattr(results, "verify", interrupted, raising=False)
    done = call(command, str(tmp_path))
    assert (done.exit_code, done.output) == (130, f"{INTERRUPTED_LINE}\n")


@pytest.mark.parametrize("of_ctrl_c", [signal.default_int_handler, signal.SIG_IGN])
def test_term_is_as_ctrl_c(monkeypatch, tmp_path, of_ctrl_c):
    """A folder of results seemed to be written for ever; in the background Ctrl-C is ignored."""

    def ended(*_, **__):
        with deferred_interrupts() as interrupts_allowed:
            signal.raise_signal(signal.SIGTERM)
            with interrupts_allowed():
                pass
        raise AssertionError("TERM was ignored")

    monkeypatch.setattr("pmbnn.experiment.load.load_experiment", ended)
    before = signal.signal(signal.SIGINT, of_ctrl_c)
    try:
        done = call("sweep", str(tmp_path))
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.exit_code, done.output) == (130, f"{INTERRUPTED_LINE}\n")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_verify_of_no_results(monkeypatch, tmp_path):
    def verify(folder, repair):
        raise ResultsError("`x` holds no results.")

    monkeypatch.setattr(results, "verify", verify, raising=False)
    done = call("verify", str(tmp_path))
    assert (done.exit_code, done.output) == (2, "error: `x` holds no results.\n")
