"""From clients, groups and roles to what the data plane asks (cext/setup/roles.pyx). Knows the order in which roles are
asked; not how rules are matched.

A client's roles come first, by priority; then those of his groups, by the group's priority and then the role's. A role
that has said nothing says nothing the second time, so each is asked once.
"""

from mosq.dynsec.model import DEFAULTS, KINDS, Role, State, in_order
from mosq.dynsec.reading import is_filter, is_utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LITERALS = (KINDS["subscribeLiteral"], KINDS["unsubscribeLiteral"])
# of the data plane: 1 read, 2 write, 4 subscribe, 8 unsubscribe; in the order of DEFAULTS
BITS = (2, 1, 4, 8)


def compiled(state: State) -> "dict[str, Any]":
    places = {name: i for i, name in enumerate(state.roles)}
    of_group = {group.groupname: [places[name] for name, _ in in_order(group.roles)]
                for group in state.groups.values()}
    profiles: dict[tuple[int, ...], int] = {}
    known: dict[tuple[object, ...], int] = {}       # most clients are like another one

    def profile(roles: dict[str, int], groups: dict[str, int]) -> int:
        like = (*roles.items(), None, *groups.items())
        place = known.get(like)
        if place is None:
            place = known[like] = new_profile(roles, groups)
        return place

    def new_profile(roles: dict[str, int], groups: dict[str, int]) -> int:
        asked = [places[name] for name, _ in in_order(roles)] if roles else []
        if groups:
            for name, _ in in_order(groups):
                asked += of_group[name]
            asked = list(dict.fromkeys(asked))
        return profiles.setdefault(tuple(asked), len(profiles))

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
    """Without those that no topic can match."""
    found = []
    for kind in range(len(KINDS)):
        rules = [(rule.topic, rule.allow) for rule in role.rules.ordered(kind) if is_utf8(rule.topic)]
        found.append(rules if kind in LITERALS else [rule for rule in rules if is_filter(rule[0])])
    return found
