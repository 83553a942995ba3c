"""Arrays of a NumPy archive."""

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pmbnn.data.base import Standardise
from pmbnn.data.local_files import Stamp, find, stamp_of
from pmbnn.data.own import SplitRows

if TYPE_CHECKING:
    from pmbnn.data.raw import RawRows


class Npz(SplitRows):
    """Arrays of an ``.npz`` archive: inputs, targets and, for a split by groups, those.

    ``x`` and ``y`` are their names in it, ``features`` and ``target_names`` those of arrays with
    names of the inputs and of several targets, where there are such; see `Dataset.from_arrays`
    for what they may be, and `Table` for the rest. Columns of a ``y`` of several targets are
    called ``y1``, ``y2``, ... unless named.
    """

    kind: Literal["npz"] = "npz"
    file: str
    x: str = "x"
    y: str = "y"
    features: str | None = None
    target_names: str | None = None
    target_is: Literal["classes", "numbers"] | None = None
    missing: Literal["refuse", "mean", "drop"] = "refuse"
    redundant: Literal["refuse", "drop", "keep"] = "refuse"
    standardise: Standardise = "feature"
    standardise_target: bool = True

    locations: ClassVar[dict[str, Any]] = {
        "file": True,
        "features": True,
        "target_names": True,
        "split": {"file": True},
    }

    def raw(self) -> "RawRows":  # noqa: D102
        path = find(self.file, self._folders, "file")
        names = {"x": self.x, "y": self.y}
        for setting in ("features", "target_names"):
            if (name := getattr(self, setting)) is not None:
                names[setting] = name
        if self.split.group is not None:
            names["split.group"] = self.split.group
        return _read(
            stamp_of(path), self.file, tuple(names.items()),
            self.target_is, self.missing, self.redundant,
        )  # fmt: skip


@lru_cache(maxsize=8)
def _read(stamp: Stamp, title: str, names, target_is, missing, redundant) -> "RawRows":
    from pmbnn.data.archive import read_archive
    from pmbnn.data.raw import Given, raw_of_arrays

    found = read_archive(Path(stamp[0]), title, dict(names))
    features, target_names = (
        tuple(map(str, found.get(n, ()))) for n in ("features", "target_names")
    )
    groups = found.get("split.group")
    given = Given(found["x"], found["y"], features, groups, target_names=target_names)
    return raw_of_arrays(given, target_is, missing, redundant, title, dict(names)["y"])
