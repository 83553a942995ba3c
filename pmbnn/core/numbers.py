"""Numbers as text: one format for the terminal, the page and its tables.

A number with a standard error has as many digits as the error has meaning. The error has two
significant digits where the first is 1 or 2, and one otherwise: 0.231 ± 0.014, 0.23 ± 0.06.
"""

import math
from numbers import Real

MINUS = "−"

NEGLIGIBLE = 1e-12
"""What rounding leaves of zero, or of the spread of numbers near one."""


def number_text(
    value: object,
    error: float | None = None,
    *,
    decimals: int | None = None,
    digits: int = 4,
    signed: bool = False,
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
    if error is not None and NEGLIGIBLE * max(abs(value), 1) < error < math.inf:
        decimals = decimals_of(error)
        return f"{_fixed(value, decimals, signed)} ± {_fixed(error, decimals)}"
    if decimals is not None:
        return _fixed(value, decimals, signed)
    return _significant(value, digits, signed)


def interval_text(low: float, high: float) -> str:
    """Both ends of the interval of a difference, to the digits of its width; empty without."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    decimals = _decimals_of_interval(low, high)
    return f"{_fixed(low, decimals, True)} to {_fixed(high, decimals, True)}"


def difference_text(value: float, low: float, high: float) -> str:
    """A difference and its interval, ``+0.012 (−0.004 to +0.028)``, as far as they are known."""
    ends = interval_text(low, high)
    if not ends:
        return number_text(value, digits=2, signed=True)
    return f"{_fixed(value, _decimals_of_interval(low, high), True)} ({ends})"


def _decimals_of_interval(low: float, high: float) -> int:
    """Decimals that the error has, which is about a third of the half-width."""
    return decimals_of((high - low) / 6)


def decimals_of(error: float) -> int:
    """Decimals of a number with this error."""
    if error <= 0:
        return 4
    # The exponent of the error as it is rounded to two digits: 0.0996 is 0.10.
    leading, exponent = f"{error:.1e}".split("e")
    return max(0, (1 if float(leading) < 3 else 0) - int(exponent))


def _fixed(value: float, decimals: int, signed: bool = False) -> str:
    """A number with that many decimals; one that rounds to zero has no sign."""
    text = f"{abs(value):,.{decimals}f}"
    is_zero = not text.strip("0.,")
    return ("" if is_zero else MINUS if value < 0 else "+" if signed else "") + text


def _significant(value: float, digits: int, signed: bool) -> str:
    if abs(value) < NEGLIGIBLE:
        return "0"
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
