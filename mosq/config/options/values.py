"""Parses the value of an option, one line at a time. Raises ValueError with the problem in Mosquitto's wording and with
what was expected; the parser adds file and line."""

from mosq.config.options.option import INT32_MAX, INT32_MIN, UINT32_MAX, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

Value = bool | int | str | tuple[str, ...]

BOOL_WORDS = {"true": True, "1": True, "false": False, "0": False}
# m and y are 30 and 365 days, as in Mosquitto
DURATION_UNITS_S = {"s": 1, "h": 3600, "d": 86400, "w": 604800, "m": 2592000, "y": 31536000}
SIZE_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
SHOWN_MAX = 80          # characters of a wrong value in an error
DIGITS_MAX = 24         # int() is slow on thousands of digits
ONE_WORD = ("bool", "int", "count", "duration", "enum")


def parse_value(option: Option, keyword: str, raw: bytes) -> Value:
    """Return the value of `option`. `raw` is the rest of the line without surrounding blanks. Raises ValueError."""
    text = decode(option, keyword, raw)
    if option.kind == "anything":
        return text
    if option.kind in ("string", "path", "special") or option.name == "log_dest":
        return _parse_text(option, keyword, text)       # here '#' is part of the value
    words = words_before_comment(text)
    if not words:
        raise ValueError(empty(option, keyword))
    if option.kind == "words":
        return tuple(words)
    if words[0] == "=":
        proper = f"{keyword} {' '.join(words[1:])}".rstrip()[:SHOWN_MAX]
        raise ValueError(f"{invalid(option, keyword, '=')} There is no '=' in this file; write `{proper}`.")
    if option.exact and (len(words) > 1 or words[0][0] == "+" or (len(words[0]) > 1 and words[0][0] == "0")):
        raise ValueError(f"'{keyword}' value not a number. Expected {option.expected()}, in decimal digits, and not "
                         f"'{' '.join(words)[:SHOWN_MAX]}'.")
    return _PARSERS[option.kind](option, keyword, words[0])


def decode(option: Option, keyword: str, raw: bytes) -> str:
    """Decode a value from UTF-8. Raises ValueError if it is not valid or empty."""
    if option.kind == "anything":                       # the value has no effect
        return raw.decode("utf-8", "backslashreplace")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"Malformed UTF-8 in configuration. The value of '{keyword}' is not UTF-8 (byte "
                         f"{error.start + 1} of it); expected text in UTF-8.") from None
    if "\0" in text:
        raise ValueError(f"Malformed UTF-8 in configuration. The value of '{keyword}' holds a zero byte; expected "
                         f"{option.expected()}.")
    if not text and not option.prefix and option.kind != "special":
        raise ValueError(empty(option, keyword))
    return text


def ignored_words(option: Option, text: str) -> str:
    """Return the words after a value of one word that are no comment. Mosquitto ignores them."""
    return " ".join(words_before_comment(text)[1:])[:SHOWN_MAX] if option.kind in ONE_WORD else ""


def words_before_comment(text: str) -> list[str]:
    """Return the words of a value up to the first that begins with '#'."""
    words = text.split()
    for i, word in enumerate(words):
        if word.startswith("#"):
            return words[:i]
    return words


def empty(option: Option, keyword: str) -> str:
    """Return the error text for a missing value."""
    return f"Empty '{option.label or keyword}' value in configuration. Expected {option.expected()}."


def invalid(option: Option, keyword: str, value: str) -> str:
    """Return the beginning of the error text for a wrong value, in Mosquitto's wording."""
    if option.error_text:
        return option.error_text.replace("{value}", value[:SHOWN_MAX])
    return f"Invalid '{option.label or keyword}' value ({value[:SHOWN_MAX]})."


def integer(word: str) -> int | None:
    """Parse a whole number as C does: 0x is hexadecimal, a leading 0 octal. None: not a number."""
    digits = word[1:] if word[:1] in ("-", "+") else word
    if not digits.isascii() or not digits.isalnum():        # int() would accept 1_000 and Arabic digits
        return None
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" and len(digits) > 1 else 10
    if len(digits) > DIGITS_MAX:
        return (UINT32_MAX << 64) if digits.isdigit() else None
    try:
        value = int(digits, base)
    except ValueError:
        return None
    return -value if word[0] == "-" else value


def parse_number(option: Option, keyword: str, word: str) -> int:
    """Return a number in the range of the option; out of range, the value that Mosquitto uses. Raises ValueError."""
    value = integer(word)
    label = option.label or keyword
    if value is None:
        raise ValueError(f"'{label}' value not a number. Expected {option.expected()}, and not '{word[:SHOWN_MAX]}'.")
    if not min(INT32_MIN, option.low) <= value <= max(INT32_MAX, option.high):
        raise ValueError(f"'{label}' value out of range. Expected {option.expected()}.")
    if value < option.low and option.below is not None:
        return option.below
    if value > option.high and option.above is not None:
        return option.above
    if not option.low <= value <= option.high:
        raise ValueError(f"{invalid(option, keyword, str(value))} Expected {option.expected()}.")
    return value


def _parse_text(option: Option, keyword: str, text: str) -> str:
    if option.kind != "string":
        return text
    if len(text.encode()) > option.high:
        error_text = f"'{keyword}' length must be <= {option.high}." if keyword == "listener_auto_id_prefix" else \
            f"{keyword} length must be <= {option.high}."
        raise ValueError(f"{error_text} Expected at most {option.high} bytes, and not {len(text.encode())}.")
    if option.name == "mount_point" and ("#" in text or "+" in text):
        raise ValueError(f"Invalid 'mount_point' value ({text[:SHOWN_MAX]}). Does it contain a wildcard character? "
                         "Expected a topic without + and #.")
    return text


def _parse_bool(option: Option, keyword: str, word: str) -> bool:
    value = BOOL_WORDS.get(word)
    if value is None:
        meant = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(word.lower(), word.lower())
        hint = f" (write `{keyword} {meant}`)" if meant in BOOL_WORDS else ""
        raise ValueError(f"{invalid(option, keyword, word)} Expected true or false{hint}.")
    return value


def _parse_count(option: Option, keyword: str, word: str) -> int:
    return 0 if word == "off" else parse_number(option, keyword, word)


def _parse_duration(option: Option, keyword: str, word: str) -> int:
    unit_s = DURATION_UNITS_S.get(word[-1:])
    number = word[:-1]
    if unit_s is not None and number.isascii() and number.isdigit() and len(number) <= 10:
        seconds = int(number) * unit_s
        if 0 < seconds < UINT32_MAX:
            return seconds
    raise ValueError(f"{invalid(option, keyword, word)} Expected {option.expected()}, up to 136 years, and not "
                     f"'{word[:SHOWN_MAX]}'.")


def _parse_enum(option: Option, keyword: str, word: str) -> str:
    if word in option.choices:
        return word
    if option.name == "start_type" and word == "manual":
        raise ValueError(f"Manual start_type not supported. Expected {option.expected()}.")
    raise ValueError(f"{invalid(option, keyword, word)} Expected {option.expected()}.")


_PARSERS: "dict[str, Callable[[Option, str, str], Value]]" = {
    "bool": _parse_bool, "int": parse_number, "count": _parse_count, "duration": _parse_duration, "enum": _parse_enum}
