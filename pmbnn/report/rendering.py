"""Pages from templates: everything that is put into one is escaped."""

import base64
import hashlib
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("pmbnn.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


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
