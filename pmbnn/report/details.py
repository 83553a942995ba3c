"""The detail of each cell, kept in a template until it is asked for."""

from collections.abc import Mapping, Sequence
from typing import Any

from pmbnn.report.cell_table import status_badge
from pmbnn.report.cells import Shown
from pmbnn.report.drawing import draw_training, draw_weights
from pmbnn.report.images import figure_address
from pmbnn.report.markup import Markup, element, join
from pmbnn.report.numbers import plain
from pmbnn.report.runs import definitions
from pmbnn.tables import Record, settings_row

SETS = (
    "pictures", "entropy", "mutual_information", "sd", "top_probability", "auroc_entropy",
    "auroc_sd", "refused_by_sd", "refused_by_cutoff",
)  # fmt: skip
"""Numbers shown of each set of pictures; metrics.json has them all."""


def cell_templates(cells: Sequence[Shown]) -> Markup:
    """A template for every cell, which the page copies into its dialog."""
    return join(
        element("template", _detail(cell), id=cell.key, data_title=cell.title) for cell in cells
    )


def _detail(cell: Shown) -> Markup:
    record = cell.record
    opening = element(
        "p", status_badge(record["status"]), f" {record['reason']}" if record["reason"] else None
    )
    name = element("p", element("code", f"cells/{record['name']}"), class_="quiet")
    parts = [
        opening,
        name,
        *(_picture(cell, number) for number in range(len(cell.pictures))),
        element("div", _training(cell), _weights(cell), class_="drawings"),
        _results(record),
        _restarts(record),
        _candidates(record),
        _sets(record),
        _diagnostics(record),
        _settings(record),
    ]
    return join(parts)


def _picture(cell: Shown, number: int) -> Markup:
    path = cell.pictures[number]
    address, width, height = figure_address(path)
    words = f"{path.stem} of {cell.title}"
    return element("img", src=address, alt=words, width=width, height=height, class_="figure")


def _training(cell: Shown) -> Markup | None:
    if cell.parts.training is None:
        return None
    drawing = draw_training(cell.parts.training)
    if not drawing:
        return None
    count = len(cell.parts.training.elbo)
    words = "ELBO (nats) over the steps, cut off below where it starts"
    words += f"; {count} restarts, the one predicted with in colour" if count > 1 else ""
    return element("figure", drawing, element("figcaption", words))


def _weights(cell: Shown) -> Markup | None:
    weights = cell.parts.weights
    if weights is None:
        return None
    drawing = draw_weights(weights)
    if not drawing:
        return None
    number, away = weights.away.size, int(weights.away.sum())
    every = len(weights.density) == number
    kind = "a line each, scaled to its peak" if every else "all draws together"
    words = (
        f"Posterior of the last layer's {number} weights, {kind}; of {away} "
        "the central 90 % interval leaves out zero"
    )
    words += " (in colour)" if every and away else ""
    return element("figure", drawing, element("figcaption", words))


def _results(record: Record) -> Markup | None:
    if not record["results"]:
        return None
    facts = {
        name.replace("_", " "): plain(value)
        for name, value in record["results"].items()
        if not name.startswith("pooled_")
    }
    facts["seconds"] = plain(record["seconds"])
    return join([element("h3", "Results"), definitions(facts)])


def _restarts(record: Record) -> Markup | None:
    restarts = record.get("restarts") or []
    if len(restarts) < 2:
        return None
    rows = [
        [str(at), r["status"].replace("_", " "), plain(r["elbo"]), plain(r["weight"]), r["reason"]]
        for at, r in enumerate(restarts)
    ]
    return _table("Restarts", ("restart", "status", "ELBO", "weight", "reason"), rows)


def _candidates(record: Record) -> Markup | None:
    """Scales that were tried, with their held-out scores."""
    choice = record.get("choice")
    if not choice or "scales" not in choice:
        return None
    rows = []
    for at, (scale, scores) in enumerate(zip(choice["scales"], choice["nll"], strict=True)):
        known = [score for score in scores if score is not None]
        chosen = "chosen" if at == choice.get("candidate") else ""
        rows.append([plain(scale), plain(min(known)) if known else "", chosen])
    return _table("Scales tried", ("scale", "held-out NLL", ""), rows)


def _sets(record: Record) -> Markup | None:
    """Doubt of pictures: test digits, then sets that the fit cannot know."""
    pictures = record.get("pictures")
    if not pictures:
        return None
    sets = {"test": pictures["test"]} | pictures.get("unfamiliar", {})
    rows = [[name, *(plain(found.get(key)) for key in SETS)] for name, found in sets.items()]
    heads = ("set", *(key.replace("_", " ") for key in SETS))
    return _table("Pictures (entropies in bits)", heads, rows)


def _diagnostics(record: Record) -> Markup | None:
    """Looks at the fit on its way."""
    found: Mapping[str, Any] | None = record.get("diagnostics")
    if not found:
        return None
    names = [(part, name) for part, judged in found["parts"].items() for name in judged]
    rows = [
        [
            plain(step),
            plain(found["kl"][at]),
            *(plain(found["parts"][part][name][at]) for part, name in names),
        ]
        for at, step in enumerate(found["step"])
    ]
    heads = ("step", "KL", *(f"{part} {name.replace('_', ' ')}" for part, name in names))
    return _table("On the way (nats an image)", heads, rows)


def _settings(record: Record) -> Markup:
    facts = {name: plain(value, 6) for name, value in settings_row(record).items()}
    return join([element("h3", "Settings"), definitions(facts)])


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Markup:
    head = element("tr", *(element("th", name, scope="col") for name in heads))
    lines = [
        element("tr", element("th", row[0], scope="row"), *(element("td", c) for c in row[1:]))
        for row in rows
    ]
    table = element("table", element("thead", head), element("tbody", *lines))
    scroll = element("div", table, class_="scroll", tabindex="0", role="region", aria_label=title)
    return join([element("h3", title), scroll])
