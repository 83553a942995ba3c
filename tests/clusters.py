"""What tests of clusters share: scripted jobs, and what became of them."""

import sys
from pathlib import Path

from pmbnn.fitting.workers import Finished, Stored

SCRIPT = Path(__file__).parent / "scripted_jobs.py"
"""A plugin with a class of jobs that do as they are told."""

SERVE = f"import sys; sys.path.append({str(SCRIPT.parent)!r}); from scripted_jobs import serve"
"""What processes import for a life without JAX."""


def script() -> tuple:
    """The plugin as it is handed to workers."""
    from pmbnn.experiment.plugins import load_plugins

    return load_plugins([str(SCRIPT)], [SCRIPT.parent])


def scripted_job() -> type:
    """The class of scripted jobs, as a plugin of this process."""
    script()
    (name,) = [name for name in sys.modules if name.startswith("pmbnn_plugin_scripted_jobs")]
    return sys.modules[name].Scripted


def stored(events):
    """Records by number of the job."""
    return {event.job: event.record for event in events if isinstance(event, Stored)}


def finished(events):
    """How each process died, by number of the job; None where it lives."""
    return {event.job: event.died for event in events if isinstance(event, Finished)}
