"""What objects say of themselves: one line of text, and a table in a notebook.

What holds arrays, models or many parts would otherwise print thousands of lines.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

from pydantic import BaseModel

MOST_LETTERS = 80
"""Of one value."""

MOST_ENTRIES = 4
"""Of a tuple that is written out; others are counted."""

STYLE = "text-align: left; vertical-align: top"


class Summarised:
    """Base of classes whose text says how large its parts are, not what is in them.

    A dataclass has to have ``repr=False``. Overwrite `_summary` where a few numbers say more
    than the fields.
    """

    def _summary(self) -> Mapping[str, object]:
        """What is said, by name."""
        if isinstance(self, BaseModel):
            return {name: getattr(self, name) for name in type(self).model_fields}
        assert is_dataclass(self)
        return {field.name: getattr(self, field.name) for field in fields(self) if field.repr}

    def __repr__(self) -> str:
        said = (f"{name}={short_text(value)}" for name, value in self._summary().items())
        return f"{type(self).__name__}({', '.join(said)})"

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self._summary())


def short_text(value: object) -> str:
    """Text of a value that is no longer than a few words: of arrays their shape."""
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
    # Models, traces and what is compiled: their own text takes pages.
    return _type(value)


def specification_text(spec: BaseModel) -> str:
    """A specification with the settings alone that are not at their defaults."""
    given = {
        name: getattr(spec, name)
        for name, field in type(spec).model_fields.items()
        if name != "kind" and getattr(spec, name) != field.get_default(call_default_factory=True)
    }
    said = (f"{name}={_inner(value)}" for name, value in given.items())
    return f"{type(spec).__name__}({', '.join(said)})"


def _inner(value: object) -> str:
    return specification_text(value) if isinstance(value, BaseModel) else repr(value)


def _entries(value: tuple | list) -> str:
    """A short tuple as it is, of a long one the number and kinds of entries."""
    if len(value) <= MOST_ENTRIES:
        text = f"({', '.join(map(short_text, value))})"
        if len(text) <= MOST_LETTERS:
            return text
    return f"{len(value)} × {' | '.join(dict.fromkeys(map(_type, value)))}"


def _type(value: object) -> str:
    return type(value).__name__


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MOST_LETTERS else text[: MOST_LETTERS - 1] + "…"


# Notebooks


def html_table(title: str, rows: Mapping[str, object]) -> str:
    """Two columns, names and values, under a title; everything is escaped."""
    lines = (
        f'<tr><th style="{STYLE}">{escape(str(name))}</th>'
        f'<td style="{STYLE}">{escape(short_text(value))}</td></tr>'
        for name, value in rows.items()
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{''.join(lines)}</tbody></table>"


def html_pictures(pictures: Iterable[bytes]) -> str:
    """PNG images beneath each other, within the text itself."""
    from base64 import b64encode

    return "".join(
        f'<img src="data:image/png;base64,{b64encode(picture).decode()}" style="max-width: 100%">'
        for picture in pictures
    )


def settings_table(spec: Any) -> str:
    """Every setting of a specification, those that are not at their defaults in bold."""
    fields_of, rows = type(spec).model_fields, []
    for name in fields_of:
        value = getattr(spec, name)
        changed = value != fields_of[name].get_default(call_default_factory=True)
        text = escape(short_text(value))
        cell = f"<b>{text}</b>" if changed else text
        rows.append(
            f'<tr><th style="{STYLE}">{escape(name)}</th><td style="{STYLE}">{cell}</td></tr>'
        )
    title = escape(type(spec).__name__)
    return f"<table><caption>{title}</caption><tbody>{''.join(rows)}</tbody></table>"
