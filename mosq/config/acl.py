"""Reads an `acl_file`: `user NAME`, `topic [read|write|readwrite|deny] FILTER`, `pattern [...] FILTER` with %u and %c.

The rules are plain tuples in the order of the file. The data plane compiles and applies them.
"""

from mosq.config.errors import ConfigError, Origin

ACCESS = ("read", "write", "readwrite", "deny")
FILTER_BYTES_MAX = 65535        # [v5 1.5.4] the length of a string is two bytes
WARNINGS_MAX = 10
BLANKS = b" \t\r\n\v\f"

# user (None: clients without a user name; for a pattern: all clients), "topic" | "pattern", one of ACCESS, filter
AclRule = tuple[str | None, str, str, str]


def load_acl(path: str, named_at: Origin | None = None) -> list[AclRule]:
    """Return the rules of a file. Raises ConfigError with file and line."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"Unable to open acl_file '{path}': {reason}.", named_at) from None
    rules: list[AclRule] = []
    user: str | None = None
    for number, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        raw = raw.strip(BLANKS)
        if not raw or raw.startswith(b"#"):
            continue
        try:
            keyword, *rest = _decode(raw).split(None, 1)
            value = rest[0] if rest else ""
            if keyword == "user":
                user = _user(value)
            elif keyword in ("topic", "pattern"):
                rules.append(_rule(user if keyword == "topic" else None, keyword, value))
            else:
                raise ValueError(f"Invalid line in acl_file: '{keyword.partition(':')[0][:40]}'; "
                                 "expected user, topic or pattern.")
        except ValueError as error:
            raise ConfigError(str(error), Origin(path, number)) from None
    return rules


def acl_warnings(rules: list[AclRule]) -> list[str]:
    """Return a line for each pattern that is the same for all clients, in Mosquitto's words; at most WARNINGS_MAX."""
    lines = [f"ACL pattern '{topic}' does not contain '%c' or '%u'." for _, kind, _, topic in rules
             if kind == "pattern" and "%c" not in topic and "%u" not in topic]
    if len(lines) > WARNINGS_MAX:
        lines[WARNINGS_MAX:] = [f"{len(lines) - WARNINGS_MAX} more ACL patterns do not contain '%c' or '%u'."]
    return lines


def _decode(raw: bytes) -> str:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"Invalid line in acl_file: not UTF-8 (byte {error.start + 1}); expected UTF-8.") from None
    if "\0" in text:
        raise ValueError("Invalid line in acl_file: it holds a zero byte; expected text.")
    return text


def _user(name: str) -> str:
    if not name:
        raise ValueError("Empty 'user' in acl_file; expected `user NAME`.")
    return name


def is_filter(text: str) -> bool:
    """Return whether `text` is a valid topic filter: + only as a whole level, # only as the whole last level."""
    levels = text.split("/")
    return not any(("#" in level and (level != "#" or i + 1 < len(levels))) or ("+" in level and level != "+")
                   for i, level in enumerate(levels))


def _rule(user: str | None, kind: str, value: str) -> AclRule:
    first, *rest = value.split(None, 1)[:2] if value else ("",)
    access, topic = (first, rest[0]) if rest and first in ACCESS else ("readwrite", value)
    if not topic or (not rest and first in ACCESS):
        raise ValueError(f"Empty '{kind}' in acl_file; expected `{kind} [{'|'.join(ACCESS)}] FILTER`.")
    if len(topic.encode()) > FILTER_BYTES_MAX:
        raise ValueError(f"Invalid '{kind}' in acl_file: longer than {FILTER_BYTES_MAX} bytes.")
    if not is_filter(topic):
        raise ValueError(f"Invalid '{kind}' in acl_file: '{topic[:80]}' is not a filter; "
                         "expected + as a whole level and # as the whole last level.")
    return user, kind, access, topic
