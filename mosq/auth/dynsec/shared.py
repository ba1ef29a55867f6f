"""Dynamic security of a cluster: the document is in Redis, and all nodes use and change the same one.

    turn of this node (ADR 34) -> newest document -> commands, on a copy -> compare-and-set in Redis, which most servers
    confirm -> all workers of this node take the document -> response, kicks

If another node was faster, this node takes its document, and the commands run again on a copy of that. A change that
Redis does not confirm is answered with an error, and the rules in force stay. The agent of the node talks to Redis
(mosq/server/node/rules.py); this module knows only answers, documents and states.
"""

from time import monotonic

from mosq.auth.dynsec import outcome
from mosq.auth.dynsec.commands import Commands
from mosq.auth.dynsec.directory import Directory, login_of
from mosq.auth.dynsec.document import BYTES_MAX, Document, next_stamp
from mosq.auth.dynsec.store import FileError, read
from mosq.config.errors import ConfigError
from mosq.log_types import ERROR
from mosq.records import KickCommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from mosq.auth.dynsec.commands import Message
    from mosq.auth.dynsec.model import Client, Group, Role, State
    from mosq.auth.hashes import Hash
    from mosq.config.errors import Origin
    from mosq.server.admin.control import Requester, Work
    from mosq.server.node.together import NodeTogether

TRY_S = 10.0                    # for which commands run again after conflicts; less than LIMIT_S of a turn
READS = ("get", "list")         # begin of the names of commands that change nothing


class SharedDirectory(Directory):
    """The state in force with its document. `path` names the file that made the first document, and is not used."""

    def __init__(self, document: Document, path: str, report: "Callable[[int, str], None]",
                 named_at: "Origin | None" = None) -> None:
        """Read the document. Raises ConfigError."""
        self.document = document
        super().__init__(path, None, report, named_at)

    def _begin(self, password_init_file: str | None, report: "Callable[[int, str], None]",
               named_at: "Origin | None") -> "tuple[State, list[str]]":
        try:
            return read(self.document.content())
        except FileError as error:
            raise ConfigError(f"Error in the document of dynamic security in Redis: {error}.", named_at) from None

    def refresh(self) -> "set[str | None] | None":
        """Read nothing: the agent sends new documents."""
        return None

    def copy(self) -> "State":
        """Return a copy of the state in force, for commands. Raises FileError."""
        return read(self.document.content())[0]

    def content_of(self, state: "State") -> bytes:
        """Return the content of a document with this state."""
        return b"".join(self._writer.content(state))


class SharedCommands(Commands):
    """The commands of a node."""

    _directory: SharedDirectory
    _together: "NodeTogether"
    _written: "tuple[str, State] | None" = None         # the change that Redis does not have yet

    def take_document(self, document: Document) -> "set[str | None]":
        """Put a document into force. Return the users to disconnect: those whose rights or logins are others, unless
        the commands of this worker have changed them. Raises FileError, and what the engine raises."""
        directory, earlier = self._directory, self._directory.state
        own = self._written is not None and self._written[0] == document.stamp
        directory.state = self._written[1] if own and self._written is not None else read(document.content())[0]
        directory.document = document
        if self._places():
            self.put_in_force()
        return set() if own else changed(earlier, directory.state)

    def _in_turn(self, commands: "list[Any]", hashes: "dict[int, Hash]", requester: "Requester") -> "Work":
        trouble, why = yield from self._together.look()
        until_s = monotonic() + TRY_S
        try:
            while True:
                message, document = self.message_of(requester), self._directory.document
                if not all(map(reads, commands)):
                    message.state = self._directory.copy()
                if not (yield from self.execute(message, commands, hashes)):
                    return []
                status = outcome.DONE
                if message.changes:
                    status, why = (trouble, why) if trouble != outcome.DONE else (
                        yield from self._write(message, document))
                if status != outcome.CHANGED or monotonic() >= until_s:
                    return self._answers(message, requester, status, why)
        finally:
            self._written = None

    def _write(self, message: "Message", document: Document) -> "Generator[bool, None, tuple[str, str]]":
        """Replace `document` by the state of a message. Return the status, and why it is not DONE."""
        content = self._directory.content_of(message.state)
        if len(content) > BYTES_MAX:
            return outcome.LARGE, outcome.ERRORS[outcome.LARGE]
        self._written = next_stamp(document.stamp), message.state
        return (yield from self._together.write(document.stamp, self._written[0], content))

    def _answers(self, message: "Message", requester: "Requester", status: str, why: str) -> "list[tuple[str, bytes]]":
        if status == outcome.DONE:
            if message.kicks:
                requester.further_answers.append(KickCommand(list(message.kicks)))
            self.log(message)
        else:
            error = outcome.ERRORS[status]
            self._report(ERROR, f"Error: A change of dynamic security was not confirmed: {why or error}.")
            message.not_in_force(error)
        return message.answers()


def reads(fields: "Any") -> bool:
    """Return whether a command changes nothing."""
    name = fields.get("command") if isinstance(fields, dict) else ""
    return not isinstance(name, str) or not name or name.lower().startswith(READS)


def changed(earlier: "State", state: "State") -> "set[str | None]":
    """Return the users whose logins or rights are others now; None: clients without a user name. As with one broker, a
    new client is none of them."""
    roles = {name for name in earlier.roles.keys() | state.roles.keys()
             if _rights(earlier.roles.get(name)) != _rights(state.roles.get(name))}
    groups = {name for name in earlier.groups.keys() | state.groups.keys()
              if _roles(earlier.groups.get(name)) != _roles(state.groups.get(name))
              or not roles.isdisjoint(_roles(state.groups.get(name)) or ())}

    def touched(client: "Client | None") -> bool:
        return client is not None and not (roles.isdisjoint(client.roles) and groups.isdisjoint(client.groups))

    found: set[str | None] = set()
    for name, client in earlier.clients.items():
        now = state.clients.get(name)
        if _login(client) != _login(now) or touched(now):
            found.add(name)
    if earlier.anonymous != state.anonymous or state.anonymous in groups:
        found.add(None)
    return found


def _login(client: "Client | None") -> tuple[object, ...]:
    return (login_of(client), *(() if client is None else (client.roles, client.groups)))


def _roles(group: "Group | None") -> "dict[str, int] | None":
    return None if group is None else group.roles


def _rights(role: "Role | None") -> "tuple[object, ...] | None":
    if role is None:
        return None
    return role.wildcards, [[(rule.topic, rule.priority, rule.allow) for rule in role.rules.ordered(kind)]
                            for kind in sorted(role.rules.by_kind)], sorted(role.rules.by_kind)
