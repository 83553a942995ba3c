"""What every kind of out-of-distribution images has in common."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from pmbnn.spec import Specification

if TYPE_CHECKING:
    from pmbnn.data.ood.arrays import Digits, OodImages

Size = Annotated[int, Field(ge=1)]


class OodSpec(Specification):
    """A kind of out-of-distribution images, as an experiment file names it."""

    kind: str

    @property
    def name(self) -> str:
        """The kind, and what tells it apart from others of its kind."""
        return self.kind

    def load(self, digits: "Digits") -> "OodImages":
        """Make or load the images; what they may need of the test digits is given."""
        raise NotImplementedError
