"""Representations of objects: one line of text, and a table in a notebook.

Objects with arrays, models or many parts would otherwise print thousands of lines.
"""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from html import escape

from pydantic import BaseModel

MOST_LETTERS, MOST_ENTRIES = 80, 4
"""Longest text of a value, and longest tuple that is written out; others are counted."""

STYLE = "text-align: left; vertical-align: top"


class Summarised:
    """Base of classes whose text has the sizes of their parts in place of the contents.

    A dataclass needs ``repr=False``. Overwrite `_summary` where a few numbers are more useful
    than the fields.
    """

    def _summary(self) -> Mapping[str, object]:
        """Values to show, by name."""
        if isinstance(self, BaseModel):
            return {name: getattr(self, name) for name in type(self).model_fields}
        assert is_dataclass(self)
        return {field.name: getattr(self, field.name) for field in fields(self) if field.repr}

    def __repr__(self) -> str:
        parts = (f"{name}={short_text(value)}" for name, value in self._summary().items())
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._summary())


def short_text(value: object) -> str:
    """Text of a few words for a value: the shape of an array."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype} {tuple(value.shape)}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, BaseModel):
        return _cut(specification_text(value))
    if isinstance(value, Mapping):
        return _cut("{" + ", ".join(map(str, value)) + "}")
    if isinstance(value, tuple | list):
        return _entries(value)
    if isinstance(value, str | os.PathLike):
        return _cut(str(value))
    if value is None or isinstance(value, Summarised | int):
        return _cut(repr(value))
    # The own text of a model or a trace takes pages.
    return type(value).__name__


def _changed(spec: BaseModel) -> dict[str, object]:
    """Settings of a specification that are not at their defaults."""
    return {
        name: getattr(spec, name)
        for name, field in type(spec).model_fields.items()
        if getattr(spec, name) != field.get_default(call_default_factory=True)
    }


def specification_text(spec: BaseModel) -> str:
    """A specification with the settings that are not at their defaults."""
    parts = (
        f"{name}={specification_text(value) if isinstance(value, BaseModel) else repr(value)}"
        for name, value in _changed(spec).items()
        if name != "kind"
    )
    return f"{type(spec).__name__}({', '.join(parts)})"


def _entries(value: tuple | list) -> str:
    """A short tuple as it is; the number and types of entries of a long one."""
    if len(value) <= MOST_ENTRIES:
        text = f"({', '.join(map(short_text, value))})"
        if len(text) <= MOST_LETTERS:
            return text
    return f"{len(value)} × {' | '.join(dict.fromkeys(type(entry).__name__ for entry in value))}"


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"


# Notebooks


def html_table(title: str, rows: Mapping[str, object], bold: Collection[str] = ()) -> str:
    """Table of names and values, some of them bold, under a title; everything is escaped."""
    lines = []
    for name, value in rows.items():
        text = escape(short_text(value))
        cell = f"<b>{text}</b>" if name in bold else text
        lines.append(
            f'<tr><th style="{STYLE}">{escape(str(name))}</th><td style="{STYLE}">{cell}</td></tr>'
        )
    return f"<table><caption>{escape(title)}</caption><tbody>{''.join(lines)}</tbody></table>"


def html_pictures(pictures: Iterable[bytes]) -> str:
    """PNG images below each other, embedded in the text."""
    from base64 import b64encode

    return "".join(
        f'<img src="data:image/png;base64,{b64encode(picture).decode()}" style="max-width: 100%">'
        for picture in pictures
    )


def settings_table(spec: BaseModel) -> str:
    """Table of the settings of a specification, those not at their defaults in bold."""
    settings = {name: getattr(spec, name) for name in spec.written_fields}
    return html_table(type(spec).__name__, settings, bold=_changed(spec))
