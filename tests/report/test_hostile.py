"""Pages of hostile results: whatever names and records say, it is text and nothing else."""

from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pmbnn.cli.report import app
from pmbnn.report.index_page import index_page

INJECTIONS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</template><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "</title><svg onload=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "'><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' autofocus onfocus='alert(1)",
    "javascript:alert(1)",
    "<a href=javascript:alert(1)>x</a>",
    "<iframe srcdoc='<script>alert(1)</script>'>",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<!--<script>alert(1)",
    "]]><script>alert(1)</script>",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
    "\\u003cscript\\u003ealert(1)",
    "&lt;script&gt;alert(1)",
    "+ADw-script+AD4-alert(1)",
    "a\u2028b\u202e\u0000<b>",
)


ELSEWHERE = ("javascript:", "//", "http", "data:text")
"""What no address on a page begins with."""


class Parsed(HTMLParser):
    """Elements of a page with their attributes, and all text outside of them."""

    def __init__(self, text):
        super().__init__()
        self.elements, words = [], []
        self.handle_data = words.append
        self.feed(text)
        self.text = " ".join(" ".join(words).split())

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


def harmless(text):
    """Words of one length and no signs, so that a page of them has the elements of the other."""
    return "".join(letter if letter.isalnum() else "x" for letter in text)


def as_folder(text):
    """The same as the name of a folder."""
    return text.replace("/", "∕").replace("\u0000", "")


def records(make, words):
    """A cell for each text, which says it wherever a record says anything."""
    found = []
    for number, said in enumerate(words):
        settings = {
            "dataset": {"kind": said, "noise": 0.4, said: said},
            "network": {"kind": said},
        }
        priors = {name: {"kind": said} for name in ("prior", "hyperprior")}
        given = {"accuracy": 0.8, "excess_error": 0.01} if number % 8 == 0 else {}
        given |= {"status": "converged" if given else "error", "reason": said, "sweep": said}
        name = f"{number}{as_folder(said)}"
        record = make.record(name=name, source=said, traceback=said, **settings, **given)
        found.append(record.model_copy(update={"settings": record.settings | priors}))
    return found


@pytest.fixture(scope="module")
def pages(make, tmp_path_factory):
    """Report and index of hostile results, and of harmless ones of the same kind."""
    found = []
    for words in (INJECTIONS, tuple(map(harmless, INJECTIONS))):
        folder = tmp_path_factory.mktemp("hostile")
        make.results(folder, records(make, words), experiment=words[0])
        with pytest.MonkeyPatch.context() as alone:
            # What is drawn is no part of the page's text.
            alone.setattr("pmbnn.report.rebuild.rebuild", lambda folder, *_: folder)
            alone.setattr("pmbnn.experiment.machine.cores", lambda: 1)
            done = CliRunner().invoke(app, [str(folder)])
        assert done.exit_code == 0, done.output
        report = (folder / "report.html").read_text(encoding="utf-8")
        figures = [Path(f"figures/{as_folder(said)}.png") for said in words]
        index = index_page(words[0], figures, records(make, words), folder / "cells")
        found.append((report, index))
    return found


def of(page):
    """Elements with the names of their attributes, of a page."""
    parsed = Parsed(page)
    return [(tag, sorted(attributes)) for tag, attributes in parsed.elements]


@pytest.mark.parametrize("number", [0, 1], ids=["report", "index"])
def test_hostile_words_make_no_element_and_no_attribute(pages, number):
    (hostile, harmless), parsed = (page[number] for page in pages), Parsed(pages[0][number])
    assert set(map(str, of(hostile))) <= set(map(str, of(harmless)))
    counts = [[tag for tag, _ in of(page)].count("script") for page in (hostile, harmless)]
    assert counts[0] == counts[1]
    for tag, attributes in parsed.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src", "action", "formaction", "srcdoc"):
                assert not value.lower().startswith(ELSEWHERE), (tag, value)


@pytest.mark.parametrize("number", [0, 1], ids=["report", "index"])
def test_hostile_words_are_there_to_be_read(pages, number):
    said = [words for words in INJECTIONS if words.isprintable()]
    text = Parsed(pages[0][number]).text
    assert [words for words in said if " ".join(words.split()) not in text] == []
