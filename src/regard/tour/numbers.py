"""Numbers as the tour writes them."""

from __future__ import annotations


def signed(number: float, digits: int) -> str:
    """A number with a true minus sign, and no sign on a zero.

    >>> signed(-0.281, 2), signed(-0.0001, 2)
    ('−0.28', '0.00')
    """
    return f"{number:z.{digits}f}".replace("-", "−")


def scientific(number: float) -> str:
    """A very small number as people write it.

    >>> scientific(2.2e-16).replace("\N{NO-BREAK SPACE}", " ")
    '2.2 × 10⁻¹⁶'
    """
    if number == 0.0:
        return "0"
    digits, power = f"{number:.1e}".split("e")
    return f"{digits}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}10" + str(int(power)).translate(
        str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    )
