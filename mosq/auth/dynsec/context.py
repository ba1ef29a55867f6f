"""One running command: its fields, the state it works on, and its consequences. Knows Mosquitto's error texts for
missing or wrong fields, not what the commands do."""

from mosq.auth.dynsec.hashing import made
from mosq.auth.dynsec.model import NO_PRIORITY, PRIORITY_MAX, Client, Group, Role, State
from mosq.auth.dynsec.reading import flag, is_utf8, is_wrong, items, raw, text, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mosq.auth.dynsec.reading import Object
    from mosq.auth.hashes import Hash

WRONG_ROLES = "'roles' not an array or missing/invalid rolename"
LOWEST = -(2**31)


class RefusedError(Exception):
    """The command is refused; the text is the error of the response."""


class Context:
    """The fields of one command, the state that it changes, and the effects of the change."""
    def __init__(self, state: State, fields: "Object",
                 connections: "Callable[[], dict[str, list[tuple[str, str]]]]", hashed: "Hash | None" = None) -> None:
        """`hashed`: the hash of the command's password if it was computed in advance."""
        self.state, self.fields = state, fields
        self._connections, self._hashed = connections, hashed
        self.kicks: set[str | None] = set()     # users to disconnect; None: clients without a user name
        self.changes = False
        self.lines: list[str] = []              # lines for the log
        self.answers_as: str | None = None      # name in Mosquitto's spelling, for commands that return data

    def changed(self, line: str, kicks: "set[str | None] | None" = None) -> None:
        """Record a change: a log line, and the users to disconnect."""
        self.changes = True
        self.lines.append(line)
        self.kicks |= kicks or set()

    # ---- names

    def needed(self, name: str, missing: str, not_utf8: str | None = None) -> str:
        """Return a required text. Raises RefusedError."""
        value = text(self.fields, name)
        if value is None:
            raise RefusedError(missing)
        if not_utf8 is not None and not is_utf8(value):
            raise RefusedError(not_utf8)
        return value

    def optional(self, name: str, wrong: str) -> str | None:
        """Return an optional text. Raises RefusedError."""
        if is_wrong(self.fields, name):
            raise RefusedError(wrong)
        return text(self.fields, name)

    def new_name(self, name: str, what: str, is_none: str) -> str:
        """Return the name of an object that the command creates. Raises RefusedError."""
        value = self.needed(name, is_none)
        if not value:
            raise RefusedError(f"Empty {name}")
        if not is_utf8(value):
            raise RefusedError(f"{what} not valid UTF-8")
        return value

    def username(self) -> str:
        """Return the user name of the command. Raises RefusedError."""
        return self.needed("username", "Invalid/missing username", "Username not valid UTF-8")

    def groupname(self) -> str:
        """Return the group name of the command. Raises RefusedError."""
        return self.needed("groupname", "Invalid/missing groupname", "Group name not valid UTF-8")

    def rolename(self) -> str:
        """Return the role name of the command. Raises RefusedError."""
        return self.needed("rolename", "Invalid/missing rolename", "Role name not valid UTF-8")

    def texts(self) -> tuple[str | None, str | None]:
        """Return textname and textdescription, each None if missing. Raises RefusedError."""
        return (self.optional("textname", "Invalid/missing textname"),
                self.optional("textdescription", "Invalid/missing textdescription"))

    def retext(self, what: "Client | Group | Role") -> None:
        """Replace the texts of an object by those that are given."""
        textname, textdescription = text(self.fields, "textname"), text(self.fields, "textdescription")
        if textname is not None:
            what.textname = textname
        if textdescription is not None:
            what.textdescription = textdescription

    def set_password(self, client: Client, password: str) -> None:
        """Set a client's password, from the hash that was computed in advance if there is one."""
        client.hash, client.unread = self._hashed or made(raw(password)), None

    # ---- existing objects

    def client(self, name: str) -> Client:
        """Return an existing client. Raises RefusedError."""
        if name not in self.state.clients:
            raise RefusedError("Client not found")
        return self.state.clients[name]

    def group(self, name: str) -> Group:
        """Return an existing group. Raises RefusedError."""
        if name not in self.state.groups:
            raise RefusedError("Group not found")
        return self.state.groups[name]

    def role(self, name: str, otherwise: str = "Role not found") -> Role:
        """Return an existing role. Raises RefusedError with the text `otherwise`."""
        if name not in self.state.roles:
            raise RefusedError(otherwise)
        return self.state.roles[name]

    def priority(self, fields: "Object | None" = None, lowest: int = LOWEST) -> int:
        """Return the priority in the fields, limited to `lowest` and PRIORITY_MAX; NO_PRIORITY if it is missing."""
        return max(lowest, min(PRIORITY_MAX, whole(self.fields if fields is None else fields, "priority", NO_PRIORITY)))

    def roles(self, wrong: str = WRONG_ROLES) -> "dict[str, int] | None":
        """Return the roles of a list, each once; None if the command has no list. Raises RefusedError."""
        if "roles" not in self.fields:
            return None
        listed = items(self.fields, "roles")
        if listed is None:
            raise RefusedError(wrong)
        found: dict[str, int] = {}
        for one in listed:
            name = text(one, "rolename") if isinstance(one, dict) else None
            if name is None:
                raise RefusedError(wrong)
            found.setdefault(self.role(name).rolename, self.priority(one))
        return found

    # ---- lists

    def listing(self, names: "list[str]", many: str, describe: "Callable[[str], Object]") -> "Object":
        """Return the answer of a list command: names, or with `verbose` the objects."""
        verbose = bool(flag(self.fields, "verbose"))
        count, offset = whole(self.fields, "count", -1), whole(self.fields, "offset", 0)
        shown = names[max(0, offset):]
        if count >= 0:
            shown = shown[:max(1, count)]       # as in Mosquitto, at least one item is returned
        listed: list[Any] = [describe(name) for name in shown] if verbose else list(shown)
        self.answers_as = f"list{many.capitalize()}"
        self.lines.append(f"{self.answers_as} | verbose={'true' if verbose else 'false'} | count={count} | "
                          f"offset={offset}")
        return {"totalCount": len(names), many: listed}

    def connections(self, client: Client) -> "list[Object]":
        """Return the connections that the client has now."""
        return [{"address": address} for client_id, address in self._connections().get(client.username, ())
                if client.clientid is None or client_id == client.clientid]
