"""Terms, and the links to their meanings."""

from typing import get_args

from pmbnn.report.glossary import GLOSSARY, anchor, link_terms, meaning, verdict_text
from pmbnn.report.tables import VERDICT_COLOURS, status_entry
from pmbnn.results import ranking
from pmbnn.results.record import FAILED, Fitted


def test_every_verdict_has_a_meaning():
    names = ("BEST", "NOT_WORSE", "SIGNIFICANTLY_WORSE", "BETTER", "WORSE", "EQUIVALENT")
    for verdict in (getattr(ranking, name) for name in (*names, "UNDECIDED")):
        assert verdict_text(verdict) in GLOSSARY
    for term in ("cell", "guide", "restart", "floor", "margin", "data seed", "excess NLL", "tuned"):
        assert GLOSSARY[term].endswith(".")


def test_every_badge_has_a_meaning():
    """Statuses of cells and verdicts link to it."""
    statuses = [status_entry(status).text for status in (*get_args(Fitted), *FAILED)]
    verdicts = [verdict_text(verdict) for verdict in VERDICT_COLOURS]
    assert [text for text in (*statuses, *verdicts) if text not in GLOSSARY] == []


def test_names_of_places_are_unique():
    assert len({anchor(term) for term in GLOSSARY}) == len(GLOSSARY)
    assert anchor("equivalent (within the margin)") == "term-equivalent-within-the-margin"


def test_the_first_of_each_term_is_a_link():
    linked = link_terms("Cells of one data seed; a cell <b>guides</b> nothing, uncellular.")
    assert linked.count('href="#term-cell"') == 1 and ">Cells</a>" in linked
    assert '<a class="term" href="#term-data-seed">data seed</a>' in linked
    assert "<b>" not in linked and 'href="#term-guide">guides</a>' in linked


def test_headings_have_a_meaning_with_a_unit_or_in_the_plural():
    assert meaning("NLL (nats)") == GLOSSARY["NLL"]
    assert meaning("data seeds") == GLOSSARY["data seed"]
    assert meaning("network") == ""
