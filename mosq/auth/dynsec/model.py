"""Clients, groups, roles and their memberships. Knows the names and orders of Mosquitto's plugin; not JSON, files or
commands.

Invariant: only the methods of State change a membership, and they change both of its ends. The order of a list follows
from priorities and names: higher priorities first, then names by their bytes.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set

    from mosq.auth.hashes import Hash

PRIORITY_MAX = 100_000
NO_PRIORITY = -1                # a membership without a priority; not written to the file
# in the order of the data plane (cext/broker/rules/roles.pxd)
SEND, RECEIVE, SUBSCRIBE, UNSUBSCRIBE, SUBSCRIBE_LITERAL, UNSUBSCRIBE_LITERAL = range(6)
# names in the file, in Mosquitto's order
KINDS = {"publishClientSend": SEND, "publishClientReceive": RECEIVE, "subscribeLiteral": SUBSCRIBE_LITERAL,
         "subscribePattern": SUBSCRIBE, "unsubscribeLiteral": UNSUBSCRIBE_LITERAL, "unsubscribePattern": UNSUBSCRIBE}
BY_LOWER = {name.lower(): kind for name, kind in KINDS.items()}
DEFAULTS = ("publishClientSend", "publishClientReceive", "subscribe", "unsubscribe")


class Client:
    """`hash` None: no password is accepted. `unread`: a hash in the file that cannot be used, and that is kept in
    it."""

    __slots__ = ("username", "hash", "unread", "clientid", "textname", "textdescription", "disabled", "roles", "groups")

    def __init__(self, username: str) -> None:
        self.username = username
        self.hash: Hash | None = None
        self.unread: str | None = None
        self.clientid: str | None = None
        self.textname: str | None = None
        self.textdescription: str | None = None
        self.disabled = False
        self.roles: dict[str, int] = {}         # name -> priority
        self.groups: dict[str, int] = {}


class Group:
    """A group of clients with roles."""
    __slots__ = ("groupname", "textname", "textdescription", "roles", "clients")

    def __init__(self, groupname: str) -> None:
        self.groupname = groupname
        self.textname: str | None = None
        self.textdescription: str | None = None
        self.roles: dict[str, int] = {}
        self.clients: dict[str, int] = {}


class Rule:
    """A rule of a role: topic, priority, allow or deny."""
    __slots__ = ("topic", "priority", "allow")

    def __init__(self, topic: str, priority: int, allow: bool) -> None:
        self.topic, self.priority, self.allow = topic, priority, allow


class Rules:
    """The rules of one role: for each kind at most one rule per topic."""

    __slots__ = ("by_kind",)

    def __init__(self) -> None:
        self.by_kind: dict[int, dict[str, Rule]] = {}       # only kinds with rules: most roles use one or two

    def add(self, kind: int, rule: Rule) -> bool:
        """Add a rule; return False if the topic has one already."""
        return self.by_kind.setdefault(kind, {}).setdefault(rule.topic, rule) is rule

    def find(self, kind: int, topic: str) -> Rule | None:
        """Return the rule of a topic, or None."""
        return self.by_kind.get(kind, {}).get(topic)

    def remove(self, kind: int, topic: str) -> bool:
        """Remove a rule; return False if the topic has none."""
        rules = self.by_kind.get(kind, {})
        found = rules.pop(topic, None) is not None
        if found and not rules:
            del self.by_kind[kind]
        return found

    def ordered(self, kind: int) -> list[Rule]:
        """Return the rules by descending priority; of equal priority, the older one first."""
        return sorted(self.by_kind.get(kind, {}).values(), key=lambda rule: -rule.priority)


NONE: "frozenset[str]" = frozenset()        # one for all: most roles have no direct member, or no group


def with_name(names: "Set[str]", name: str) -> "set[str]":
    """Return the set with the name, which is the same object unless it was NONE."""
    if not isinstance(names, set):
        return {name}
    names.add(name)
    return names


def without_name(names: "Set[str]", name: str) -> "Set[str]":
    """Return the set without the name; NONE if it was the last."""
    if isinstance(names, set):
        names.discard(name)
    return names or NONE


class Role:
    """A role: rules for topics."""
    __slots__ = ("rolename", "textname", "textdescription", "wildcards", "rules", "clients", "groups")

    def __init__(self, rolename: str) -> None:
        self.rolename = rolename
        self.textname: str | None = None
        self.textdescription: str | None = None
        self.wildcards = True                   # whether clients with the role may subscribe with wildcards
        self.rules = Rules()
        self.clients: Set[str] = NONE           # clients that have the role directly
        self.groups: Set[str] = NONE


def in_order(memberships: dict[str, int]) -> list[tuple[str, int]]:
    """Return (name, priority), highest priority first. Code points sort like their UTF-8."""
    return sorted(memberships.items(), key=lambda entry: (-entry[1], entry[0]))


class State:
    """All clients, groups and roles."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.groups: dict[str, Group] = {}
        self.roles: dict[str, Role] = {}
        self.anonymous: str | None = None       # the group of clients without a user name
        self.defaults = dict.fromkeys(DEFAULTS, False)
        self.change_index = 0

    # ---- memberships; False: it exists already

    def give_client_role(self, client: Client, role: Role, priority: int) -> bool:
        if role.rolename in client.roles:
            return False
        client.roles[role.rolename] = priority
        role.clients = with_name(role.clients, client.username)
        return True

    def take_client_role(self, client: Client, role: Role) -> None:
        client.roles.pop(role.rolename, None)
        role.clients = without_name(role.clients, client.username)

    def give_group_role(self, group: Group, role: Role, priority: int) -> bool:
        if role.rolename in group.roles:
            return False
        group.roles[role.rolename] = priority
        role.groups = with_name(role.groups, group.groupname)
        return True

    def take_group_role(self, group: Group, role: Role) -> None:
        group.roles.pop(role.rolename, None)
        role.groups = without_name(role.groups, group.groupname)

    def join(self, client: Client, group: Group, priority: int) -> bool:
        if client.username in group.clients:
            return False
        group.clients[client.username] = priority
        client.groups[group.groupname] = priority
        return True

    def leave(self, client: Client, group: Group) -> None:
        group.clients.pop(client.username, None)
        client.groups.pop(group.groupname, None)

    # ---- removals

    def remove_client(self, client: Client) -> None:
        """Remove a client and its memberships."""
        for name in list(client.groups):
            self.leave(client, self.groups[name])
        for name in list(client.roles):
            self.take_client_role(client, self.roles[name])
        del self.clients[client.username]

    def remove_group(self, group: Group) -> None:
        """Remove a group and its memberships."""
        for name in list(group.clients):
            self.leave(self.clients[name], group)
        for name in list(group.roles):
            self.take_group_role(group, self.roles[name])
        del self.groups[group.groupname]

    def remove_role(self, role: Role) -> None:
        """Remove a role and its memberships."""
        for name in list(role.clients):
            self.take_client_role(self.clients[name], role)
        for name in list(role.groups):
            self.take_group_role(self.groups[name], role)
        del self.roles[role.rolename]

    # ---- users affected by a change; None stands for clients without a user name

    def members(self, group: Group) -> set[str | None]:
        """Return the users of a group; None among them stands for clients without a user name."""
        users: set[str | None] = set(group.clients)
        if group.groupname == self.anonymous:
            users.add(None)
        return users

    def holders(self, role: Role) -> set[str | None]:
        """Return the users that have a role, directly or through a group; None as in `members`."""
        users: set[str | None] = set(role.clients)
        for name in role.groups:
            users |= self.members(self.groups[name])
        return users
