"""Translate an MQTT topic filter into a regular expression that means the same to Java's and Python's engines."""

import re

FILTER_BYTES_MAX = 65_535


def problem(text: str) -> str | None:
    """Return why the text is not a topic filter, or None if it is one."""
    if not text or "\0" in text or len(text.encode(errors="surrogatepass")) > FILTER_BYTES_MAX:
        return "1 to 65,535 bytes without a zero"
    levels = text.split("/")
    if "#" in levels[:-1] or any(len(level) > 1 and ("#" in level or "+" in level) for level in levels):
        return "`+` and `#` as whole levels, `#` as the last one"
    return None


def regex(filter: str) -> str:
    """Return the expression to search in a topic.

    Wildcards at the first level do not match topics that begin with `$` [v5 4.7.2-1].
    """
    levels = filter.split("/")
    shield = r"(?!\$)" if levels[0] in ("+", "#") else ""
    end = "(?!.)"
    if levels[-1] == "#":
        levels.pop()
        end = "(?:/|(?!.))" if levels else ""
    parts = ("[^/]*" if level == "+" else _quoted(level) for level in levels)
    return rf"(?s)\A{shield}{'/'.join(parts)}{end}"


def _quoted(text: str) -> str:
    # the special characters of both engines are ASCII; all others stand for themselves
    return re.sub(r"([^\w\s/\x80-\U0010ffff-])", r"\\\1", text, flags=re.ASCII)
