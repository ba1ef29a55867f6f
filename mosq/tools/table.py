"""Format columns of any text for terminals."""

import unicodedata

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def table(rows: "list[tuple[str, ...]]") -> "Iterable[str]":
    """Align columns to the width of their content, except the last; numbers to the right."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [" " * (w - width(cell)) + cell if cell.isdigit() else cell + " " * (w - width(cell))
                 for cell, w in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def shown(text: str) -> str:
    """Escape unprintable characters, so that a name cannot control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
