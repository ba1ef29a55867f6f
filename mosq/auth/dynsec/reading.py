"""Reads JSON as Mosquitto does: names of fields are case-insensitive, the first of two equal names counts, and numbers
must be JSON numbers. Knows values, not their meaning.

Text is `str`; bytes that are not UTF-8 become surrogates, which Mosquitto's checks reject. As in C, a text ends at a
zero byte.
Cost: linear; nesting is limited by Python.
"""

import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Object = dict[str, Any]

MISSING = object()
INT_MIN, INT_MAX = -(2**31), 2**31 - 1
TEXT_BYTES_MAX = 65535
TOPIC_LEVELS_MAX = 200          # largest number of slashes in a filter, as in Mosquitto
_BLANK = re.compile(r"[\x01-\x20]*")
# not UTF-8 by Mosquitto's rules: control characters, surrogates, noncharacters
_BAD = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
                  + "".join(f"{chr(plane << 16 | 0xFFFE)}{chr(plane << 16 | 0xFFFF)}" for plane in range(17)) + "]")
_ALONE = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def _fields(pairs: "list[tuple[str, Any]]") -> "Object":
    found: Object = {}
    for name, value in pairs:
        found.setdefault(_lower(name), value)
    return found


def _lower(name: str) -> str:
    return name.lower() if name.isascii() else "".join(c.lower() if c.isascii() else c for c in name)


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_fields, parse_constant=_no_number, strict=False)


def parse(content: bytes) -> "Any":
    """Parse JSON; names of fields become lower case, and text after the value is ignored. Raises ValueError, which for
    broken JSON is a JSONDecodeError with the position."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    blank = _BLANK.match(text)
    try:
        value, _ = _DECODER.raw_decode(text, blank.end() if blank else 0)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def text(fields: "Object", name: str) -> "str | None":
    """Return a text field; None if it is missing or no text."""
    value = fields.get(name.lower())
    return value.partition("\0")[0] if isinstance(value, str) else None


def is_wrong(fields: "Object", name: str) -> bool:
    """Return whether the field exists and is no text."""
    return not isinstance(fields.get(name.lower(), ""), str)


def whole(fields: "Object", name: str, otherwise: int) -> int:
    """Return a number field without its fraction, limited to 32 bits; `otherwise` if it is missing or no number."""
    value = fields.get(name.lower())
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return otherwise
    return int(max(INT_MIN, min(INT_MAX, value)))


def flag(fields: "Object", name: str) -> "bool | None":
    """Return a bool field; None if it is missing or neither true nor false."""
    value = fields.get(name.lower())
    return value if isinstance(value, bool) else None


def items(fields: "Object", name: str) -> "list[Any] | None":
    """Return a list field; None if it is missing or no list."""
    value = fields.get(name.lower())
    return value if isinstance(value, list) else None


def raw(value: str) -> bytes:
    """Return the bytes of a text, including bytes that were not UTF-8."""
    if value.isascii():
        return value.encode()
    return value.encode("utf-8", "surrogateescape" if not _ALONE.search(value) else "surrogatepass")


def is_utf8(value: str) -> bool:
    """Return whether Mosquitto accepts the text as a name."""
    return not _BAD.search(value) and len(raw(value)) <= TEXT_BYTES_MAX + 1


def is_filter(value: str) -> bool:
    """Return whether the text can be the topic of a rule."""
    levels = value.split("/")
    if not value or len(raw(value)) > TEXT_BYTES_MAX or len(levels) > TOPIC_LEVELS_MAX + 1:
        return False
    return all(("+" not in level or level == "+") and ("#" not in level or (level == "#" and i == len(levels) - 1))
               for i, level in enumerate(levels))
