"""Pages of hostile results: whatever names and records say, it is text and nothing else."""

import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from hostile import INJECTIONS

from pmbnn.report.rendering import _environment
from pmbnn.report.tables import Entry

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


@pytest.fixture(scope="module")
def pages(hostile_folders):
    """Text of the page of hostile results, and of harmless ones."""
    return [(folder / "index.html").read_text(encoding="utf-8") for folder in hostile_folders]


def of(page):
    """Elements with the names of their attributes, of a page."""
    parsed = Parsed(page)
    return [(tag, sorted(attributes)) for tag, attributes in parsed.elements]


def test_hostile_words_make_no_element_and_no_attribute(pages):
    (hostile, harmless), parsed = pages, Parsed(pages[0])
    assert set(map(str, of(hostile))) <= set(map(str, of(harmless)))
    counts = [[tag for tag, _ in of(page)].count("script") for page in (hostile, harmless)]
    assert counts[0] == counts[1]
    for tag, attributes in parsed.elements:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src", "action", "formaction", "srcdoc"):
                assert not value.lower().startswith(ELSEWHERE), (tag, value)


@pytest.mark.parametrize("shape", ["opens", "badge", "code", "quiet", ""])
def test_every_text_of_an_entry_is_escaped(shape):
    words = INJECTIONS[0]
    texts = {"label": words, "note": words, "hint": words} | ({shape: words} if shape else {})
    entry = Entry(words, **texts)
    template = "{% import 'parts.html' as parts %}{{ parts.content(entry) }}"
    page = _environment().from_string(template).render(entry=entry)
    assert words not in page
    assert Parsed(page).text.count(words) == 2  # text and note


def test_no_template_switches_escaping_off():
    templates = sorted(files("pmbnn.report").joinpath("templates").iterdir())
    assert len(templates) > 10
    for template in templates:
        assert not re.search(r"\|\s*safe\b|autoescape", template.read_text("utf-8")), template.name


def test_hostile_words_are_there_to_be_read(pages):
    said = [words for words in INJECTIONS if words.isprintable()]
    text = Parsed(pages[0]).text
    assert [words for words in said if " ".join(words.split()) not in text] == []
