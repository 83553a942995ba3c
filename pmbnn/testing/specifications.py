"""What holds for every specification: its name is registered, and a file gives it back."""

import tempfile
from pathlib import Path
from typing import Any

from pmbnn.experiment.cells import REGISTRIES
from pmbnn.experiment.load import as_written, check_data, load_experiment, resolved_text
from pmbnn.experiment.yaml_file import yaml_text
from pmbnn.spec import Specification

USUAL: dict[str, Any] = {
    "dataset": {"kind": "moons", "noise": 0.4},
    "network": "dense",
    "prior": "normal",
}
"""What the other sections of an experiment file say."""


def specification_of[S: Specification](part: S | type[S], base: type[S]) -> S:
    """The specification itself, or that of a class's defaults.

    Raises
    ------
    AssertionError
        It is not derived from the base.
    """
    spec = part() if isinstance(part, type) else part
    assert isinstance(spec, base), f"must be derived from {base.__name__}, got {part!r}"
    return spec


def check_specification(spec: Specification, section: str, **others: Any) -> None:
    """Raise AssertionError unless a specification is registered, hashable and read back.

    Parameters
    ----------
    section
        Of an experiment file, which the specification is written into and read back from.
    others
        What further sections of that file say.
    """
    cls = type(spec)
    base = next(base for base in REGISTRIES if isinstance(spec, base))
    assert REGISTRIES[base].get(spec.kind) is cls, (
        f"`{cls.__name__}` must be registered as `{spec.kind}`: put `@pmbnn.register` above it"
    )
    again = cls.model_validate_json(spec.model_dump_json())
    assert again == spec, f"`{cls.__name__}` must equal what its JSON reads as, got {again!r}"
    try:
        hashes = hash(again), hash(spec)
    except TypeError as error:
        raise AssertionError(f"`{cls.__name__}` must be hashable: {error}") from error
    assert hashes[0] == hashes[1], f"`{cls.__name__}` must have equal hashes where it is equal"
    sweep = {"name": "check", **USUAL, **others, section: [as_written(spec)]}
    text = yaml_text({"name": "check", "sweeps": [sweep]})
    for _ in range(2):  # as it is written by hand, then as the results keep it
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "check.yaml"
            file.write_text(text, encoding="utf-8")
            experiment = load_experiment(file)
            check_data(experiment)
        found = {getattr(cell, section) for cell in experiment.cells}
        assert found == {spec}, f"an experiment file must give {spec!r} back, got {found}"
        text = resolved_text(experiment)
