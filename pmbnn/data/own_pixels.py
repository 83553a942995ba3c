"""What folders and archives of images, and folders of IDX files, have in common."""

from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from pmbnn.data.base import DataError, DataSettingError, Standardise, Targets
from pmbnn.data.own import OwnData

if TYPE_CHECKING:
    from pmbnn.data.arrays import Dataset
    from pmbnn.data.pixels import RawImages

Size = Annotated[int, Field(ge=10)]


class OwnImages(OwnData):
    """Images with a class each, as bytes, from a file or folder at ``path``.

    ``train`` and ``test`` ask for that many only, in every class's proportion, and ``validation``
    sets that many training images aside, as with `Mnist`.
    """

    path: str
    train: Size | None = None
    test: Size | None = None
    validation: Size | None = None
    standardise: Standardise = "global"

    locations: ClassVar[dict[str, Any]] = {"path": True, "split": {"file": True}}

    @property
    def resplits(self) -> bool:
        """Whether data seeds split the same images anew."""
        return False

    def names(self) -> tuple[str, ...]:
        """Names of the classes."""
        raise NotImplementedError

    def counts(self) -> tuple[int, int]:
        """Numbers of training and test images that there are."""
        raise NotImplementedError

    def images(self) -> "RawImages":
        """All images, read once as long as their files stay the same."""
        raise NotImplementedError

    @property
    def declared_targets(self) -> Targets:
        """Classes, whatever the images are."""
        return "classes"

    @property
    def n_features(self) -> int:
        """Pixels of an image, each colour counted."""
        height, width = self.image_shape
        return self.channels * height * width

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.names())

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        train, test = self.counts()
        return self.train or max(1, train - (self.validation or 0)), self.test or test

    def check(self) -> None:
        """Raise DataError where there are too few images, or what is there is not as it must be."""
        there = dict(zip(("train", "test"), self.counts(), strict=True))
        for part, count in there.items():
            asked = getattr(self, part)
            if asked is not None and asked > count:
                raise DataSettingError(
                    part, f"must be at most {count}, the images there are, got {asked}"
                )
        if len(self.names()) < 2:
            raise DataError(f"{self.path}: must have at least two classes, got {self.names()[0]}.")
        _ = self.image_shape

    def load(self) -> "Dataset":
        """Images in float32, standardised.

        Raises
        ------
        DataError
            They are unavailable or damaged, or there are too few.
        """
        from pmbnn.data.pixels import images_dataset

        self.check()
        return images_dataset(self, self.images(), self.names(), self.resplits)
