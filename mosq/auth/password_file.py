"""Reads a `password_file`: lines of `user:hash`. Knows lines; hashes.py knows hashes.

As in Mosquitto, `#` in column 0 begins a comment, blanks around names and hashes do not count, text after a second
colon is ignored, and a line without a colon is skipped (here with a warning). Any other invalid line is an error with
file, line and what was expected. Hashes and passwords are never shown.
Cost: linear, about 3 us per user.
"""

import os

from mosq.auth.hashes import ARGON2ID, Hash, argon2_advice, decoy, has_argon2, read_hash
from mosq.config.errors import ConfigError, Origin

BLANKS = b" \t\r\n\v\f"
NAME_BYTES_MAX = 65535                  # [v5 1.5.4] the length of a string is two bytes
FILE_BYTES_MAX = 1 << 30
WARNINGS_MAX = 10
ALL_OTHERS = 0o007


class Passwords:
    """The users of one file and their hashes."""

    __slots__ = ("path", "hashes", "decoy", "warnings")
    by_name = True                      # decides only about clients with a user name

    def __init__(self, path: str, hashes: dict[str, Hash], warnings: list[str]) -> None:
        self.path, self.hashes, self.warnings = path, hashes, warnings
        # checked for unknown user names, with the cost of the most common hash
        self.decoy = decoy(_typical(hashes)) if hashes else None


def load_passwords(path: str, named_at: Origin | None = None) -> Passwords:
    """Read a file. Raises ConfigError with file and line."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > FILE_BYTES_MAX:
                raise ValueError(f"larger than {FILE_BYTES_MAX} bytes")
            content = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"Unable to open pwfile \"{path}\": {reason}. Expected a password_file that can be read.",
                          named_at) from None
    passwords = parse_passwords(content, path)
    if status.st_mode & ALL_OTHERS:
        passwords.warnings.append(f"File {path} has world readable permissions. To fix this, use `chmod 0700 {path}`.")
    return passwords


def parse_passwords(content: bytes, path: str) -> Passwords:
    """Parse the contents of a file. Raises ConfigError with file and line."""
    hashes: dict[str, Hash] = {}
    skipped: list[str] = []
    argon2_there = b"$argon2id$" in content and has_argon2()
    for number, raw in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if raw.startswith(b"#") or not raw.strip(BLANKS):
            continue
        try:
            entry = _entry(raw, path)
            if entry is None:
                skipped.append(f"{path}:{number} is skipped: it has no ':'; expected `user:hash`.")
            elif entry[0] in hashes:
                raise ValueError(f"Duplicate user '{entry[0][:80]}' in password file '{path}'; expected each user "
                                 "once.")
            else:
                hashes[entry[0]] = entry[1]
                if entry[1].kind == ARGON2ID and not argon2_there:
                    raise ValueError(f"Hashes of argon2id need a package that is not installed: {argon2_advice()}")
        except ValueError as error:
            raise ConfigError(str(error), Origin(path, number)) from None
    if len(skipped) > WARNINGS_MAX:
        skipped[WARNINGS_MAX:] = [f"{path}: {len(skipped) - WARNINGS_MAX} more lines are skipped."]
    return Passwords(path, hashes, skipped)


def _entry(raw: bytes, path: str) -> tuple[str, Hash] | None:
    """Return a user and the hash; None if the line is skipped. Raises ValueError; its text begins with Mosquitto's
    words."""
    invalid, undecoded = f"Invalid line in password file '{path}'", f"Unable to decode line in password file '{path}'"
    if b":" not in raw:
        return None
    fields = [field.strip(BLANKS) for field in raw.split(b":") if field]
    if not fields or not fields[0] or (raw.startswith(b":") and len(fields) == 1):
        raise ValueError(f"{invalid}: the user name is empty; expected `user:hash`.")
    try:
        name = user_name(fields[0])
    except ValueError as error:
        raise ValueError(f"{invalid}: {error}") from None
    if len(fields) < 2 or not fields[1]:
        raise ValueError(f"{undecoded}: user '{name[:80]}' has no hash; expected `user:hash`.")
    try:
        return name, read_hash(fields[1].decode("ascii", "replace"))
    except ValueError as error:
        if not fields[1].startswith(b"$"):
            raise ValueError(f"{undecoded}: the password of user '{name[:80]}' is not hashed; expected `user:hash`. "
                             "If all of the file is plain text, `mosq passwd -U FILE` hashes it.") from None
        raise ValueError(f"{undecoded}: the hash of user '{name[:80]}' cannot be used: {error}.") from None


def user_name(raw: bytes) -> str:
    """Decode a user name. Raises ValueError."""
    if len(raw) > NAME_BYTES_MAX:
        raise ValueError(f"the user name is longer than {NAME_BYTES_MAX} bytes.")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"the user name is not UTF-8 (byte {error.start + 1}); "
                         "expected UTF-8, as clients send it.") from None


def _typical(hashes: dict[str, Hash]) -> Hash:
    counts: dict[object, int] = {}
    example: dict[object, Hash] = {}
    for one in hashes.values():
        form = one.encoded.split("$")[3] if one.kind == ARGON2ID else (one.kind, one.iterations)
        counts[form] = counts.get(form, 0) + 1
        example[form] = one
    return example[max(counts, key=lambda form: counts[form])]
