"""What is in force of dynamic security, with its file: one for a broker, over reloads. Log-ins look into it, commands
change it, both on the control thread.

Invariant: what is in the file was in force when it was written. The file is read when the broker starts, not when it
reloads, as in Mosquitto: what commands have changed since is not lost by that.
"""

import os

from mosq.auth.dynsec.compiled import compiled, may_receive
from mosq.auth.dynsec.first import make_first
from mosq.auth.dynsec.hashing import Hashing
from mosq.auth.dynsec.model import Client
from mosq.auth.dynsec.store import Writer, load
from mosq.auth.hashes import PBKDF2, Hash, decoy, new_hash, read_hash
from mosq.config.errors import ConfigError, Origin
from mosq.config.options import LOG_TYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

INFORMATION, WARNING = LOG_TYPES["information"], LOG_TYPES["warning"]


class Directory:
    by_name = True              # it has an opinion about clients with a user name only

    def __init__(self, path: str, password_init_file: str | None, say: "Callable[[int, str], None]",
                 named_at: "Origin | None" = None) -> None:
        """Makes the file where there is none. Raises ConfigError."""
        self.path = path
        self.holders = 0            # Accesses: two while the broker reloads
        self.hashing = Hashing()
        self.is_ahead = False       # of the data plane's rules, which could not be changed
        self._writer = Writer(path)
        try:
            self.state, warnings = load(path, named_at)
        except FileNotFoundError:
            make_first(path, password_init_file, lambda text: say(INFORMATION, text), named_at)
            try:
                self.state, warnings = load(path, named_at)
            except FileNotFoundError:
                raise ConfigError(f"The dynamic security file '{path}' is gone as soon as it was made.",
                                  named_at) from None
        for warning in warnings:
            say(WARNING, f"Warning: {warning}")
        # as dear to check as the hashes that are made here, so that time does not tell whether there is a user
        self.decoy: Hash = decoy(read_hash(new_hash(PBKDF2, b"")))

    def client(self, username: str) -> Client | None:
        return self.state.clients.get(username)

    def may_log_in(self, client: Client, client_id: str) -> bool:
        """With his password."""
        return (not client.disabled and client.hash is not None
                and (client.clientid is None or client.clientid == client_id))

    def may_receive(self, user: str | None, client_id: str, topic: str) -> bool | None:
        """As compiled.py has it."""
        return may_receive(self.state, user, client_id, topic)

    def compiled(self) -> "dict[str, Any]":
        return compiled(self.state)

    def save(self) -> str | None:
        """Why it could not be."""
        try:
            self._writer.write(self.state)
        except OSError as error:
            return f"{error.strerror}: {error.filename or os.path.dirname(self.path)}"
        return None
