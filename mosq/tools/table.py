"""Format columns of any text for terminals."""

import json
import sys
import unicodedata

from mosq.log.json_lines import escaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def table(rows: "list[tuple[str, ...]]", widest: int = sys.maxsize) -> "Iterable[str]":
    """Align columns to the width of their content, except the last; numbers to the right. A cell above `widest` is not
    cut, and moves the rest of its own row only."""
    widths = [min(widest, max(map(width, column))) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [" " * (w - width(cell)) + cell if cell.isdigit() else cell + " " * (w - width(cell))
                 for cell, w in zip(row, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def shown(text: str) -> str:
    """Escape unprintable characters, so that a name cannot control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def json_shown(value: object, separators: "tuple[str, str] | None" = None) -> str:
    """Return a value as JSON on one line, in which unprintable characters are escapes."""
    return escaped(json.dumps(value, ensure_ascii=False, separators=separators))


def width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
