"""Make Mosquitto's decision in the simplest way: the first rule that matches, role by role and rule by rule in order.

The compiled rules are compared with it.
"""

from __future__ import annotations

from mosq.auth.dynsec.model import RECEIVE, SEND, SUBSCRIBE, SUBSCRIBE_LITERAL, UNSUBSCRIBE, UNSUBSCRIBE_LITERAL, Role, State

READ, WRITE, SUB, UNSUB = 1, 2, 4, 8
DEFAULT_OF = {WRITE: "publishClientSend", READ: "publishClientReceive", SUB: "subscribe", UNSUB: "unsubscribe"}


def covers(pattern: str, wanted: str, user: str | None, client_id: str) -> bool:
    """Return whether a pattern matches a topic, or includes a filter, as far as Mosquitto checks this."""
    if pattern.startswith("$") != wanted.startswith("$"):
        return False
    asked, have = pattern.split("/"), wanted.split("/")
    for i, level in enumerate(asked):
        if level == "#":
            return True
        if i >= len(have):
            return False
        if level in ("%u", "%c"):
            name = user if level == "%u" else client_id
            if not name or name in ("+", "#") or name != have[i]:
                return False
        elif level == "+":
            if have[i] == "#":
                return False
        elif level != have[i]:
            return False
    return len(asked) == len(have)


def verdict_of_role(role: Role, topic: str, access: int, user: str | None, client_id: str) -> bool | None:
    if access in (SUB, UNSUB):
        if access == SUB and not role.wildcards and ("+" in topic or "#" in topic):
            return False
        literal, kind = (SUBSCRIBE_LITERAL, SUBSCRIBE) if access == SUB else (UNSUBSCRIBE_LITERAL, UNSUBSCRIBE)
        rule = role.rules.find(literal, topic)
        if rule is not None:
            return rule.allow
    else:
        kind = RECEIVE if access == READ else SEND
    rules = list(role.rules.by_kind.get(kind, {}).values())
    rules.sort(key=lambda rule: -rule.priority)
    for rule in rules:
        if covers(rule.topic, topic, user, client_id):
            return rule.allow
    return None


def by_priority(memberships: dict[str, int]) -> list[str]:
    names = sorted(memberships)
    names.sort(key=lambda name: -memberships[name])
    return names


def verdict(state: State, user: str | None, client_id: str, topic: str, access: int) -> int:
    """Return 1 if allowed, 0 if a rule denies it, -1 if no rule matches, which also denies it."""
    if user is not None:
        if user not in state.clients:
            return -1
        client = state.clients[user]
        lists = [client.roles, *(state.groups[name].roles for name in by_priority(client.groups))]
    else:
        lists = [] if state.anonymous is None else [state.groups[state.anonymous].roles]
    for roles in lists:
        for name in by_priority(roles):
            said = verdict_of_role(state.roles[name], topic, access, user, client_id)
            if said is not None:
                return int(said)
    return 1 if state.defaults[DEFAULT_OF[access]] and not topic.startswith("$CONTROL") else -1
