"""The way to a cluster: by the address of its scheduler, or by a file that names it."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmbnn.sweep.cluster.errors import PATIENCE, ClusterError, ClusterLostError

if TYPE_CHECKING:
    from distributed import Client

    from pmbnn.sweep.cluster.coordinator import Cluster


@contextmanager
def connected(scheduler: str, shared_folder: bool = False) -> "Iterator[Cluster]":
    """The cluster of a scheduler, for as long as the `with` lasts.

    Parameters
    ----------
    scheduler
        Its address, or the path of a scheduler file (``….json``).
    shared_folder
        Whether workers see the results folder under the path that it has here.

    Raises
    ------
    ClusterError
        If the packages for it are not installed, or there is no such file.
    ClusterLostError
        If nobody answers.
    """
    client_class = _client_class()
    address = _address(scheduler)
    # It would tell in many lines what is told here in one; some parts have levels of their own.
    for name in ("distributed", "distributed.client", "distributed.gc"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = client_class(address, timeout=PATIENCE, set_as_default=False)
    except OSError as error:
        raise ClusterLostError(
            f"no scheduler answers at {address} within {PATIENCE:.0f} seconds."
        ) from error
    except (ValueError, TypeError) as error:
        raise ClusterError(
            f"`--scheduler` must be an address, got {scheduler!r}: {error}"
        ) from None
    try:
        yield cluster_of(client, shared_folder)
    finally:
        client.close(timeout=2)


def cluster_of(client: Any, shared_folder: bool = False) -> "Cluster":
    """The cluster that a client of Dask is connected to.

    Raises
    ------
    ClusterError
        If the packages for it are not installed.
    TypeError
        If it is no client that waits for answers.
    """
    if not isinstance(client, _client_class()) or client.asynchronous:
        raise TypeError(
            f"`client` must be a `dask.distributed.Client` that is not asynchronous, got {client!r}"
        )
    from pmbnn.sweep.cluster.coordinator import Cluster

    return Cluster(client, shared_folder)


def device_of_workers(asked: str) -> str:
    """What fits on a cluster run on: processors.

    Raises
    ------
    ClusterError
        If it is to be something else.
    """
    if asked == "gpu":
        raise ClusterError(
            "fits on a cluster run on processors: `--device` must be cpu, got 'gpu'."
        )
    return "cpu"


def _client_class() -> "type[Client]":
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError(
            "a cluster needs the packages dask and distributed: install `pmbnn[cluster]`."
        ) from error
    return Client


def _address(scheduler: str) -> str:
    """The address itself, or the one that a scheduler file names."""
    if not scheduler.endswith(".json"):
        if "://" not in scheduler:
            raise ClusterError(
                "`--scheduler` must be an address like tcp://host:8786 or a scheduler file "
                f"(….json), got {scheduler!r}."
            )
        return scheduler
    try:
        content = json.loads(Path(scheduler).read_text(encoding="utf-8"))
        return content["address"]
    except OSError as error:
        raise ClusterError(
            f"the scheduler file `{scheduler}` cannot be read: {error.strerror}."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError(f"`{scheduler}` must be a scheduler file of Dask.") from error
