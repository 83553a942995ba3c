"""Rows on their way: files that data sets name, or rows that were read, once for each worker."""

import contextlib
import hashlib
import io
import os
import pickle
import tarfile
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from pmbnn.data import DataError, DatasetSpec
from pmbnn.data.files import found_files
from pmbnn.data.ood import OodSpec
from pmbnn.sweep.cluster.parcels import Shipment

CHANGED = "the data changed while the sweep was running"

_LOCK = threading.Lock()


def shipments_of(spec: DatasetSpec, fingerprint: str) -> dict[Shipment, bytes]:
    """What a worker needs to have a data set: the files it names, or its rows where it names none.

    Raises
    ------
    DataError
        If it is unavailable, or no longer what it was.
    """
    with found_files() as found:
        dataset = spec.load()
    if dataset.fingerprint != fingerprint:
        raise DataError(CHANGED)
    if not found:
        shipment = Shipment(fingerprint, "rows.pickle", fingerprint=fingerprint)
        return {shipment: pickle.dumps(dataset)}
    return _packed(found)


def ood_shipments(spec: OodSpec) -> dict[Shipment, bytes]:
    """Files of out-of-distribution images, where they are read from any; nothing where they lack.

    A worker without them would leave that set out, as one machine does that has none.
    """
    from pmbnn.data.ood import no_digits

    with found_files() as found, contextlib.suppress(Exception):  # which cells tell of
        spec.load(no_digits())
    return _packed(found)


def _packed(found: Mapping[str, Path]) -> dict[Shipment, bytes]:
    packed = {}
    for named, path in found.items():
        content = _archive(path)
        key = hashlib.sha256(content).hexdigest()[:32]
        packed[Shipment(key, path.name, named=named)] = content
    return packed


def _archive(path: Path) -> bytes:
    """A file, or a folder with all that is in it."""
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(path.resolve(), arcname=path.name)
        return buffer.getvalue()


def unpack(shipments: Mapping[Shipment, bytes], folder: Path) -> dict[Shipment, Path]:
    """Where shipments lie in a folder, which each is written into once."""
    with _LOCK:
        return {shipment: _unpacked(shipment, content, folder) for shipment, content in
                shipments.items()}  # fmt: skip


def _unpacked(shipment: Shipment, content: bytes, folder: Path) -> Path:
    place = folder / shipment.key
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=folder))
        if shipment.fingerprint is not None:
            (part / shipment.name).write_bytes(content)
        else:
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                archive.extractall(part, filter="data")
        os.replace(part, place)
    return place / shipment.name
