"""$CONTROL/dynamic-security/v1: JSON commands, answered in the words of Mosquitto 2.1.

    {"commands": [{"command": NAME, "correlationData": TEXT, ...}, ...]}
 -> {"responses": [{"command": NAME, ("error": TEXT | "data": {...}), "correlationData": TEXT}, ...]}

    passwords hashed (hashing.py) -> commands, one per step (admin/control.py) -> rules, file -> answer -> kicks

All commands of a message run before the answer is sent: by then the new rules are in force and the file is on disk.
With workers (`together`), the worker waits for its turn, which comes after it has taken the changes of the others. It
answers when the file is on disk and all workers have the rules. A change that cannot be saved is refused.
After the answer, clients whose rights changed are disconnected. The data plane decides which clients may send commands.
A login between two steps sees the commands that have run; a new client has no rights before the rules are in force.
Invariants: a command runs completely or not at all. Clients that must be disconnected are disconnected after any
failure. Rules that cannot be put in force are answered with an error and tried again with the next message. No password
is logged.
"""

from itertools import zip_longest

from mosq.auth.dynsec import on_clients, on_groups, on_roles
from mosq.auth.dynsec.context import Context, RefusedError
from mosq.auth.dynsec.reading import parse, raw, text
from mosq.log_types import ERROR, INFORMATION
from mosq.records import KickCommand
from mosq.server.admin.commands import RESPONSES_BYTES_MAX, TOO_MANY, UNKNOWN, Responses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from mosq.auth.dynsec.directory import Directory
    from mosq.auth.hashes import Hash
    from mosq.engine import Engine
    from mosq.server.admin.control import ControlTopics, Messages, Requester, Work
    from mosq.server.admin.traces import Traces
    from mosq.server.workers.together import Together

TOPIC = "$CONTROL/dynamic-security/v1"
INTERNAL = "Internal error"
SET_PASSWORDS = ("createclient", "modifyclient", "setclientpassword")
HASHED_MAX = RESPONSES_BYTES_MAX // len('{"command":"createClient"}')     # later commands find no room for an answer
LINE_CHARS_MAX = 1000           # limit of a log line
CONNECTIONS_MAX = 1000          # connections of one client that an answer lists

COMMANDS: "dict[str, Callable[[Context], dict[str, Any] | None]]" = {
    name.lower(): done for name, done in {
        "setDefaultACLAccess": on_roles.set_default_access,
        "getDefaultACLAccess": on_roles.get_default_access,
        "getDetails": on_roles.get_details,
        "createClient": on_clients.create,
        "deleteClient": on_clients.delete,
        "getClient": on_clients.get,
        "listClients": on_clients.list_all,
        "modifyClient": on_clients.modify,
        "setClientPassword": on_clients.set_password,
        "setClientId": on_clients.set_id,
        "addClientRole": on_clients.add_role,
        "removeClientRole": on_clients.remove_role,
        "enableClient": on_clients.enable,
        "disableClient": on_clients.disable,
        "addGroupClient": on_groups.add_client,
        "createGroup": on_groups.create,
        "deleteGroup": on_groups.delete,
        "getGroup": on_groups.get,
        "listGroups": on_groups.list_all,
        "modifyGroup": on_groups.modify,
        "removeGroupClient": on_groups.remove_client,
        "addGroupRole": on_groups.add_role,
        "removeGroupRole": on_groups.remove_role,
        "setAnonymousGroup": on_groups.set_anonymous,
        "getAnonymousGroup": on_groups.get_anonymous,
        "createRole": on_roles.create,
        "getRole": on_roles.get,
        "listRoles": on_roles.list_all,
        "modifyRole": on_roles.modify,
        "deleteRole": on_roles.delete,
        "addRoleACL": on_roles.add_rule,
        "removeRoleACL": on_roles.remove_rule,
    }.items()
}


class Commands:
    """The handler of one configuration. `places`: returns the indexes of the securities that use the directory at this
    moment; empty if a reload has replaced the directory."""

    def __init__(self, directory: "Directory", places: "Callable[[], list[int]]", engine: "Callable[[], Engine]",
                 report: "Callable[[int, str], None]", wake: "Callable[[], None]",      # parameters: services
                 together: "Together | None" = None) -> None:
        self._together = together
        self._directory, self._places, self._engine, self._report = directory, places, engine, report
        self._wake = wake
        self._traces: Traces | None = None

    def add_to(self, topics: "ControlTopics") -> None:
        """Register the handler of the topic; give traces the names of roles."""
        topics.add(TOPIC, self.answer)
        self._traces = topics.traces
        if self._traces is not None:
            self._traces.role_names = lambda: self._directory.role_names

    def answer(self, requester: "Requester", payload: bytes) -> "Work":
        """Run the commands of a message; a generator for admin/control.py."""
        if requester.security not in self._places():
            return []               # the client's listener does not use the directory
        message = self.message_of(requester)
        commands = message.commands(payload)
        batch = self._directory.hashing.begin(_passwords(commands), self._wake)
        while not batch.is_done:
            yield False
        if self._together is None:
            return (yield from self._run(message, commands, batch.hashes, requester))
        try:
            yield from self._together.begin(self._wake)
            return (yield from self._in_turn(commands, batch.hashes, requester))
        finally:
            self._together.end()

    def _in_turn(self, commands: "list[Any]", hashes: "dict[int, Hash]", requester: "Requester") -> "Work":
        assert self._together is not None
        if self._directory.is_lost:
            self.take()
        message = self.message_of(requester)            # another worker may have changed the state since
        answers = yield from self._run(message, commands, hashes, requester)
        if message.saved:
            yield from self._together.spread(message.kicks)
        return answers

    def message_of(self, requester: "Requester") -> "Message":
        """Return the execution of a message that has not begun."""
        return Message(self._directory, requester, self._connections)

    def take(self) -> "set[str | None]":
        """Put the rules into force that another worker has written. Return the users that may not log in as before.
        Raises ConfigError, OSError, and what the engine raises."""
        revoked = self._directory.refresh()
        if revoked is None or not self._places():
            return set()
        self._directory.is_ahead = True
        self.put_in_force()
        self._directory.is_ahead = False
        return revoked

    def _run(self, message: "Message", commands: "list[Any]", hashes: "dict[int, Hash]", requester: "Requester"
             ) -> "Work":
        if not (yield from self.execute(message, commands, hashes)):
            return []
        self._end(message, requester)
        return message.answers()

    def execute(self, message: "Message", commands: "list[Any]", hashes: "dict[int, Hash]"
                ) -> "Generator[bool, None, bool]":
        """Run the commands. Return False if a reload has replaced the directory."""
        for place, command in enumerate(commands):
            if not self._places():
                return False
            if not message.run(command, hashes.get(place)):
                break
            yield True
        return True

    def log(self, message: "Message") -> None:
        """Log what the commands have done."""
        for error in message.errors:
            self._report(ERROR, f"Error: A command of dynamic security failed: {error}.")
        for line in message.lines:
            self._report(INFORMATION, line)

    def _end(self, message: "Message", requester: "Requester") -> None:
        if message.kicks:           # first, so that no later failure prevents it
            requester.further_answers.append(KickCommand(list(message.kicks)))
        self.log(message)
        if not message.changes and not self._directory.is_ahead:
            return
        if self._together is not None:
            why = self._directory.save()
            if why is not None:
                self._report(ERROR, f"Error saving Dynamic security plugin config: {why}")
                message.not_in_force()
                self._directory.forget()
                return
            message.saved = True
        try:
            self._directory.is_ahead = True
            self.put_in_force()
            self._directory.is_ahead = False
        except Exception as error:
            self._report(ERROR, "Error: The rules of dynamic security could not be put in force; the old ones stay "
                                f"until the next command: {type(error).__name__}.")
            message.not_in_force()
        why = self._directory.save() if self._together is None else None
        if why is not None:
            self._report(ERROR, f"Error saving Dynamic security plugin config: {why}")

    def put_in_force(self) -> None:
        """Give the data plane the rules. Events of traces have numbers of the roles that are in force."""
        before = self._directory.role_names
        rules = self._directory.compiled()
        if self._traces is not None:
            self._traces.take(before)
        try:
            self._engine().set_roles(rules, self._places())
        except BaseException:
            self._directory.role_names = before
            raise
        if self._traces is not None:
            # an event since the last ones has a number of the one or the other roles
            self._traces.take([old if old == new else "?" for old, new in
                               zip_longest(before, self._directory.role_names, fillvalue="?")])

    def _connections(self) -> "dict[str, list[tuple[str, str]]]":
        """Return (client id, address) of each connection, by user."""
        found: dict[str, list[tuple[str, str]]] = {}
        for client in self._engine().clients():
            if client["username"] is not None:
                mine = found.setdefault(client["username"], [])
                if len(mine) < CONNECTIONS_MAX:
                    mine.append((client["id"], client["address"] or ""))
        return found


class Message:
    """The execution of one published message."""

    def __init__(self, directory: "Directory", requester: "Requester",
                 connections: "Callable[[], dict[str, list[tuple[str, str]]]]") -> None:
        self.state = directory.state
        self.client = f"{requester.client_id}/{requester.username if requester.username is not None else '(null)'}"
        self.responses = Responses(raw)
        self.lines: list[str] = []              # lines for the log
        self.errors: list[str] = []             # error lines for the log
        self.kicks: set[str | None] = set()
        self.changes: list[tuple[int, str, str | None]] = []    # place in the responses, command, correlation
        self.saved = False          # the other workers must take the change
        self.correlation: str | None = None     # stays for entries without a command, as in Mosquitto
        self._find_connections = connections
        self._found: dict[str, list[tuple[str, str]]] | None = None

    def commands(self, payload: bytes) -> "list[Any]":
        """Return the commands of a payload, or a list of one RefusedError if the payload has no commands."""
        try:
            tree = parse(payload)
        except ValueError:
            return [RefusedError("Payload not valid JSON")]
        commands = tree.get("commands") if isinstance(tree, dict) else None
        return commands if isinstance(commands, list) else [RefusedError("Invalid/missing commands")]

    def run(self, fields: "Any", hashed: "Hash | None") -> bool:
        """Run one command. Return False if the rest is not run."""
        wrong = self._wrong(fields)
        if wrong is not None:
            self.responses.add(wrong)
            return False
        name: str = fields["command"]
        done = COMMANDS.get(name.lower()) if name.isascii() else None
        if done is None:
            self.responses.add(self._reply(name, UNKNOWN))
            return True
        context = Context(self.state, fields, self._connections, hashed)
        try:
            data = done(context)
        except RefusedError as refused:
            self.responses.add(self._reply(name, str(refused)))
            return True
        except Exception as error:              # our defect; the command's changes apply, so that rules and state agree
            self.errors.append(f"{context.answers_as or name.lower()}: {type(error).__name__}")
            self._changed(name)
            self.responses.add(self._reply(name, INTERNAL))
            return True
        finally:
            self.kicks |= context.kicks
        if context.changes:
            self._changed(name)
        self.lines += [printable(f"dynsec: {self.client} | {line}") for line in context.lines]
        response: dict[str, Any] = {"command": context.answers_as or name}
        if data is not None:
            response["data"] = data
        self.responses.add(self._correlated(response))
        return True

    def answers(self) -> "Messages":
        """Return the response as a message."""
        return [(f"{TOPIC}/response", self.responses.payload())]

    def not_in_force(self, error: str = INTERNAL) -> None:
        """Answer the commands that changed something with an error: their rules are not in force."""
        for place, name, correlation in self.changes:
            self.correlation = correlation
            self.responses[place] = self._reply(name, error)

    def _wrong(self, fields: "Any") -> "dict[str, Any] | None":
        if isinstance(fields, RefusedError):
            return self._reply(UNKNOWN, str(fields))
        if not isinstance(fields, dict):
            return self._reply(UNKNOWN, "Command not an object")
        name = fields.get("command")
        if not isinstance(name, str):
            return self._reply(UNKNOWN, "Missing command")
        self.correlation = None
        correlation = fields.get("correlationdata")
        if "correlationdata" in fields and not isinstance(correlation, str):
            return self._reply(name, "Invalid correlationData data type.")
        self.correlation = correlation
        return self._reply(name, TOO_MANY) if self.responses.is_full() else None

    def _changed(self, name: str) -> None:
        self.changes.append((len(self.responses), name, self.correlation))
        self.state.change_index += 1

    def _connections(self) -> "dict[str, list[tuple[str, str]]]":
        if self._found is None:
            self._found = self._find_connections()
        return self._found

    def _reply(self, name: str, error: str) -> "dict[str, Any]":
        return self._correlated({"command": name, "error": error})

    def _correlated(self, response: "dict[str, Any]") -> "dict[str, Any]":
        if self.correlation is not None:
            response["correlationData"] = self.correlation
        return response


def _passwords(commands: "list[Any]") -> dict[int, bytes]:
    """Return the passwords that the commands will set unless they are refused, by the index of the command."""
    found = {}
    for place, fields in enumerate(commands[:HASHED_MAX]):
        name = fields.get("command") if isinstance(fields, dict) else None
        if isinstance(name, str) and name.lower() in SET_PASSWORDS:
            password = text(fields, "password")
            if password is not None:
                found[place] = raw(password)
    return found


def printable(line: str) -> str:
    """Return one line without control characters, for the log."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line[:LINE_CHARS_MAX])
    return plain.encode("utf-8", "backslashreplace").decode()
