"""What every kind of unfamiliar pictures has in common."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from pmbnn.specification import Specification

if TYPE_CHECKING:
    from pmbnn.unfamiliar.pictures import Digits, Pictures

Size = Annotated[int, Field(ge=1)]


class UnfamiliarSpec(Specification):
    """A kind of unfamiliar pictures, as an experiment file names it."""

    kind: str

    @property
    def name(self) -> str:
        """The kind, and what tells it apart from others of its kind."""
        return self.kind

    def load(self, digits: "Digits") -> "Pictures":
        """Make or load the pictures; what they may need of the test digits is given."""
        raise NotImplementedError
