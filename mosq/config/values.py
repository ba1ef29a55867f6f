"""Turns the text of a value into what its option promises. Knows one line at a time; raises ValueError with what is
wrong and what was expected, to which the parser adds file and line."""

from mosq.config.options import BOOL_WORDS, UINT32_MAX, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

Value = bool | int | str | tuple[str, ...]

# m and y are what Mosquitto takes them for: 30 and 365 days
DURATION_UNITS_S = {"s": 1, "h": 3600, "d": 86400, "w": 604800, "m": 2592000, "y": 31536000}


def parse_value(option: Option, keyword: str, raw: bytes) -> Value:
    """The value of `option` in `raw`, the rest of its line without blanks around it."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"Invalid '{keyword}' value: not UTF-8 (byte {error.start + 1} of it); "
                         "expected text in UTF-8.") from None
    if "\0" in text:
        raise ValueError(f"Invalid '{keyword}' value: it holds a zero byte; expected {option.expected()}.")
    if not text:
        raise ValueError(f"Empty '{keyword}' value in configuration; expected {option.expected()}.")
    if option.kind in ("string", "path", "special"):
        return _parse_text(option, keyword, text)       # a '#' belongs to the value
    words = words_before_comment(text)
    if not words:
        raise ValueError(f"Empty '{keyword}' value in configuration; expected {option.expected()}.")
    if option.kind == "words":
        return tuple(words)
    if words[0] == "=":
        proper = f"{keyword} {' '.join(words[1:])}".rstrip()
        raise ValueError(f"Invalid '{keyword}' value ({' '.join(words)}): there is no '=' in this file; write "
                         f"`{proper}`.")
    if len(words) > 1:
        raise ValueError(f"Invalid '{keyword}' value ({' '.join(words)}); expected {option.expected()}, and nothing "
                         f"after it.")
    return _PARSERS[option.kind](option, keyword, words[0])


def words_before_comment(text: str) -> list[str]:
    """The words of a value up to one that begins with '#'."""
    words = text.split()
    for i, word in enumerate(words):
        if word.startswith("#"):
            return words[:i]
    return words


def _parse_text(option: Option, keyword: str, text: str) -> str:
    if option.kind == "string" and len(text) > option.high:
        raise ValueError(f"Invalid '{keyword}' value: {len(text)} characters; expected at most {option.high}.")
    if option.name == "mount_point" and ("#" in text or "+" in text):
        raise ValueError(f"Invalid mount_point '{text}'. Does it contain a wildcard character? Expected a topic "
                         f"without + and #.")
    return text


def _parse_bool(option: Option, keyword: str, word: str) -> bool:
    value = BOOL_WORDS.get(word)
    if value is None:
        meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(word.lower(), word.lower())
        hint = f" (write `{keyword} {meant}`)" if meant in BOOL_WORDS else ""
        raise ValueError(f"Invalid '{keyword}' value ({word}); expected true or false{hint}.")
    return value


def _parse_int(option: Option, keyword: str, word: str) -> int:
    digits = word[1:] if word[:1] in ("-", "+") else word
    # int() would take 1_000 and Arabic digits; and 4,000 digits would be slow to refuse
    if digits.isascii() and digits.isdigit() and len(digits) <= 19:
        value = int(word)
        if option.low <= value <= option.high:
            return value
    raise ValueError(f"Invalid '{keyword}' value ({word[:40]}); expected {option.expected()}.")


def _parse_count(option: Option, keyword: str, word: str) -> int:
    return 0 if word == "off" else _parse_int(option, keyword, word)


def _parse_duration(option: Option, keyword: str, word: str) -> int:
    unit_s = DURATION_UNITS_S.get(word[-1:])
    number = word[:-1]
    if unit_s is not None and number.isascii() and number.isdigit() and len(number) <= 10:
        seconds = int(number) * unit_s
        if 0 < seconds < UINT32_MAX:
            return seconds
    raise ValueError(f"Invalid '{keyword}' value ({word[:40]}); expected {option.expected()}, up to 136 years.")


def _parse_enum(option: Option, keyword: str, word: str) -> str:
    if word in option.choices:
        return word
    raise ValueError(f"Invalid '{keyword}' value ({word[:40]}); expected {option.expected()}.")


_PARSERS: "dict[str, Callable[[Option, str, str], Value]]" = {"bool": _parse_bool, "int": _parse_int,
                                                              "count": _parse_count,
                                                              "duration": _parse_duration, "enum": _parse_enum}
