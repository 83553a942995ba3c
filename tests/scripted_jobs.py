"""Jobs that do what they are told to, by processes that load next to nothing.

Workers of a cluster get this file as the text of a plugin, as they get those of users.
"""

import errno
import os
import pickle
import signal
import sys
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from pmbnn.core.stages import StageUpdate
from pmbnn.fitting.workers import Finished, Progressed, Stored
from pmbnn.results.present import fault_of
from pmbnn.results.record import CellRecord, StoredFile


@dataclass(frozen=True)
class Scripted:
    """A job with a cell of its name; `act` is what becomes of it."""

    name: str
    act: str = "ok"
    group: str = "a"
    seconds: float = 0.0
    tasks: tuple = ()

    def run(self, folder, stored, programs=None):
        if self.act == "kill process":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.act == "kill worker":
            os.kill(os.getppid(), signal.SIGKILL)
            sys.exit(1)
        if self.act.startswith("preempted once "):
            marker = Path(self.act.removeprefix("preempted once "))
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(20)
        if self.act.startswith("full "):
            place = self.act.removeprefix("full ") or str(folder / "cells")
            raise OSError(errno.ENOSPC, "No space left on device", place)
        time.sleep(self.seconds)
        names = ("XLA_FLAGS", "OMP_NUM_THREADS", "NPROC")
        told = {name: str(os.environ.get(name)) for name in names}
        told |= {"pid": os.getpid(), "programs": str(programs), "folder": str(folder)}
        content = self.name.encode() * 1000
        record = CellRecord(
            sweep="scripted",
            name=self.name,
            status="converged",
            settings={"told": told},
            files={
                "trace.nc": StoredFile(size=len(content), sha256=sha256(content).hexdigest()),
            },
        )
        cell = folder / "cells" / self.name
        cell.mkdir()
        (cell / "trace.nc").write_bytes(content)
        (cell / "metrics.json").write_text(record.to_json(), encoding="utf-8")
        stored(record)
        return self.group


def serve(descriptor):
    """Life of a process that does scripted jobs without what real ones need."""
    from pmbnn.experiment.plugins import load_sources
    from pmbnn.sweep.cluster.worker import ChildConnection

    line, programs = ChildConnection(descriptor), None
    folder = line.recv()
    while True:
        try:
            job = line.recv()
        except (EOFError, OSError):
            sys.exit(0)
        load_sources(job.sources)
        line.send(Progressed(0, (StageUpdate("fit", 1, 2, "step", "ELBO -3.5"),)))
        scripted = pickle.loads(job.pickled)
        try:
            programs = scripted.run(folder, lambda record: line.send(Stored(0, record)), programs)
        except OSError as error:
            line.send(fault_of(error, folder))
            sys.exit(0)
        line.send(Finished(0, seconds={"fit": scripted.seconds}))
