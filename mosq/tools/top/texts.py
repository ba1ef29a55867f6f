"""Text for narrow terminals: names of any content in a fixed number of columns, and short numbers.

Client ids and topics come from clients of the broker. Each character that is shown takes one or two columns and stays
in its place: control characters, combining characters, and characters that are written from right to left, which
would reorder a line, become escapes. Knows no terminal library.
"""

import unicodedata

from mosq.tools.table import width

MIXED = ("R", "AL", "AN")           # bidirectional classes that reorder a line
CUT = "~"                           # in place of the end of a longer text
STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
NONE = "-"
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86400


def safe(text: str) -> str:
    """Return the text with an escape for each character that could control the terminal or reorder the line."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if _is_plain(c) else c.encode("unicode_escape").decode() for c in text)


def _is_plain(c: str) -> bool:
    return c.isprintable() and unicodedata.category(c)[0] != "M" and unicodedata.bidirectional(c) not in MIXED


def fitted(text: str, columns: int) -> str:
    """Return a safe text in exactly this number of columns, cut or filled with spaces."""
    if text.isascii():
        return text.ljust(columns) if len(text) <= columns else text[:max(0, columns - 1)] + CUT[:columns]
    used = width(text)
    if used <= columns:
        return text + " " * (columns - used)
    kept, used = "", 0
    for c in text:
        n = width(c)
        if used + n > columns - 1:
            break
        kept, used = kept + c, used + n
    return (kept + CUT).ljust(columns - used + len(kept))[:max(columns, 0)] if columns > 0 else ""


def short(value: float | None) -> str:
    """Return a number in at most five characters: 1234, 12.3k, 4.5M."""
    if value is None:
        return NONE
    if value < 10 and value != int(value):
        return f"{value:.1f}"
    if value < 9999.5:
        return f"{value:.0f}"
    for step, letter in STEPS:
        if value >= step * 0.9995:
            scaled = value / step
            return f"{scaled:.1f}{letter}" if scaled < 99.95 else f"{scaled:.0f}{letter}"
    return f"{value:.0f}"


def octets(value: float | None) -> str:
    """Return a number of bytes with its unit: 512 B, 12.3 kB."""
    text = short(value)
    return text if value is None else f"{text[:-1]} {text[-1]}B" if text[-1].isalpha() else f"{text} B"


def duration(seconds: float | None) -> str:
    """Return a time as 4 d 03:12:07 or 03:12:07."""
    if seconds is None:
        return NONE
    whole = int(seconds)
    text = f"{whole % DAY_S // HOUR_S:02}:{whole % HOUR_S // MINUTE_S:02}:{whole % MINUTE_S:02}"
    return f"{whole // DAY_S} d {text}" if whole >= DAY_S else text
