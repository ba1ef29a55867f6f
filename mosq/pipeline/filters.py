"""An MQTT topic filter as a regular expression that Java's and Python's engines take alike."""

import re

FILTER_BYTES_MAX = 65_535


def problem(said: str) -> str | None:
    """Why this is no topic filter; None: it is one."""
    if not said or "\0" in said or len(said.encode(errors="surrogatepass")) > FILTER_BYTES_MAX:
        return "1 to 65,535 bytes without a zero"
    levels = said.split("/")
    if "#" in levels[:-1] or any(len(level) > 1 and ("#" in level or "+" in level) for level in levels):
        return "`+` and `#` as whole levels, `#` as the last one"
    return None


def regex(filter: str) -> str:
    """To be searched in a topic. Wildcards at the first level do not match topics that begin with `$` [v5 4.7.2-1]."""
    levels = filter.split("/")
    shield = r"(?!\$)" if levels[0] in ("+", "#") else ""
    end = "(?!.)"
    if levels[-1] == "#":
        levels.pop()
        end = "(?:/|(?!.))" if levels else ""
    parts = ("[^/]*" if level == "+" else _quoted(level) for level in levels)
    return rf"(?s)\A{shield}{'/'.join(parts)}{end}"


def _quoted(text: str) -> str:
    # what is special in either engine is ASCII; all else stands for itself
    return re.sub(r"([^\w\s/\x80-\U0010ffff-])", r"\\\1", text, flags=re.ASCII)
