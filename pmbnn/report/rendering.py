"""Pages from templates, in which everything is escaped, and files that are written whole."""

import base64
import hashlib
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from pmbnn.core.numbers import number_text
from pmbnn.report.glossary import GLOSSARY, anchor, link_terms, meaning
from pmbnn.results.present import unwritable


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("pmbnn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"terms": link_terms, "number": number_text}
    environment.globals |= {"GLOSSARY": GLOSSARY, "anchor": anchor, "meaning": meaning}
    return environment


def render(template: str, **content: object) -> str:
    """Text of a template with its content."""
    return _environment().get_template(template).render(content)


def own_file(name: str) -> Markup:
    """Style or script of this package, which goes into a page as it is."""
    return Markup(files("pmbnn.report").joinpath(name).read_text(encoding="utf-8"))


def content_policy(style: str, script: str) -> str:
    """Content-Security-Policy that lets in these two, by their hashes, and images in the page."""
    return (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


# Where the page goes: whole or not at all


def check_writable(folder: Path) -> None:
    """Make the folder, and see that a file can be written in it before any work is done.

    Raises
    ------
    ResultsError, StorageError
        If it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise unwritable(folder, error) from error
