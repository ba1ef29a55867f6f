"""$CONTROL/dynamic-security/v1: commands as JSON, answered in the words of Mosquitto 2.1.

    {"commands": [{"command": NAME, "correlationData": TEXT, ...}, ...]}
 -> {"responses": [{"command": NAME, ("error": TEXT | "data": {...}), "correlationData": TEXT}, ...]}

All commands of a message are done before the answer goes out: the new rules are in force then, and the file is on the
disk. Who lost or won rights is disconnected after it. Who may ask is the data plane's business. Invariant: a command is
done as a whole or not at all. No password reaches the log.
"""

import json

from mosq.config.options import LOG_TYPES
from mosq.dynsec import on_clients, on_groups, on_roles
from mosq.dynsec.doing import Doing, RefusedError
from mosq.dynsec.reading import parse, raw

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.admin.control import Asker, ControlTopics
    from mosq.dynsec.directory import Directory
    from mosq.engine import Engine

TOPIC = "$CONTROL/dynamic-security/v1"
INFORMATION, ERROR = LOG_TYPES["information"], LOG_TYPES["error"]
UNKNOWN = "Unknown command"     # also in place of a name that there is not
LINE_CHARS_MAX = 1000           # of the log
CONNECTIONS_MAX = 1000          # of one client, in an answer

COMMANDS: "dict[str, Callable[[Doing], dict[str, Any] | None]]" = {
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
    """Who answers for one configuration. `places`: of the securities that ask the directory."""

    def __init__(self, directory: "Directory", places: list[int], engine: "Callable[[], Engine]",
                 say: "Callable[[int, str], None]") -> None:
        self._directory, self._places, self._engine, self._say = directory, places, engine, say

    def add_to(self, topics: "ControlTopics") -> None:
        topics.add(TOPIC, self.answer)

    def answer(self, asker: "Asker", payload: bytes) -> list[tuple[str, bytes]]:
        if asker.security not in self._places:
            return []               # who comes through a listener that does not ask the directory is nobody to it
        message = _Message(self._directory, asker, self._connections)
        responses = message.run(payload)
        for line in message.lines:
            self._say(INFORMATION, line)
        if message.changed:
            self._take_effect()
        if message.kicks:
            asker.then.append(("kick", list(message.kicks)))
        text = json.dumps({"responses": responses}, ensure_ascii=False, separators=(",", ":"))
        return [(f"{TOPIC}/response", raw(text))]

    def _take_effect(self) -> None:
        try:
            self._engine().set_roles(self._directory.compiled(), self._places)
        finally:
            why = self._directory.save()
            if why is not None:
                self._say(ERROR, f"Error saving Dynamic security plugin config: {why}")

    def _connections(self) -> "dict[str, list[tuple[str, str]]]":
        """Of each user: (client id, address)."""
        found: dict[str, list[tuple[str, str]]] = {}
        for client in self._engine().clients():
            if client["username"] is not None:
                mine = found.setdefault(client["username"], [])
                if len(mine) < CONNECTIONS_MAX:
                    mine.append((client["id"], client["address"] or ""))
        return found


class _Message:
    """What was published once."""

    def __init__(self, directory: "Directory", asker: "Asker",
                 connections: "Callable[[], dict[str, list[tuple[str, str]]]]") -> None:
        self.state = directory.state
        self.who = f"{asker.client_id}/{asker.username if asker.username is not None else '(null)'}"
        self.find_connections = connections
        self.lines: list[str] = []
        self.kicks: set[str | None] = set()
        self.changed = False
        self.correlation: str | None = None     # stays for what comes without a command, as in Mosquitto

    def run(self, payload: bytes) -> "list[dict[str, Any]]":
        try:
            tree = parse(payload)
        except ValueError:
            return [self._reply(UNKNOWN, "Payload not valid JSON")]
        commands = tree.get("commands") if isinstance(tree, dict) else None
        if not isinstance(commands, list):
            return [self._reply(UNKNOWN, "Invalid/missing commands")]
        responses = []
        for command in commands:
            response, goes_on = self._do(command)
            responses.append(response)
            if not goes_on:
                break
        return responses

    def _do(self, of: "Any") -> "tuple[dict[str, Any], bool]":
        if not isinstance(of, dict):
            return self._reply(UNKNOWN, "Command not an object"), False
        name = of.get("command")
        if not isinstance(name, str):
            return self._reply(UNKNOWN, "Missing command"), False
        self.correlation = None
        correlation = of.get("correlationdata")
        if "correlationdata" in of and not isinstance(correlation, str):
            return self._reply(name, "Invalid correlationData data type."), False
        self.correlation = correlation
        done = COMMANDS.get(name.lower()) if name.isascii() else None
        if done is None:
            return self._reply(name, UNKNOWN), True
        doing = Doing(self.state, of, self.find_connections)
        try:
            data = done(doing)
        except RefusedError as refused:
            return self._reply(name, str(refused)), True
        finally:
            self.kicks |= doing.kicks
        if doing.changes:
            self.changed = True
            self.state.change_index += 1
        self.lines += [printable(f"dynsec: {self.who} | {line}") for line in doing.lines]
        response: dict[str, Any] = {"command": doing.answers_as or name}
        if data is not None:
            response["data"] = data
        return self._correlated(response), True

    def _reply(self, name: str, error: str) -> "dict[str, Any]":
        return self._correlated({"command": name, "error": error})

    def _correlated(self, response: "dict[str, Any]") -> "dict[str, Any]":
        if self.correlation is not None:
            response["correlationData"] = self.correlation
        return response


def printable(line: str) -> str:
    """One line, whatever names and texts hold."""
    plain = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line[:LINE_CHARS_MAX])
    return plain.encode("utf-8", "backslashreplace").decode()
