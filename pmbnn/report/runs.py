"""What was run, and where its numbers come from."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pmbnn.report.cell_table import status_badge
from pmbnn.report.folders import Folder
from pmbnn.report.markup import Markup, element, join
from pmbnn.report.numbers import fixed, plain

PROVENANCE_MISSING = "provenance.json is missing"


def runs_section(folders: Sequence[Folder]) -> Markup:
    """A card for every results folder."""
    cards = element("div", join(map(_card, folders)), class_="cards")
    return element("section", element("h2", "What was run"), cards, id="runs-section")


def _card(folder: Folder) -> Markup:
    statuses = Counter(record["status"] for record in folder.records)
    badges = [
        element("li", status_badge(status), f" {count}") for status, count in statuses.items()
    ]
    seconds = sum(record["seconds"] or 0 for record in folder.records)
    facts = {
        "cells": plain(len(folder.records)),
        "sweeps": ", ".join(dict.fromkeys(record["sweep"] for record in folder.records)),
        "time of the fits": f"{fixed(seconds / 60, 1)} min, added up over cells",
    } | _facts(folder.provenance)
    return element(
        "article",
        element("h3", folder.name),
        element("ul", join(badges), class_="legend"),
        definitions(facts),
        _versions(folder.provenance),
        _data(folder.provenance),
        class_="card",
    )


def _facts(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Date, machine and seeds."""
    if not provenance:
        return {"origin": PROVENANCE_MISSING}
    machine = provenance.get("machine", {})
    words = ", ".join(
        [str(machine.get("system", "")), f"{machine.get('cores', '?')} cores"] if machine else []
    )
    seeds = provenance.get("seeds", {}).get("inference", [])
    return {
        "written": str(provenance.get("written", "")),
        "machine": words,
        "seeds of the fits": ", ".join(map(str, seeds)),
    }


def definitions(facts: Mapping[str, object]) -> Markup:
    """Names and what they stand for, those that say nothing left out."""
    pairs = [
        element("div", element("dt", name), element("dd", value))
        for name, value in facts.items()
        if value not in (None, "")
    ]
    return element("dl", join(pairs))


def _versions(provenance: Mapping[str, Any]) -> Markup | None:
    versions = provenance.get("versions")
    if not versions:
        return None
    return element("details", element("summary", "Versions"), definitions(versions))


def _data(provenance: Mapping[str, Any]) -> Markup | None:
    data = provenance.get("data")
    if not data:
        return None
    rows = [
        element(
            "tr",
            element("th", _dataset_words(entry["dataset"]), scope="row"),
            element("td", entry.get("source", "")),
            element("td", _fingerprint(str(entry.get("fingerprint", "")))),
        )
        for entry in data
    ]
    names = ("data set", "source", "fingerprint (SHA-256, start)")
    head = element("tr", *(element("th", name, scope="col") for name in names))
    table = element("table", element("thead", head), element("tbody", join(rows)))
    scroll = element("div", table, class_="scroll", tabindex="0", role="region",
                     aria_label="Data sets and their fingerprints")  # fmt: skip
    return element("details", element("summary", f"Data ({len(rows)})"), scroll)


def _fingerprint(words: str) -> Markup:
    return element("code", words[:16], title=words)


def _dataset_words(dataset: Mapping[str, Any]) -> str:
    told = [
        f"{name} {value}" for name, value in dataset.items() if name != "kind" and value is not None
    ]
    return ", ".join([str(dataset.get("kind", "")), *told])
