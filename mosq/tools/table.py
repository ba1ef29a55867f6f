"""Columns of text for people, whatever is in them."""

import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def table(rows: "list[tuple[str, ...]]") -> "Iterable[str]":
    """Columns as wide as they must be, but for the last; numbers to the right."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [" " * (w - width(cell)) + cell if cell.isdigit() else cell + " " * (w - width(cell))
                 for cell, w in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def shown(text: str) -> str:
    """What is not printable as an escape: a filter must not steer the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def width(text: str) -> int:
    """Columns on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
