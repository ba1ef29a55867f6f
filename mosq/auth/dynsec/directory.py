"""The state of dynamic security with its file: one for a broker, kept over reloads. Logins read it and commands change
it, both on the control thread.

Invariant: the contents of the file were in force when it was written. As in Mosquitto, the file is read at the start,
not at a reload, so a reload does not lose changes by commands.
"""

import os

from mosq.auth.dynsec.compiled import compiled, may_use
from mosq.auth.dynsec.first import make_first
from mosq.auth.dynsec.hashing import Hashing
from mosq.auth.dynsec.model import Client
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
        self._writer = Writer(path)
        try:
            self.state, warnings = load(path, named_at)
        except FileNotFoundError:
            make_first(path, password_init_file, lambda text: report(INFORMATION, text), named_at)
            try:
                self.state, warnings = load(path, named_at)
            except FileNotFoundError:
                raise ConfigError(f"The dynamic security file '{path}' disappeared after it was generated.",
                                  named_at) from None
        for warning in warnings:
            report(WARNING, f"Warning: {warning}")
        # costs as much to check as the hashes that are made here, so that the time does not show whether a user exists
        self.decoy: Hash = decoy(read_hash(new_hash(PBKDF2, b"")))

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
        return None
