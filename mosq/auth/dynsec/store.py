"""The JSON file of dynamic security: read as Mosquitto 2.0 and 2.1 write it, written so that both can read it.

A file that is no such JSON is an error with a position and is never overwritten. Entries that Mosquitto ignores (a
repeated name, an unknown member) are ignored with a warning. The file is always written completely: a new file, fsync,
rename; only the broker's user may read it.
Cost: linear in the file, for each change.
"""

import json
import os
from collections.abc import Iterator

from mosq.auth.dynsec.model import (
    BY_LOWER,
    DEFAULTS,
    KINDS,
    NO_PRIORITY,
    PRIORITY_MAX,
    Client,
    Group,
    Role,
    Rule,
    State,
    in_order,
)
from mosq.auth.dynsec.reading import flag, is_filter, is_utf8, items, parse, raw, text, whole
from mosq.auth.hashes import PBKDF2, Hash, read_hash
from mosq.config.errors import ConfigError, Origin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from mosq.auth.dynsec.reading import Object

FILE_BYTES_MAX = 1 << 30
WARNINGS_MAX = 10
PLACES_SHOWN = 80


class FileError(ValueError):
    """The file is invalid."""


# ---------------------------------------------------------------- reading

def load(path: str, named_at: "Origin | None" = None) -> tuple[State, list[str]]:
    """Return (state, warnings). Raises FileNotFoundError if there is no file, else ConfigError."""
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
        if len(content) > FILE_BYTES_MAX:
            raise FileError(f"it is larger than {FILE_BYTES_MAX} bytes")
        return read(content)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"Unable to open the dynamic security file '{path}': {error.strerror}.", named_at) from None
    except FileError as error:
        raise ConfigError(f"Error in the dynamic security file '{path}': {error}. The file is unchanged; correct it or "
                          "restore a backup.", named_at) from None


def read(content: bytes) -> tuple[State, list[str]]:
    """Parse the contents of a file. Raises FileError."""
    if not content.strip(b" \t\r\n"):
        return State(), ["the dynamic security file is empty: no client can log in with it."]
    try:
        tree = parse(content)
    except json.JSONDecodeError as error:
        raise FileError(f"line {error.lineno}, column {error.colno}: {error.msg}; expected JSON") from None
    except ValueError as error:
        raise FileError(f"{error}; expected JSON") from None
    if not isinstance(tree, dict):
        raise FileError("expected an object with `clients`, `groups` and `roles`")
    return _Reading(tree).run()


class _Reading:
    """Builds the state from the JSON tree."""
    def __init__(self, tree: "Object") -> None:
        self.tree, self.state = tree, State()
        self.warnings: list[str] = []
        self.left_out = 0

    def run(self) -> tuple[State, list[str]]:
        state, tree = self.state, self.tree
        state.change_index = whole(tree, "changeIndex", 0)
        defaults = tree.get("defaultaclaccess")
        if isinstance(defaults, dict):
            state.defaults = {name: bool(flag(defaults, name)) for name in DEFAULTS}
        for fields, place in self.each(tree, "roles", "rolename", ""):
            self.role(fields, place)
        for fields, place in self.each(tree, "clients", "username", ""):
            self.client(fields, place)
        for fields, place in self.each(tree, "groups", "groupname", ""):
            self.group(fields, place)
        anonymous = text(tree, "anonymousGroup")
        if anonymous and anonymous not in state.groups:
            self.warn(f"anonymousGroup: there is no group '{shown(anonymous)}'")
        elif anonymous:
            state.anonymous = anonymous
        if self.left_out:
            self.warnings.append(f"the dynamic security file has {self.left_out} more ignored entries.")
        return state, self.warnings

    def warn(self, about: str) -> None:
        if len(self.warnings) < WARNINGS_MAX:
            self.warnings.append(f"dynamic security file: {about}; it is ignored.")
        else:
            self.left_out += 1

    def each(self, fields: "Object", name: str, key: str, inside: str) -> "list[tuple[Object, str]]":
        """Return (object, position) for the objects of a list. Each must have a name under `key`. Raises FileError."""
        if fields.get(name.lower()) is None:
            return []
        listed = items(fields, name)
        if listed is None:
            raise FileError(f"`{inside}{name}` is no list")
        found = []
        for i, one in enumerate(listed):
            place = f"{inside}{name}[{i}]"
            value = text(one, key) if isinstance(one, dict) else None
            if not value:
                raise FileError(f"`{place}` has no `{key}`; expected an object with a text that is not empty")
            if key != "acltype" and not is_utf8(value):
                raise FileError(f"the `{key}` of `{place}` is not UTF-8, or holds control characters")
            found.append((one, place))
        return found

    def name(self, fields: "Object", key: str, known: "dict[str, Any]", place: str) -> str | None:
        name = text(fields, key) or ""
        if name in known:
            self.warn(f"`{place}` repeats the {key} '{shown(name)}'")
            return None
        return name

    def role(self, fields: "Object", place: str) -> None:
        name = self.name(fields, "rolename", self.state.roles, place)
        if name is None:
            return
        role = self.state.roles[name] = Role(name)
        role.textname, role.textdescription = text(fields, "textname"), text(fields, "textdescription")
        role.wildcards = flag(fields, "allowwildcardsubs") is not False
        for rule, at in self.each(fields, "acls", "acltype", f"{place}."):
            kind = BY_LOWER.get((text(rule, "acltype") or "").lower())
            topic = text(rule, "topic")
            if kind is None or not topic:
                self.warn(f"`{at}` has no valid acltype or no topic")
            elif not add_rule(role, kind, rule, topic):
                self.warn(f"`{at}` is a second rule for this topic")
            elif not is_filter(topic):
                self.warnings.append(f"dynamic security file: `{at}`: '{shown(topic)}' is no topic filter and matches "
                                     "nothing.")

    def client(self, fields: "Object", place: str) -> None:
        name = self.name(fields, "username", self.state.clients, place)
        if name is None:
            return
        client = self.state.clients[name] = Client(name)
        client.disabled = bool(flag(fields, "disabled"))
        client.clientid = text(fields, "clientid") or None
        client.textname, client.textdescription = text(fields, "textname"), text(fields, "textdescription")
        encoded = encoded_password(fields)
        if encoded is not None:
            try:
                client.hash = read_hash(encoded)
            except ValueError as error:
                client.unread = encoded
                self.warnings.append(f"dynamic security file: `{place}`: '{shown(name)}' cannot log in, because the "
                                     f"password cannot be read: {error}.")
        for role, priority in self.members(fields, "roles", "rolename", self.state.roles, place):
            self.state.give_client_role(client, role, priority)

    def group(self, fields: "Object", place: str) -> None:
        name = self.name(fields, "groupname", self.state.groups, place)
        if name is None:
            return
        group = self.state.groups[name] = Group(name)
        group.textname, group.textdescription = text(fields, "textname"), text(fields, "textdescription")
        for role, priority in self.members(fields, "roles", "rolename", self.state.roles, place):
            self.state.give_group_role(group, role, priority)
        for client, priority in self.members(fields, "clients", "username", self.state.clients, place):
            self.state.join(client, group, priority)

    def members(self, fields: "Object", name: str, key: str, known: "dict[str, Any]", place: str
                ) -> "list[tuple[Any, int]]":
        found = []
        for one, at in self.each(fields, name, key, f"{place}."):
            member = text(one, key) or ""
            if member in known:
                priority = whole(one, "priority", NO_PRIORITY)
                found.append((known[member], max(-PRIORITY_MAX, min(PRIORITY_MAX, priority))))
            else:
                self.warn(f"`{at}`: there is no '{shown(member)}'")
        return found


def add_rule(role: Role, kind: int, fields: "Object", topic: str) -> bool:
    """Add the rule in the fields to a role; return False if its topic has one already."""
    priority = max(-PRIORITY_MAX, min(PRIORITY_MAX, whole(fields, "priority", 0)))
    return role.rules.add(kind, Rule(topic, priority, bool(flag(fields, "allow"))))


def encoded_password(fields: "Object") -> str | None:
    """Return the encoded password as Mosquitto 2.1 or 2.0 writes it; None if there is none."""
    encoded = text(fields, "encoded_password")
    if encoded is not None:
        return encoded
    password, salt, iterations = text(fields, "password"), text(fields, "salt"), whole(fields, "iterations", 0)
    if password is None or salt is None or iterations <= 0:
        return None
    return f"$7${iterations}${salt}${password}"


def shown(name: str) -> str:
    """Return a name for an error text, cut to PLACES_SHOWN characters."""
    return name[:PLACES_SHOWN].encode("utf-8", "backslashreplace").decode()


# ---------------------------------------------------------------- writing

def tree_of(state: State) -> "Object":
    """Return the JSON tree of the state."""
    return {name: list(value) if isinstance(value, Iterator) else value for name, value in members_of(state)}


def members_of(state: State) -> "Iterator[tuple[str, Any]]":
    """Return names and values of the file's object.

    Lists are iterators: the tree of all objects needs several times the memory of the file."""
    yield "changeIndex", state.change_index
    yield "defaultACLAccess", dict(state.defaults)
    yield "clients", (client_tree(state.clients[name]) for name in sorted(state.clients))
    yield "groups", (group_tree(state.groups[name]) for name in sorted(state.groups))
    if state.anonymous is not None:
        yield "anonymousGroup", state.anonymous
    yield "roles", (role_tree(state.roles[name]) for name in sorted(state.roles))


def client_tree(client: Client) -> "Object":
    """Return the JSON tree of a client as in the file, with its password hash."""
    tree = client_fields(client)
    tree["roles"] = role_list(client.roles)
    encoded = client.hash.encoded if client.hash is not None else client.unread
    if encoded is not None:
        tree["encoded_password"] = encoded
        tree |= password_of_2_0(client.hash)
    return tree


def password_of_2_0(hash: Hash | None) -> "Object":
    """Return the fields from which Mosquitto 2.0 reads the password; 2.1 reads only encoded_password."""
    if hash is None or hash.kind != PBKDF2:
        return {}
    _, _, _, salt, digest = hash.encoded.split("$")
    return {"password": digest, "salt": salt, "iterations": hash.iterations}


def group_tree(group: Group) -> "Object":
    """Return the JSON tree of a group as in the file."""
    tree = group_fields(group)
    tree["roles"] = role_list(group.roles)
    tree["clients"] = [{"username": name} if group.clients[name] == NO_PRIORITY
                       else {"username": name, "priority": group.clients[name]} for name in sorted(group.clients)]
    return tree


def role_tree(role: Role) -> "Object":
    """Return the JSON tree of a role, with its rules in order of their checks."""
    tree = without_none({"rolename": role.rolename, "textname": role.textname, "textdescription": role.textdescription})
    tree["allowwildcardsubs"] = role.wildcards
    tree["acls"] = [{"acltype": name, "topic": rule.topic, "priority": rule.priority, "allow": rule.allow}
                    for name, kind in KINDS.items() for rule in role.rules.ordered(kind)]
    return tree


def client_fields(client: Client) -> "Object":
    """Return the fields of a client that the file and the answers of commands share."""
    tree = without_none({"username": client.username, "clientid": client.clientid, "textname": client.textname,
                         "textdescription": client.textdescription})
    if client.disabled:
        tree["disabled"] = True
    return tree


def group_fields(group: Group) -> "Object":
    """Return the fields of a group that the file and the answers of commands share."""
    return without_none({"groupname": group.groupname, "textname": group.textname,
                         "textdescription": group.textdescription})


def role_list(roles: dict[str, int]) -> "list[Object]":
    """Return roles and priorities as a JSON list, highest priority first."""
    return [{"rolename": name} if priority == NO_PRIORITY else {"rolename": name, "priority": priority}
            for name, priority in in_order(roles)]


def without_none(tree: "Object") -> "Object":
    return {name: value for name, value in tree.items() if value is not None}


class Writer:
    """Writes the file. Caches the lines of clients, most of which do not change between writes."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lines: dict[str, tuple[object, bytes]] = {}

    def write(self, state: State) -> None:
        """Write the file. Raises OSError, and then the old file is unchanged."""
        replace(os.path.realpath(self.path), self.content(state))

    def content(self, state: State) -> "Iterator[bytes]":
        """Return the contents of the file in parts."""
        before, self._lines = self._lines, {}
        for name in sorted(state.clients):
            client = state.clients[name]
            key = (client.hash, client.unread, client.clientid, client.textname, client.textdescription,
                   client.disabled, *client.roles.items())
            line = before.get(name)
            if line is None or line[0] != key:
                line = key, raw(dumped(client_tree(client)))
            self._lines[name] = line
        lines = (line for _, line in self._lines.values())
        return document(members_of(state), lines)


def document(members: "Iterable[tuple[str, Any]]", clients: "Iterable[bytes]") -> "Iterator[bytes]":
    """Return the file's contents in parts, with each client, group and role on its own line for readers and diffs."""
    yield b"{"
    between = b"\n\t"
    for name, value in members:
        yield between + raw(dumped(name)) + b": "
        if isinstance(value, list | Iterator):
            yield from listed(clients if name == "clients" else (raw(dumped(one)) for one in value))
        else:
            yield raw(dumped(value))
        between = b",\n\t"
    yield b"\n}\n"


def listed(lines: "Iterable[bytes]") -> "Iterator[bytes]":
    """Return a JSON list in parts, one line for each item."""
    between = b"[\n\t\t"
    for line in lines:
        yield between + line
        between = b",\n\t\t"
    yield b"[]" if between[:1] == b"[" else b"\n\t]"


def dumped(value: "Any") -> str:
    return json.dumps(value, ensure_ascii=False)


def write(path: str, tree: "Object") -> None:
    """Write a tree to a file. Raises OSError, and then the old file is unchanged."""
    replace(os.path.realpath(path), content_of(tree))


def content_of(tree: "Object") -> "Iterator[bytes]":
    """Return the contents of a file in parts."""
    return document(tree.items(), (raw(dumped(client)) for client in tree.get("clients", ())))


def replace(path: str, content: "Iterable[bytes]") -> None:
    """Replace a file atomically; only the owner may read it. Raises OSError, and then the old file is unchanged."""
    new = f"{path}.new"
    try:
        os.unlink(new)          # after a crash within the rename it may be a second link to the file
    except FileNotFoundError:
        pass
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.writelines(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(new, path)
    except BaseException:
        os.unlink(new)
        raise
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    except OSError:             # some file systems refuse; the file itself is synced
        pass
    finally:
        os.close(folder)
