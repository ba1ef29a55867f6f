"""Test that the compiled rules decide as Mosquitto's algorithm for all clients, groups, roles, priorities, topics and filters."""

from __future__ import annotations

import random

import pytest

from cext.testing.roles_api import PyRoles
from mosq.auth.dynsec.compiled import compiled, may_use
from mosq.auth.dynsec.model import DEFAULTS, KINDS, Client, Group, Role, Rule, State
from tests.dynsec.naive import READ, SUB, UNSUB, WRITE, verdict

USERS = ("ann", "bob", "a/b", "+", "#", "$a", "x" * 30)
LEVELS = ("", "a", "b", "$a", "$SYS", "$CONTROL", "$CONTROLx", "ann", "bob", "x" * 30, "$share", "%ux")
PRIORITIES = (-100, -1, -1, 0, 0, 3, 100_000)
ROLES = ("r1", "r2", "r3", "r4")
GROUPS = ("g1", "g2", "g3")


def path(dice: random.Random, *more: str) -> str:
    """Return short words of few letters, so that they collide."""
    made = [dice.choice((*LEVELS, "a", "b", *more)) for _ in range(dice.randint(1, 4))]
    if "+" in more and dice.random() < 0.25:
        made.append("#")
    return "/".join(made) or "a"


def memberships(dice: random.Random, names: tuple[str, ...]) -> dict[str, int]:
    return {name: dice.choice(PRIORITIES) for name in dice.sample(names, dice.choice((0, 1, 1, 2, 3)))}


def state_of(dice: random.Random) -> State:
    state = State()
    state.defaults = {name: dice.random() < 0.5 for name in DEFAULTS}
    for name in ROLES:
        role = state.roles[name] = Role(name)
        role.wildcards = dice.random() < 0.8
        for _ in range(dice.randint(0, 16)):
            topic = path(dice, "+", "+", "%u", "%c")
            role.rules.add(dice.choice(list(KINDS.values())), Rule(topic, dice.choice(PRIORITIES), dice.random() < 0.5))
    for name in GROUPS:
        group = state.groups[name] = Group(name)
        for role_name, priority in memberships(dice, ROLES).items():
            state.give_group_role(group, state.roles[role_name], priority)
    for name in dice.sample(USERS, 3):
        client = state.clients[name] = Client(name)
        for role_name, priority in memberships(dice, ROLES).items():
            state.give_client_role(client, state.roles[role_name], priority)
        for group_name, priority in memberships(dice, GROUPS).items():
            state.join(client, state.groups[group_name], priority)
    state.anonymous = dice.choice((None, "g1"))
    return state


@pytest.mark.parametrize("part", range(4))
def test_same_verdicts_as_mosquittos_algorithm(part: int) -> None:
    counts = {-1: 0, 0: 0, 1: 0}
    for seed in range(part * 200, part * 200 + 200):
        dice = random.Random(seed)
        state = state_of(dice)
        made = PyRoles(compiled(state))
        client_id = dice.choice(("c", "ann", "+", ""))
        asked = [(path(dice), access) for access in (READ, WRITE) for _ in range(8)]
        asked += [(path(dice, "+"), access) for access in (SUB, UNSUB) for _ in range(8)]
        for user in (None, "nobody", *state.clients):
            name = None if user is None else user.encode()
            for wanted, access in asked:
                said = verdict(state, user, client_id, wanted, access)
                counts[said] += 1
                assert made.verdict(name, client_id.encode(), wanted.encode(), access) == said, (seed, user, wanted, access)
                if access in (READ, WRITE):
                    assert may_use(state, user, client_id, wanted, access) == (None if said < 0 else bool(said)), (seed, user, wanted)
    assert min(counts.values()) > 500      # the test has enough cases


@pytest.mark.parametrize(("kind", "pattern", "wanted", "access", "matches"), [
    ("publishClientSend", "a/#", "a", WRITE, True),
    ("publishClientSend", "a/+", "a/", WRITE, True),
    ("publishClientSend", "+/+", "/a", WRITE, True),
    ("publishClientSend", "#", "$SYS/x", WRITE, False),
    ("publishClientSend", "$SYS/#", "$SYS/x", WRITE, True),
    ("publishClientReceive", "%u/in", "ann/in", READ, True),
    ("publishClientReceive", "%c/in", "ann/in", READ, False),
    ("publishClientReceive", "%c/#", "c", READ, True),
    ("publishClientReceive", "x%c/#", "xc", READ, False),
    ("subscribePattern", "a/+", "a/#", SUB, False),
    ("subscribePattern", "a/+", "a/+", SUB, True),
    ("subscribePattern", "a/#", "a/+/b", SUB, True),
    ("subscribePattern", "#", "$share/g/a", SUB, False),
    ("subscribePattern", "$share/g/#", "$share/g/a", SUB, True),
    ("subscribeLiteral", "a/#", "a/b", SUB, False),
    ("subscribeLiteral", "a/#", "a/#", SUB, True),
    ("subscribeLiteral", "%u", "ann", SUB, False),
    ("unsubscribePattern", "+", "a", UNSUB, True),
    ("unsubscribeLiteral", "a", "a", UNSUB, True),
    ("unsubscribeLiteral", "a", "a", SUB, False),
])
def test_single_rules(kind: str, pattern: str, wanted: str, access: int, matches: bool) -> None:
    state = State()
    role = state.roles["r"] = Role("r")
    role.rules.add(KINDS[kind], Rule(pattern, 0, True))
    client = state.clients["ann"] = Client("ann")
    state.give_client_role(client, role, -1)
    assert PyRoles(compiled(state)).verdict(b"ann", b"c", wanted.encode(), access) == (1 if matches else -1)
    assert verdict(state, "ann", "c", wanted, access) == (1 if matches else -1)


def test_very_many_users_and_rules() -> None:
    """Test growing tables: every user and rule is found again, and nothing else."""
    state = State()
    for i in range(300):
        role = state.roles[f"r{i}"] = Role(f"r{i}")
        for j in range(20):
            role.rules.add(KINDS["publishClientSend"], Rule(f"site/{i}/{j}/+", j, j % 3 > 0))
    for i in range(3000):
        client = state.clients[f"user{i}"] = Client(f"user{i}")
        state.give_client_role(client, state.roles[f"r{i % 300}"], -1)
    made = PyRoles(compiled(state))
    for i in range(0, 3000, 7):
        for j in (0, 1, 19, 20):
            assert made.verdict(f"user{i}".encode(), b"c", f"site/{i % 300}/{j}/x".encode(), WRITE) == (
                -1 if j == 20 else int(j % 3 > 0))
    assert made.verdict(b"user3000", b"c", b"site/0/1/x", WRITE) == -1


@pytest.mark.parametrize("broken", [
    {"profiles": [(1,)]}, {"users": {"a": 1}}, {"anonymous": 5}, {"roles": [(False, [])]}, {"roles": [(False, [[("a#", True)], [], [], [], [], []])]},
])
def test_invalid_roles_are_refused(broken: dict[str, object]) -> None:
    spec = {"defaults": 0, "roles": [(False, [[]] * 6)], "profiles": [(0,)], "users": {}, "anonymous": -1}
    PyRoles(spec)
    with pytest.raises(ValueError):
        PyRoles({**spec, **broken})
