"""The address of Redis in a configuration.

    redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/DB]       several hosts: the one that is the primary counts
    rediss://...                                                    the same with TLS
    redis+sentinel://[USER:PASSWORD@]HOST[:PORT],.../NAME[/DB]      Sentinels, and the name under which they know Redis
    rediss+sentinel://...                                           the same with TLS, also to the Sentinels
    redis+unix://[USER:PASSWORD@]/PATH[?db=DB]                      a unix socket

User and password are those of Redis; reserved characters in them are written as %XX. A password alone is `:PASSWORD@`.
A file may have the password instead. Sentinels must answer without a password. No error and no `str` shows the
password.
"""

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

REDIS_PORT, SENTINEL_PORT = 6379, 26379
FORMS = "redis:// or redis+sentinel://"
PASSWORD_FILE_BYTES = 4096


@dataclass(frozen=True)
class Address:
    """The place of Redis. Exactly one of `hosts` and `path` is set."""

    hosts: tuple[tuple[str, int], ...] = ()     # of Redis, or of Sentinels
    master: str = ""                # its name for Sentinels; empty: there are none
    path: str = ""                  # of a unix socket
    db: int = 0
    tls: bool = False
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def can_fail_over(self) -> bool:
        """Return whether another server of this address may become the primary."""
        return bool(self.master) or len(self.hosts) > 1

    def __str__(self) -> str:
        if self.path:
            return f"redis+unix://{self.path}?db={self.db}"
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        scheme = ("rediss" if self.tls else "redis") + ("+sentinel" if self.master else "")
        return f"{scheme}://{hosts}/{self.master + '/' if self.master else ''}{self.db}"


def parse_address(text: str, password_file: str | None = None, *, reads: bool = True) -> Address:
    """Read an address. Raises ValueError with a text that shows no password. `password_file`: has the password in its
    first line; OSError if it cannot be read. Without `reads` it is not opened, and the address has no password."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+unix"):
        raise ValueError(f"the address of Redis begins with {FORMS}")
    credentials, at, place = rest.rpartition("@")
    user, password = _credentials(credentials) if at else (None, None)
    if password_file is not None:
        if password is not None:
            raise ValueError("the address of Redis has a password, and there is a file with a password too")
        password = _read_password(password_file) if reads else None
    elif user is not None and password is None:
        raise ValueError("the address of Redis has a user without a password")
    if "#" in place or ("?" in place and scheme != "redis+unix"):
        raise ValueError("the address of Redis has a '?' or '#' behind its host; write one in a password as %3F or %23")
    if scheme == "redis+unix":
        path, _, query = place.partition("?")
        if not path.startswith("/"):
            raise ValueError("the path of a unix socket of Redis begins with /, as in redis+unix:///run/redis.sock")
        if query and not query.startswith("db="):
            raise ValueError("after the path of a unix socket of Redis, only ?db=NUMBER is known")
        return Address(path=unquote(path), db=_db(query.removeprefix("db=")), user=user, password=password)
    names, _, behind = place.partition("/")
    master = ""
    if scheme.endswith("+sentinel"):
        master, _, behind = behind.partition("/")
        if not master:
            raise ValueError("the address of Sentinels ends with the name of the primary, as in "
                             "redis+sentinel://HOST1,HOST2/NAME")
    hosts = tuple([_host(name, SENTINEL_PORT if master else REDIS_PORT) for name in names.split(",")])
    return Address(hosts, unquote(master), "", _db(behind), scheme.startswith("rediss"), user, password)


def _credentials(text: str) -> tuple[str | None, str | None]:
    user, colon, password = text.partition(":")
    if colon and not password:
        raise ValueError("the password in the address of Redis is empty")
    if "/" in text:
        raise ValueError("the user or the password in the address of Redis has a '/'; write it as %2F")
    return unquote(user) or None, unquote(password) if colon else None


def _read_password(path: str) -> str:
    with Path(path).open("rb") as file:
        lines = file.read(PASSWORD_FILE_BYTES).splitlines()
    try:
        password = lines[0].decode() if lines else ""
    except UnicodeDecodeError:
        raise ValueError(f"the first line of {path} is not UTF-8, so it has no password of Redis") from None
    if not password:
        raise ValueError(f"the first line of {path} is empty; it must have the password of Redis")
    return password


def _host(text: str, port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, behind = text[1:].partition("]")
        if not bracket or (behind and not behind.startswith(":")):
            raise ValueError("an IPv6 address of Redis stands in brackets, as in [::1]:6379")
        digits = behind[1:] if behind else str(port)
    else:
        host, colon, digits = text.partition(":")
        digits = digits if colon else str(port)
    if not host:
        raise ValueError("a host in the address of Redis is empty")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 5 and 1 <= int(digits) <= 65535):
        raise ValueError(f"the port of Redis at {host} is a number from 1 to 65535")
    return host, int(digits)


def _db(text: str) -> int:
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal() and len(text) <= 5):
        raise ValueError("the number of the database of Redis has one to five digits")
    return int(text)
