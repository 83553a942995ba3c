"""Short names of specifications that stand in a list, such as the layers of a network."""

from collections.abc import Mapping
from typing import Any

SHORT_WORDS = {"convolution": "conv", "max_pool": "pool"}
"""Kinds that are cut short."""


def short_name(settings: Mapping[str, Any]) -> str:
    """Kind, numbers and words of a specification: ``conv32x5.same.relu``.

    Parameters
    ----------
    settings
        The specification's fields, as a record holds them; ``kind`` among them.
    """
    numbers, words = [], []
    for name, value in settings.items():
        if isinstance(value, bool):
            words.append(name if value else f"no_{name}")
        elif isinstance(value, int | float):
            numbers.append(f"{value:.15g}")
        elif value is not None and name != "kind":
            words.append(str(value))
    kind = settings["kind"]
    return ".".join([SHORT_WORDS.get(kind, kind) + "x".join(numbers), *words])
