"""Numbers as text: one format for the terminal, the page and its tables.

A number with a standard error has as many digits as the error has meaning. The error has two
significant digits where the first is 1 or 2, and one otherwise: 0.231 ± 0.014, 0.23 ± 0.06.
"""

import math
from numbers import Real

MINUS = "−"

NEGLIGIBLE = 1e-12
"""What rounding leaves of zero, or of the spread of numbers near one."""

SMALL, MOST_DECIMALS = 1e-4, 6
"""Numbers below the first that need more decimals than the second have an exponent."""

SMALLEST_P = 1e-4
"""Smaller p-values are shown as below it: the tails of a test are not known more precisely."""


def number_text(
    value: object,
    error: float | None = None,
    *,
    decimals: int | None = None,
    digits: int = 4,
    signed: bool = False,
    rounding: float = NEGLIGIBLE,
) -> str:
    """A number and its standard error; empty where it is missing or not a number.

    Parameters
    ----------
    value
        A number; anything else is returned as text.
    error
        Its standard error, which decides the digits of both. One that is missing, not finite, or
        that rounding alone has left, is not shown.
    decimals
        Decimals of a number without an error.
    digits
        Significant digits where neither is given. Trailing zeros are left out, and a whole number
        below a million is written in full.
    signed
        Whether a positive number has a plus sign, as differences have.
    rounding
        Numbers up to this one are zero but for rounding; 0 for those in units of the user's own,
        which may be of any size.
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, Real):
        return str(value)
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return f"{MINUS if value < 0 else '+' if signed else ''}∞"
    if error is not None and max(NEGLIGIBLE * abs(value), rounding) < error < math.inf:
        return " ± ".join(_alike(error, (value, signed), (error, False)))
    if decimals is not None:
        return _fixed(value, decimals, signed)
    return "0" if abs(value) <= rounding else _significant(value, digits, signed)


def p_value_text(value: float) -> str:
    """A p-value to two digits; ``< 0.0001`` for smaller ones, empty where it is not known."""
    return f"< {SMALLEST_P:.4f}" if value < SMALLEST_P else number_text(value, digits=2)


def interval_text(low: float, high: float) -> str:
    """Both ends of the interval of a difference, to the digits of its width; empty without."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return " to ".join(_alike(_error_of_interval(low, high), (low, True), (high, True)))


def difference_text(value: float, low: float, high: float) -> str:
    """A difference and its interval, ``+0.012 (−0.004 to +0.028)``, as far as they are known."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return number_text(value, digits=2, signed=True)
    error = _error_of_interval(low, high)
    texts = _alike(error, (value, True), (low, True), (high, True))
    return "{} ({} to {})".format(*texts)


def _error_of_interval(low: float, high: float) -> float:
    """The error of a difference, about a third of the half-width of its interval."""
    return (high - low) / 6


def decimals_of(error: float) -> int:
    """Decimals of a number with this error."""
    if error <= 0:
        return 4
    # The exponent of the error as it is rounded to two digits: 0.0996 is 0.10.
    leading, exponent = f"{error:.1e}".split("e")
    return max(0, (1 if float(leading) < 3 else 0) - int(exponent))


def _alike(error: float, *numbers: tuple[float, bool]) -> list[str]:
    """Numbers to the digits of their error, each with whether it has a plus sign."""
    decimals, exponent = decimals_of(error), 0
    largest = max(abs(number) for number, _ in numbers)
    if decimals > MOST_DECIMALS and 0 < largest < SMALL:
        exponent = math.floor(math.log10(largest))
    power = f"e{MINUS}{-exponent}" if exponent else ""
    return [
        _fixed(number / 10.0**exponent, max(decimals + exponent, 0), signed) + power
        for number, signed in numbers
    ]


def _fixed(value: float, decimals: int, signed: bool = False) -> str:
    """A number with that many decimals; one that rounds to zero has no sign."""
    text = f"{abs(value):,.{decimals}f}"
    is_zero = not text.strip("0.,")
    return ("" if is_zero else MINUS if value < 0 else "+" if signed else "") + text


def _significant(value: float, digits: int, signed: bool) -> str:
    sign = MINUS if value < 0 else "+" if signed else ""
    size = abs(value)
    if isinstance(value, int) or (value == round(value) and size < 1e6):
        return f"{sign}{size:,.0f}"
    if not 1e-4 <= size < 1e6:
        mantissa, exponent = f"{size:.{digits - 1}e}".split("e")
        return f"{sign}{_trimmed(mantissa)}e{int(exponent)}".replace("e-", f"e{MINUS}")
    return sign + _trimmed(f"{size:,.{max(0, digits - 1 - math.floor(math.log10(size)))}f}")


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
