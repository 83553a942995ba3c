"""Published numbers beside ours, and what their marks mean."""

from collections import Counter
from collections.abc import Sequence

from pmbnn.report.compare import Comparison
from pmbnn.report.data_table import Column, Entry, data_table
from pmbnn.report.markup import Markup, element, join
from pmbnn.report.numbers import plain, signed
from pmbnn.report.published import MARKS, Published

SYSTEMS = {
    "S1": "priors and hyperpriors, the report",
    "S2": "variational network of digits in JAX",
    "S3": "TensorFlow Probability: regression, LeNet-5",
    "S4": "Bayes by Backprop in PyTorch",
}

MARK_NAMES = {
    "stated": "stated",
    "elsewhere": "from elsewhere",
    "bound": "bound",
    "ours": "ours",
}

NO_BREAK = "\N{NO-BREAK SPACE}"

SHARES = ("accuracy",)
"""Units that are left out beside a number: it is a share."""

FOUND, HELD = "found", "holds (test)"
ABSENT, NO_NUMBER = "not among these results", "no stored number"

COLUMNS = (
    Column("quantity"),
    Column("system", choose=True),
    Column("kind", choose=True, start="result"),
    Column("published", number=True),
    Column("mark", choose=True),
    Column("ours", number=True, note="mean ± standard error over seeds"),
    Column("difference", number=True, note="ours less published; 0 inside a range"),
    Column("source", choose=True),
    Column("ours from", note="experiment file and cells, or the test that holds the number"),
)


def published_section(comparisons: Sequence[Comparison]) -> Markup:
    """The table with its legend and a count of what is there."""
    counts = Counter(map(_standing, comparisons))
    words = (
        f"{len(comparisons)} numbers of four systems: {counts[FOUND]} beside ours from the results "
        f"on this page, {counts[HELD]} held by a test of the suite, {counts[ABSENT]} whose results "
        f"are not on this page, {counts[NO_NUMBER]} that no results hold as a number. The files "
        "named last lie in experiments/."
    )
    table = data_table(
        "published", "Published numbers beside ours", "numbers", COLUMNS, [*map(_row, comparisons)]
    )
    return element(
        "section",
        element("h2", "Published and ours"),
        element("p", words),
        _legend(comparisons),
        table,
        id="published-section",
    )


def _legend(comparisons: Sequence[Comparison]) -> Markup:
    counts = Counter(c.published.mark for c in comparisons)
    marks = [
        element("li", mark_badge(mark), f" {meaning} ({counts[mark]})")
        for mark, meaning in MARKS.items()
    ]
    systems = [element("li", element("b", name), f" {what}") for name, what in SYSTEMS.items()]
    return join(
        [element("ul", join(marks), class_="legend"), element("ul", join(systems), class_="legend")]
    )


def mark_badge(mark: str) -> Markup:
    """Mark of a number with a colour of its own."""
    return element("span", MARK_NAMES[mark], class_=f"badge mark-{mark}")


def _standing(comparison: Comparison) -> str:
    """Whether ours is there, and if not, why."""
    if comparison.ours is not None:
        return FOUND
    if comparison.published.held_by is not None:
        return HELD
    return ABSENT if comparison.published.path else NO_NUMBER


def _row(comparison: Comparison) -> list[Entry]:
    number = comparison.published
    ours = comparison.ours
    return [
        Entry(_quantity(number)),
        Entry(number.system),
        Entry(number.kind),
        Entry(_value(number), _number(number.value)),
        Entry(mark_badge(number.mark), text=MARK_NAMES[number.mark]),
        Entry(_ours(comparison), ours if isinstance(ours, float) else None),
        Entry(_difference(comparison), comparison.difference),
        Entry(number.source),
        Entry(_origin(comparison)),
    ]


def _quantity(number: Published) -> object:
    """What a number is, and in what ours differs."""
    if not number.note:
        return number.quantity
    return join([number.quantity, element("span", number.note, class_="quiet note")])


def _value(number: Published) -> object:
    """A published value as it was printed, with its unit."""
    value = number.value
    if isinstance(value, str):
        return element("span", value, class_="words")
    ends = value if isinstance(value, tuple) else (value,)
    return " to ".join(plain(end, 7) for end in ends) + _unit(number.unit)


def _unit(unit: str) -> str:
    if not unit or unit in SHARES:
        return ""
    return f" {unit}"


def _number(value: object) -> float | None:
    value = value[0] if isinstance(value, tuple) else value
    return None if isinstance(value, str) else float(value)


def _ours(comparison: Comparison) -> object:
    ours = comparison.ours
    if ours is None:
        return element("span", _standing(comparison), class_="quiet words")
    words = plain(ours, 4) if isinstance(ours, float) else ours
    error = plain(comparison.error, 2)
    words = f"{words}{NO_BREAK}±{NO_BREAK}{error}" if error else words
    words += _unit(comparison.published.unit) if isinstance(ours, float) else ""
    if len(comparison.cells) == 1:
        cell = comparison.cells[0]
        label = f"{words}, open cell: {cell.title}"
        return element(
            "button", words, type="button", data_cell=cell.key, class_="open", aria_label=label
        )
    return words


def _difference(comparison: Comparison) -> str:
    difference = comparison.difference
    if difference is None or comparison.published.path is None:
        return ""
    return signed(0.0 if abs(difference) < 1e-12 else difference)


def _origin(comparison: Comparison) -> Markup:
    """Where ours is from, or what makes it."""
    number, cells = comparison.published, comparison.cells
    if comparison.ours is None and number.held_by:
        return element("code", number.held_by)
    if not number.experiment:
        return Markup("")
    file = element("code", f"{number.experiment}.yaml")
    return join([file, f", {len(cells)} cells" if len(cells) > 1 else None])
