"""Decide access rule by rule, as Mosquitto does: a model that the tests compare the broker's decisions with.

Sources: mosquitto.conf(5) on `acl_file` and `mount_point`, [v5 4.7, 4.8.2]. The model shares no code with the broker.
"""

from __future__ import annotations

from collections.abc import Sequence

Rule = tuple[str | None, str, str, str]  # user or None, 'topic' | 'pattern', access, filter


def matches(pattern: str, topic: str) -> bool:
    if topic.startswith("$") and not pattern.startswith("$"):
        return False
    want, have = pattern.split("/"), topic.split("/")
    for i, level in enumerate(want):
        if level == "#":
            return True
        if i >= len(have) or (level not in ("+", have[i])):
            return False
    return len(want) == len(have)


def covers(outer: str, inner: str) -> bool:
    """Return whether `outer` matches every topic that `inner` matches."""
    if inner.startswith("$") and not outer.startswith("$"):
        return False
    a, b = outer.split("/"), inner.split("/")
    nameless = True
    for i, level in enumerate(a):
        if level == "#":
            return True
        if i >= len(b):
            return False
        if b[i] == "#":
            return nameless and level == "+" and a[i + 1:] == ["#"]
        if level not in ("+", b[i]):
            return False
        nameless = i == 0 and b[i] == ""
    return len(a) == len(b)


def overlaps(one: str, other: str) -> bool:
    """Return whether a topic exists that both filters match."""
    if one.startswith("$") != other.startswith("$"):
        return False
    a, b = one.split("/"), other.split("/")
    for i in range(max(len(a), len(b))):
        if i >= len(a):
            return b[i:] == ["#"]
        if i >= len(b):
            return a[i:] == ["#"]
        if "#" in (a[i], b[i]):
            return True
        if a[i] != b[i] and "+" not in (a[i], b[i]):
            return False
    return True


def unsafe(name: str | None) -> bool:
    return name is not None and ("+" in name or "#" in name)


class Model:
    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules

    def parts(self, user: str | None, client_id: str) -> list[list[tuple[str, str]]]:
        """Return (access, filter) of the client's own rules, then of the patterns with user name and client id filled in."""
        own = [(access, text) for who, kind, access, text in self.rules if kind == "topic" and who == user]
        patterns = [(access, text) for _, kind, access, text in self.rules if kind == "pattern"]
        if unsafe(user) or unsafe(client_id):
            return [own]
        filled = []
        for access, text in patterns:
            levels = text.split("/")
            if user is None and "%u" in levels:
                continue
            made = "/".join(user or "" if x == "%u" else client_id if x == "%c" else x for x in levels)
            if made.startswith("$") == text.startswith("$"):        # a name does not make a pattern match `$` topics
                filled.append((access, made))
        return [own, filled]

    def allows(self, user: str | None, client_id: str, topic: str, wanted: str) -> bool:
        for part in self.parts(user, client_id):
            if any(access == "deny" and matches(text, topic) for access, text in part):
                return False
            if any(access in (wanted, "readwrite") and matches(text, topic) for access, text in part):
                return True
        return False

    def may_subscribe(self, user: str | None, client_id: str, pattern: str) -> bool:
        for part in self.parts(user, client_id):
            if any(access == "deny" and covers(text, pattern) for access, text in part):
                return False
            if any(access in ("read", "readwrite") and overlaps(text, pattern) for access, text in part):
                return True
        return False


class Site:
    """Decide what a client may do behind a listener with rules and a mount point, by topics and filters as the client writes them."""

    def __init__(self, rules: Sequence[Rule], mount: str, refuses: bool) -> None:
        self.model, self.mount, self.refuses = Model(rules), mount, refuses     # refuses: acl_refuse_subscribe

    def for_the_broker(self, topic: str) -> bool:
        """Return whether the broker answers a PUBLISH itself and routes it to no client."""
        return not self.mount and topic.startswith("$CONTROL/")

    def writes(self, user: str | None, client_id: str, topic: str) -> bool:
        return (self.for_the_broker(topic) or not reserved(self.mount + topic)) and self.model.allows(
            user, client_id, self.mount + topic, "write")

    def subscribes(self, user: str | None, client_id: str, pattern: str) -> bool:
        return not self.refuses or self.model.may_subscribe(user, client_id, self.mount + unshared(pattern))

    def reads(self, user: str | None, client_id: str, pattern: str, whole: str) -> bool:
        """Return whether a message whose topic has the name `whole` in the broker reaches a subscription."""
        return (self.subscribes(user, client_id, pattern) and matches(self.mount + unshared(pattern), whole)
                and self.model.allows(user, client_id, whole, "read"))


def unshared(pattern: str) -> str:
    return pattern.split("/", 2)[2] if pattern.startswith("$share/") else pattern


def reserved(whole: str) -> bool:
    """Return whether no client may write to a topic: of `$SYS` only bridges' states belong to clients."""
    if whole.startswith("$SYS"):
        return not matches("$SYS/broker/connection/+/state", whole)
    return whole.startswith(("$share", "$CONTROL/"))
