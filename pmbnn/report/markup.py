"""HTML put together from parts: whatever is not markup already is escaped."""

from collections.abc import Iterable
from html import escape


class Markup(str):
    """Text that is HTML; any other text is escaped where it meets this."""

    __slots__ = ()


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """An element with its content and attributes, all of it escaped that is not markup.

    ``None`` and ``False`` are left out, of the attributes and of the content. An underscore in
    the name of an attribute is a hyphen, but for the last: ``class_``, ``aria_label``.
    """
    told = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in ("img", "input", "meta", "path", "line", "rect", "circle"):
        return Markup(f"<{tag}{told}>" if tag in ("img", "input", "meta") else f"<{tag}{told}/>")
    return Markup(f"<{tag}{told}>{join(content)}</{tag}>")


def join(parts: Iterable[object]) -> Markup:
    """Parts one after the other."""
    return Markup("".join(_escaped(part) for part in parts))


def _escaped(part: object) -> str:
    if isinstance(part, Markup):
        return part
    return "" if part is None or part is False else escape(str(part), quote=True)


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value), quote=True)}"'
