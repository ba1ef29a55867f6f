"""Parses `stream NAME FILTER... [shards N] [retain_age TIME] [retain_bytes SIZE]`, one line at a time, and
`stream_events true [retain_age TIME] [retain_bytes SIZE]`. Opens nothing.

Words are separated by blanks; a word that contains blanks is put in double quotes. Here `#` is part of a filter and
starts no comment.
"""

from mosq.config.acl import is_filter
from mosq.config.options import STREAM_FILTERS_MAX, STREAM_LINES_MAX
from mosq.config.options.values import BOOL_WORDS, DURATION_UNITS_S, SHOWN_MAX, SIZE_UNITS

EVENTS = "events"               # the stream of `stream_events true`
NAME_MAX = 64
SHARDS_MAX = 64
FILTER_BYTES_MAX = 65535
RETAIN_BYTES_MIN = 64 << 10
RETAIN_BYTES_MAX = 1 << 50
OPTIONS = ("shards", "retain_age", "retain_bytes")
OF_EVENTS = ("retain_age", "retain_bytes")
EVENTS_BYTES = 1 << 30          # default limit of the stream of events


class Stream:
    """The contents of a `stream` line."""

    __slots__ = ("name", "filters", "shards", "retain_age_s", "retain_bytes")

    def __init__(self, name: str) -> None:
        self.name = name
        self.filters: list[str] = []
        self.shards = 0                 # 0: the number that exists on disk, or 1
        self.retain_age_s = 0           # 0: no limit by age
        self.retain_bytes = 0           # 0: no limit by size


def stream_words(text: str) -> list[str]:
    """Split a line into words. Raises ValueError."""
    words = []
    rest = text.strip()
    while rest:
        if rest[0] == '"':
            word, closed, rest = rest[1:].partition('"')
            if not closed:
                raise ValueError(f"Missing quote in a 'stream' value ({text[:SHOWN_MAX]}). Expected \" after the "
                                 "filter too.")
            if rest[:1].strip():
                raise ValueError(f"Invalid 'stream' value ({text[:SHOWN_MAX]}). Expected a blank after the closing "
                                 "quote.")
            rest = rest.strip()
        else:
            word, *more = rest.split(None, 1)
            rest = more[0] if more else ""
        words.append(word)
    return words


def stream_of(text: str) -> Stream:
    """Parse a `stream` line. Raises ValueError."""
    words = stream_words(text)
    if not words:
        raise ValueError("Empty 'stream' value in configuration. Expected stream NAME FILTER...")
    stream = Stream(_name(words[0]))
    i = 1
    while i < len(words) and words[i] not in OPTIONS:
        stream.filters.append(_filter(words[i]))
        i += 1
    if not 0 < len(stream.filters) <= STREAM_FILTERS_MAX:
        raise ValueError(f"The stream '{stream.name}' has {len(stream.filters)} filters. Expected stream NAME "
                         f"FILTER..., with 1 to {STREAM_FILTERS_MAX} topic filters.")
    for option, value in _pairs(words[i:], "stream", "the filters", OPTIONS):
        if option == "shards":
            stream.shards = _shards(value)
        else:
            _retain(stream, option, value)
    return stream


def events_of(words: tuple[str, ...]) -> Stream | None:
    """Parse the value of `stream_events`; None if it is false. Raises ValueError."""
    stream = Stream(EVENTS)
    stream.retain_bytes = EVENTS_BYTES
    if words[0] not in BOOL_WORDS:
        raise ValueError(f"Invalid 'stream_events' value ({words[0][:SHOWN_MAX]}). Expected true or false.")
    for option, value in _pairs([*words[1:]], "stream_events", "true", OF_EVENTS):
        _retain(stream, option, value)
    return stream if BOOL_WORDS[words[0]] else None


def _pairs(words: list[str], keyword: str, behind: str, allowed: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return the options and their values. Raises ValueError."""
    pairs = list(zip(words[::2], [*words[1::2], ""], strict=False))
    for n, (option, _) in enumerate(pairs):
        if option not in allowed or option in words[:2 * n:2]:
            raise ValueError(f"Invalid '{keyword}' value ({option[:SHOWN_MAX]}). Expected {', '.join(allowed)} after "
                             f"{behind}, each once and with a value.")
    return pairs


def _retain(stream: Stream, option: str, value: str) -> None:
    if option == "retain_age":
        stream.retain_age_s = _age(value)
    else:
        stream.retain_bytes = _size(value)


def streams_with(before: tuple[str, ...], text: str) -> tuple[str, ...]:
    """Return the lines including this one. Raises ValueError."""
    stream = stream_of(text)
    if any(stream_of(line).name == stream.name for line in before):
        raise ValueError(f"Duplicate stream name '{stream.name}'. Expected another name, or all its filters on one "
                         "line.")
    if len(before) == STREAM_LINES_MAX:
        raise ValueError(f"Too many 'stream' lines. Expected at most {STREAM_LINES_MAX}.")
    return (*before, text.strip())


def _name(word: str) -> str:
    if not (0 < len(word) <= NAME_MAX and word.isascii() and word.replace("-", "_").replace("_", "a").isalnum()):
        raise ValueError(f"Invalid stream name '{word[:SHOWN_MAX]}'. Expected up to {NAME_MAX} letters, digits, _ and "
                         "-.")
    if word == EVENTS:
        raise ValueError("The stream name 'events' is that of `stream_events true`. Expected another name.")
    return word


def _filter(word: str) -> str:
    if word.startswith("$share/"):
        raise ValueError(f"Invalid filter of a stream ({word[:SHOWN_MAX]}). Expected a filter without $share: a stream "
                         "gets every message.")
    if word.startswith("$CONTROL/"):
        raise ValueError(f"Invalid filter of a stream ({word[:SHOWN_MAX]}). Messages below $CONTROL/ are not "
                         "journalled.")
    if not word or "\0" in word or len(word.encode()) > FILTER_BYTES_MAX or not is_filter(word):
        raise ValueError(f"Invalid filter of a stream ({word[:SHOWN_MAX]}). Expected a topic filter: + alone in its "
                         "level, # alone in the last.")
    return word


def _shards(word: str) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 4 and 1 <= int(word) <= SHARDS_MAX):
        raise ValueError(f"Invalid 'shards' of a stream ({word[:SHOWN_MAX]}). Expected a number from 1 to "
                         f"{SHARDS_MAX}.")
    return int(word)


def _number(word: str, units: dict[str, int]) -> int:
    unit = units.get(word[-1:])
    digits = word if unit is None else word[:-1]
    return int(digits) * (unit or 1) if digits.isascii() and digits.isdigit() and len(digits) <= 16 else 0


def _age(word: str) -> int:
    seconds = _number(word, DURATION_UNITS_S) if word[-1:] in DURATION_UNITS_S else 0
    if not 0 < seconds < 1 << 32:
        raise ValueError(f"Invalid 'retain_age' of a stream ({word[:SHOWN_MAX]}). Expected a number with a unit s, h, "
                         "d, w, m or y (seconds to years), such as 14d.")
    return seconds


def _size(word: str) -> int:
    size = _number(word, SIZE_UNITS)
    if not RETAIN_BYTES_MIN <= size <= RETAIN_BYTES_MAX:
        raise ValueError(f"Invalid 'retain_bytes' of a stream ({word[:SHOWN_MAX]}). Expected a number of bytes, or "
                         "with a unit K, M, G or T, from 64K on, such as 10G.")
    return size
