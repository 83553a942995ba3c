"""Numbers as words of the page."""

import math

from pmbnn.results.tables import CORRECTED

MINUS = "−"

WHERE_CORRECTED = f"standard error over data seeds, {CORRECTED} where they split the same rows anew"
"""What ± means in a table of several data sets."""


def plain(value: object, digits: int = 4) -> str:
    """A number with up to so many significant digits, whole ones as they are; else text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}".replace("-", MINUS)
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return ""
    if value == round(value) and abs(value) < 1e6:
        return f"{value:,.0f}".replace("-", MINUS)
    if 1e-3 <= abs(value) < 1e6:
        decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        words = f"{value:,.{decimals}f}"
        words = words.rstrip("0").rstrip(".") if decimals else words
        return words.replace("-", MINUS)
    return f"{value:.{digits - 1}g}".replace("-", MINUS)


def fixed(value: float | None, decimals: int) -> str:
    """A number with so many decimals."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:,.{decimals}f}".replace("-", MINUS)


def with_error(value: float | None, error: float | None, decimals: int) -> str:
    """A number and its standard error, where it has one."""
    words = fixed(value, decimals)
    told = fixed(error, decimals)
    return f"{words} ± {told}" if words and told else words


def to_error(value: float, error: float) -> str:
    """A number and its standard error, with two digits of the error; four of its own without."""
    if not (math.isfinite(error) and error > 0):
        return plain(value)
    return with_error(value, error, max(0, 1 - math.floor(math.log10(error))))


def signed(value: float | None, digits: int = 3) -> str:
    """A difference with its sign."""
    if value is None or not math.isfinite(value):
        return ""
    return "0" if value == 0 else ("+" if value > 0 else "") + plain(value, digits)
