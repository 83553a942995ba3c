"""Numbers as text of the page."""

import math

from pmbnn.results.tables import CORRECTED

MINUS = "−"

WHERE_CORRECTED = f"standard error over data seeds, {CORRECTED} where they split the same rows anew"
"""Meaning of ± in a table of several data sets."""


def plain(value: object, digits: int = 4) -> str:
    """A number with up to that many significant digits, a whole one as it is; others as text."""
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
        text = f"{value:,.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if decimals else text
        return text.replace("-", MINUS)
    return f"{value:.{digits - 1}g}".replace("-", MINUS)


def fixed(value: float | None, decimals: int) -> str:
    """A number with that many decimals; empty where it is missing or not finite."""
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:,.{decimals}f}".replace("-", MINUS)


def with_error(value: float | None, error: float | None, decimals: int) -> str:
    """A number and its standard error, where it has one, with that many decimals."""
    text, error_text = fixed(value, decimals), fixed(error, decimals)
    return f"{text} ± {error_text}" if text and error_text else text


def plain_with_error(value: object, error: float | None, digits: int = 4) -> str:
    """A number as `plain` writes it and its error, where it has one, with two digits."""
    text, error_text = plain(value, digits), plain(error, 2)
    return f"{text} ± {error_text}" if error_text else text


def to_error(value: float, error: float) -> str:
    """A number to the second digit of its standard error; with four digits where it has none."""
    if not (math.isfinite(error) and error > 0):
        return plain(value)
    return with_error(value, error, max(0, 1 - math.floor(math.log10(error))))


def signed(value: float | None, digits: int = 3) -> str:
    """A difference with its sign."""
    if value is None or not math.isfinite(value):
        return ""
    return "0" if value == 0 else ("+" if value > 0 else "") + plain(value, digits)


def interval(low: float, high: float) -> str:
    """Both ends of an interval of differences; empty where there is none."""
    return f"{signed(low, 2)} to {signed(high, 2)}" if math.isfinite(low) else ""
