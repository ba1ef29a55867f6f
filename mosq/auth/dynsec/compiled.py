"""Compiles clients, groups and roles into the rules of the data plane (cext/setup/roles.pyx). Knows the order of roles,
not how rules are matched.

A client's own roles come first, by priority; then those of the client's groups, by the group's priority and then the
role's. A role without a verdict the first time has none the second time, so each role is checked once.
"""

from mosq.auth.dynsec.model import DEFAULTS, KINDS, RECEIVE, SEND, Role, State, in_order
from mosq.auth.dynsec.reading import is_filter, is_utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LITERALS = (KINDS["subscribeLiteral"], KINDS["unsubscribeLiteral"])
# bits of the data plane: 1 read, 2 write, 4 subscribe, 8 unsubscribe; in the order of DEFAULTS
BITS = (2, 1, 4, 8)
NO_RULES: list[tuple[str, bool]] = []       # one list for all: most roles have rules of one or two kinds


def compiled(state: State) -> "dict[str, Any]":
    """Return the rules as Engine.set_roles takes them."""
    places = {name: i for i, name in enumerate(state.roles)}
    of_group = {group.groupname: [places[name] for name, _ in in_order(group.roles)]
                for group in state.groups.values()}
    profiles: dict[tuple[int, ...], int] = {}
    known: dict[tuple[object, ...], int] = {}       # most clients have the roles and groups of another client

    def profile(roles: dict[str, int], groups: dict[str, int]) -> int:
        like = (*roles.items(), None, *groups.items())
        place = known.get(like)
        if place is None:
            place = known[like] = new_profile(roles, groups)
        return place

    def new_profile(roles: dict[str, int], groups: dict[str, int]) -> int:
        role_places = [places[name] for name, _ in in_order(roles)] if roles else []
        if groups:
            for name, _ in in_order(groups):
                role_places += of_group[name]
            role_places = list(dict.fromkeys(role_places))
        return profiles.setdefault(tuple(role_places), len(profiles))

    users = {name: profile(client.roles, client.groups) for name, client in state.clients.items()}
    anonymous = -1 if state.anonymous is None else profile({}, {state.anonymous: 0})
    return {
        "defaults": sum(bit for name, bit in zip(DEFAULTS, BITS, strict=True) if state.defaults[name]),
        "roles": [(not role.wildcards, _rules(role)) for role in state.roles.values()],
        "profiles": list(profiles),
        "users": users,
        "anonymous": anonymous,
    }


def _rules(role: Role) -> list[list[tuple[str, bool]]]:
    """Return the rules of each kind, without those that no topic can match."""
    found = []
    for kind in range(len(KINDS)):
        if kind not in role.rules.by_kind:
            found.append(NO_RULES)
            continue
        rules = [(rule.topic, rule.allow) for rule in role.rules.ordered(kind) if is_utf8(rule.topic)]
        found.append(rules if kind in LITERALS else [rule for rule in rules if is_filter(rule[0])])
    return found


def may_use(state: State, user: str | None, client_id: str, topic: str, access: int) -> bool | None:
    """Return the data plane's verdict about a message to a client (`access` 1) or from it (2), for the HTTP API, whose
    clients the data plane does not know. None: no rule matches, and the defaults do not allow it."""
    kind, default = (RECEIVE, "publishClientReceive") if access == 1 else (SEND, "publishClientSend")
    for role in roles_of(state, user):
        for rule in role.rules.ordered(kind):
            if is_filter(rule.topic) and matches(rule.topic, topic, user, client_id):
                return rule.allow
    is_known = user is None or user in state.clients
    return True if is_known and state.defaults[default] and not topic.startswith("$CONTROL") else None


def roles_of(state: State, user: str | None) -> list[Role]:
    """Return the roles of one user in the order in which they are checked."""
    client = state.clients.get(user) if user is not None else None
    groups = client.groups if client is not None else {}
    if user is None and state.anonymous is not None:
        groups = {state.anonymous: 0}
    names = [name for name, _ in in_order(client.roles)] if client is not None else []
    for group, _ in in_order(groups):
        names += [name for name, _ in in_order(state.groups[group].roles)]
    return [state.roles[name] for name in names]


def matches(pattern: str, topic: str, user: str | None, client_id: str) -> bool:
    """Return whether a rule's pattern matches a topic; %u and %c stand for user name and client id."""
    if pattern.startswith("$") != topic.startswith("$"):
        return False
    wanted, have = pattern.split("/"), topic.split("/")
    for i, level in enumerate(wanted):
        if level == "#":
            return True
        if i == len(have):
            return False
        expected = user or "" if level == "%u" else client_id if level == "%c" else level
        if level != "+" and (expected != have[i] or (level in ("%u", "%c") and not expected)):
            return False
    return len(wanted) == len(have)
