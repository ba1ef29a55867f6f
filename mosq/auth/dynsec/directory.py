"""The state of dynamic security with its file: one for a broker, kept over reloads. Logins read it and commands change
it, both on the control thread.

Invariant: the contents of the file were in force when it was written. As in Mosquitto, the file is read at the start,
not at a reload, so a reload does not lose changes by commands.
"""

import os

from mosq.auth.dynsec.compiled import compiled, may_use
from mosq.auth.dynsec.first import make_first
from mosq.auth.dynsec.hashing import Hashing
from mosq.auth.dynsec.model import Client, State
from mosq.auth.dynsec.store import Writer, load
from mosq.auth.hashes import PBKDF2, Hash, decoy, new_hash, read_hash
from mosq.config.errors import ConfigError, Origin
from mosq.log_types import INFORMATION, WARNING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any



class Directory:
    """The clients, groups and roles in force, and their file."""

    by_name = True              # decides only about clients with a user name

    def __init__(self, path: str, password_init_file: str | None, report: "Callable[[int, str], None]",
                 named_at: "Origin | None" = None) -> None:
        """Read the file, or generate it if there is none. Raises ConfigError."""
        self.path = path
        self.holders = 0            # Access objects that hold it: two during a reload
        self.hashing = Hashing()
        self.role_names: tuple[str, ...] = ()       # of the last compiled rules, by number
        self.is_ahead = False       # whether the data plane's rules are older, because a change failed
        self.is_lost = False        # the state has changes that could be neither saved nor forgotten
        self._writer = Writer(path)
        self._version = _version_of(path)       # of the file that was read or written last
        self.state, warnings = self._begin(password_init_file, report, named_at)
        for warning in warnings:
            report(WARNING, f"Warning: {warning}")
        # costs as much to check as the hashes that are made here, so that the time does not show whether a user exists
        self.decoy: Hash = decoy(read_hash(new_hash(PBKDF2, b"")))

    def _begin(self, password_init_file: str | None, report: "Callable[[int, str], None]",
               named_at: "Origin | None") -> "tuple[State, list[str]]":
        """Return the state at the start, and warnings. Raises ConfigError."""
        try:
            return load(self.path, named_at)
        except FileNotFoundError:
            return self._generated(password_init_file, report, named_at)

    def _generated(self, password_init_file: str | None, report: "Callable[[int, str], None]",
                   named_at: "Origin | None") -> "tuple[State, list[str]]":
        """Return the contents of the first file, which one of several workers generates."""
        import fcntl

        try:
            fd = os.open(os.path.dirname(os.path.realpath(self.path)), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            fd = -1                     # make_first reports why
        try:
            if fd >= 0:
                fcntl.flock(fd, fcntl.LOCK_EX)
            if not os.path.exists(self.path):
                make_first(self.path, password_init_file, lambda text: report(INFORMATION, text), named_at)
            self._version = _version_of(self.path)
            return load(self.path, named_at)
        except FileNotFoundError:
            raise ConfigError(f"The dynamic security file '{self.path}' disappeared after it was generated.",
                              named_at) from None
        finally:
            if fd >= 0:
                os.close(fd)

    def refresh(self) -> "set[str | None] | None":
        """Read the file if it is not the one that this directory has read or written last. Return the users whose
        connections do not fit their logins any more, or None if the file is the same. Raises ConfigError, OSError."""
        version = _version_of(self.path)
        if version is not None and version == self._version:
            return None
        earlier = self.state.clients
        self.state, _ = load(self.path)
        self._version, self.is_lost = version, False
        return {name for name, client in earlier.items() if login_of(client) != login_of(self.state.clients.get(name))}

    def forget(self) -> None:
        """Return to the file's contents, after changes that could not be saved."""
        self._version, self.is_lost = None, True
        try:
            self.refresh()
        except (ConfigError, OSError):
            pass                        # the next turn tries again

    def client(self, username: str) -> Client | None:
        """Return the client with this user name, or None."""
        return self.state.clients.get(username)

    def may_log_in(self, client: Client, client_id: str) -> bool:
        """Return whether the client may log in if the password is correct."""
        return (not client.disabled and client.hash is not None
                and (client.clientid is None or client.clientid == client_id))

    def may_use(self, user: str | None, client_id: str, topic: str, access: int) -> bool | None:
        """Return whether the client may receive (1) or send (2) messages on a topic, see compiled.py."""
        return may_use(self.state, user, client_id, topic, access)

    def compiled(self) -> "dict[str, Any]":
        """Return the rules for the data plane, and remember the names of their roles."""
        rules = compiled(self.state)
        self.role_names = tuple(self.state.roles)
        return rules

    def save(self) -> str | None:
        """Write the file. Return why that failed, or None."""
        try:
            self._writer.write(self.state)
        except OSError as error:
            return f"{error.strerror}: {error.filename or os.path.dirname(self.path)}"
        self._version = _version_of(self.path)
        return None


def _version_of(path: str) -> tuple[int, ...] | None:
    """Return what distinguishes a file from the one that replaces it; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def login_of(client: Client | None) -> tuple[object, ...] | None:
    return None if client is None else (client.disabled, client.clientid, client.hash and client.hash.encoded)
