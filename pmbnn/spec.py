"""What every named part of an experiment file has in common."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[float, Field(gt=0)]


class Specification(BaseModel):
    """Frozen, strictly typed description of one part of an experiment.

    A specification holds settings only. What it needs of PyMC, JAX or scikit-learn is
    imported inside its methods, so that reading and planning an experiment stays quick.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_default=True,
        # A class that no experiment uses need not build its validator.
        defer_build=True,
    )

    expands: ClassVar[bool] = True
    """Whether a list in the place of one of its scalars is an axis of the grid."""


class Tune(Specification):
    """Candidate values ``[low, high, count]``, evenly spaced on a logarithmic axis."""

    expands: ClassVar[bool] = False
    log: tuple[Positive, Positive, Annotated[int, Field(ge=2, le=100)]]

    @model_validator(mode="after")
    def _ascending(self):
        low, high, _ = self.log
        if low >= high:
            raise ValueError(f"must have low < high in `log`, got {low:g} and {high:g}")
        return self

    @property
    def candidates(self) -> tuple[float, ...]:
        """The values to try, ascending."""
        low, high, count = self.log
        return tuple(low * (high / low) ** (i / (count - 1)) for i in range(count))


def added(default: Any, **settings: Any) -> Any:
    """Field that was added to a class whose specifications results folders already hold.

    ``decimal: str = added(".")`` stands for ``decimal: str = "."``. Names of cells and PRNG keys
    are hashes of the text of all settings. A field of this kind is in that text, in records and in
    every other dump only where it differs from its default, so that cells stored before the field
    existed keep their names and numbers, and are grouped with new ones. Files of experiments may
    name it as any other field.

    Parameters
    ----------
    default
        What the class did before it had the field. It must never change.
    **settings
        Further arguments of `pydantic.Field`, such as ``gt=0``.

    Returns
    -------
    FieldInfo
        To be the default of the class attribute.

    Notes
    -----
    A field that is renamed keeps its first name in that text, as its ``serialization_alias``.
    """
    return Field(default, exclude_if=lambda value: value == default, **settings)


class Registry[S: Specification](dict[str, type[S]]):
    """Specification classes by the name that an experiment file calls them.

    Attributes
    ----------
    tag
        The field that has the name.
    default
        The name where a file gives none; None where it must.
    """

    tag: str = "kind"
    default: str | None = None

    def class_of(self, settings: Mapping[str, Any]) -> type[S]:
        """The class that stored settings are of; a KeyError names what is unknown."""
        return self[settings[self.tag]]


def registry[S: Specification](*classes: type[S]) -> Registry[S]:
    """Specification classes by their ``kind``."""
    return Registry({cls.model_fields["kind"].default: cls for cls in classes})


def named[S: Specification](
    value: str | S, choices: Mapping[str, type[S]], place: str, base: type[S]
) -> S:
    """Specification that Python code gives by its name, with its defaults, or whole.

    Raises
    ------
    ValueError
        If the name is unknown.
    TypeError
        If it is neither.
    """
    if isinstance(value, base):
        return value
    if not isinstance(value, str):
        example = list(choices.values())[1].__name__
        raise TypeError(
            f"`{place}` must be a name or a {base.__name__} such as `{example}()`, got {value!r}."
        )
    if value not in choices:
        raise ValueError(f"`{place}` must be one of {', '.join(sorted(choices))}, got '{value}'.")
    return choices[value]()


METRICS: dict[str, dict[str, Callable[[Any, Any], float]]] = {}
"""Metrics of one's own, functions of a prediction and the targets: by the key of the kind of
prediction (``class_probabilities``, ``density``), then by name."""
