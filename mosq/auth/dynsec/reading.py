"""JSON as Mosquitto takes it: names of fields in any case, the first of two counts, a number where a number is
expected. Knows values; not what they mean.

Text is `str`; bytes that are no UTF-8 stand in it as surrogates and make it invalid where Mosquitto looks. Like C's, it
ends at a zero. Cost: linear; nesting is bounded by Python.
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
TOPIC_LEVELS_MAX = 200          # slashes in a filter, as in Mosquitto
_BLANK = re.compile(r"[\x01-\x20]*")
# what Mosquitto takes for no UTF-8: control characters, surrogates, code points that are none
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
    """Raises ValueError, which for broken JSON is a JSONDecodeError with its place. What follows a value is not looked
    at. Names of fields are in small letters."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    blank = _BLANK.match(text)
    try:
        value, _ = _DECODER.raw_decode(text, blank.end() if blank else 0)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def text(of: "Object", name: str) -> "str | None":
    """None: there is none, or it is no text."""
    value = of.get(name.lower())
    return value.partition("\0")[0] if isinstance(value, str) else None


def is_wrong(of: "Object", name: str) -> bool:
    """Is it there, and no text?"""
    return not isinstance(of.get(name.lower(), ""), str)


def whole(of: "Object", name: str, otherwise: int) -> int:
    """A number without what follows the point, within 32 bits."""
    value = of.get(name.lower())
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return otherwise
    return int(max(INT_MIN, min(INT_MAX, value)))


def flag(of: "Object", name: str) -> "bool | None":
    """None: there is none, or it is neither true nor false."""
    value = of.get(name.lower())
    return value if isinstance(value, bool) else None


def items(of: "Object", name: str) -> "list[Any] | None":
    """None: there is no list."""
    value = of.get(name.lower())
    return value if isinstance(value, list) else None


def raw(value: str) -> bytes:
    if value.isascii():
        return value.encode()
    return value.encode("utf-8", "surrogateescape" if not _ALONE.search(value) else "surrogatepass")


def is_utf8(value: str) -> bool:
    """Whether Mosquitto would have it as a name."""
    return not _BAD.search(value) and len(raw(value)) <= TEXT_BYTES_MAX + 1


def is_filter(value: str) -> bool:
    """Whether it can be the topic of a rule."""
    levels = value.split("/")
    if not value or len(raw(value)) > TEXT_BYTES_MAX or len(levels) > TOPIC_LEVELS_MAX + 1:
        return False
    return all(("+" not in level or level == "+") and ("#" not in level or (level == "#" and i == len(levels) - 1))
               for i, level in enumerate(levels))
