"""Any data set of OpenML."""

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from pmbnn.data.base import DataSettingError, Standardise
from pmbnn.data.own import SplitRows

if TYPE_CHECKING:
    from pmbnn.data.raw import RawRows

Number = Annotated[int, Field(ge=1)]


class OpenML(SplitRows):
    """A table of OpenML, by its ``id`` or by ``name`` and ``version``, downloaded once.

    What OpenML calls nominal is text, ``target`` is its own unless given, and the rest is as with
    `Table`. The rows are kept in the user's cache with their SHA-256; without a network, what is
    not there gives up within seconds.
    """

    kind: Literal["openml"] = "openml"
    id: Number | None = None
    name: str | None = None
    version: Number | None = None
    target: str | tuple[str, ...] | None = None
    features: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    target_is: Literal["classes", "numbers"] | None = None
    missing: Literal["refuse", "mean", "drop"] = "refuse"
    redundant: Literal["refuse", "drop", "keep"] = "refuse"
    standardise: Standardise = "feature"
    standardise_target: bool = True

    source: ClassVar[str] = "openml"

    @model_validator(mode="after")
    def _named_once(self):
        by_name = self.name is not None and self.version is not None
        if (self.id is None) == (self.name is None) or (self.name is not None) != by_name:
            raise ValueError("must have either `id`, or `name` and `version`")
        return self

    def raw(self) -> "RawRows":  # noqa: D102
        columns = (self.features, self.without, self.categorical, self.split.group)
        return _raw(
            (self.id, self.name, self.version), self.target, columns,
            self.target_is, self.missing, self.redundant,
        )  # fmt: skip


@lru_cache(maxsize=8)
def _raw(named: tuple, target, columns, target_is, missing, redundant) -> "RawRows":
    from pmbnn.data.frames import Columns, raw_of_frame
    from pmbnn.data.openml import Named, load_frame

    named = Named(*named)
    found = load_frame(named)
    if target is None and found.target is None:
        raise DataSettingError(
            "target", f"must be given: OpenML names none, or several, of {named.title}"
        )
    features, without, categorical, group = columns
    chosen = Columns(target or found.target, features, without, categorical, group)
    return raw_of_frame(found.frame, chosen, target_is, missing, redundant, named.title)
