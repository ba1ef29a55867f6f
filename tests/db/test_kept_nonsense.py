"""Random nonsense that a persistence plugin restores: it makes a store that has no contradiction, and each refused part has a line or is
counted."""

import random
from types import SimpleNamespace

import pytest

from mosq._core import Engine
from mosq.tools.db import kept as k
from mosq.tools.db.kept import REFUSED_LINES, Kept
from mosq.tools.db.mosquitto_import import Import
from mosq.tools.db.store import write_store

CLIENTS = [b"ann", b"bob", b"", b"bad \xff", b"nobody"]
TOPICS = [b"a", b"a/b", b"a/+", b"", b"\xff", b"#", b"$share/g/a", b"007"]
EVENTS = [k.BASE_ADD, k.BASE_DELETE, k.RETAIN_SET, k.RETAIN_DELETE, k.CLIENT_ADD, k.CLIENT_DELETE, k.CLIENT_UPDATE, k.SUB_ADD, k.SUB_DELETE,
          k.MESSAGE_ADD, k.MESSAGE_DELETE, k.MESSAGE_UPDATE, k.MESSAGE_CLEAR, k.WILL_ADD, 99]
WEIGHTS = [9, 1, 3, 1, 4, 1, 1, 4, 1, 12, 1, 2, 1, 2, 1]


def nonsense(chance):
    """Return the fields of a part, most of them from few values, so that parts meet."""
    data = chance.choice((b"", b"x" * 20))
    return SimpleNamespace(
        client_id=chance.choice(CLIENTS), username=chance.choice((None, b"u", b"\xff")), topic=chance.choice(TOPICS), data_n=len(data),
        given_data=lambda: data, given_properties=lambda: chance.choice((b"", b"\x03\x00\x01t", b"\xff\xff")), store_id=chance.choice((0, 1, 2, 3, 2**64 - 1)),
        cmsg_id=chance.choice((0, 1, 2, 3, 2**64 - 1)), ends_s=chance.choice((0, 0, 1, -5, 2**62)), will_due_s=chance.choice((0, 2**40)),
        expiry_s=chance.choice((0, 60, 2**32 - 1)), will_delay_s=chance.choice((0, 5)), identifier=chance.choice((0, 7, 2**32 - 1)),
        pid=chance.choice((0, 1, 1, 2, 3, 65535)), port=chance.choice((0, 1883)), qos=chance.choice((0, 1, 2, 3)), retain=chance.choice((0, 1)),
        dup=chance.choice((0, 1)), direction=chance.choice((0, 1, 1, 2)), state=chance.choice((0, 1, 3, 5, 7, 9, 11, 200)),
        options=chance.choice((0, 1, 2, 0x3F, 255)))


@pytest.mark.parametrize("seed", range(40))
def test_nonsense_makes_no_contradictory_store(seed, tmp_path):
    chance, lines = random.Random(seed), []
    kept = Kept("plugin", lines.append)
    refused = 0
    for _ in range(200):
        event = chance.choices(EVENTS, WEIGHTS)[0]
        refused += kept.take(event, nonsense(chance)) != 0
    kept.report_rest()
    assert refused > REFUSED_LINES and len(lines) == REFUSED_LINES + 1
    assert f"{refused - REFUSED_LINES} more parts were not taken" in lines[-1]
    path = str(tmp_path / "store")
    write_store(path, Import(kept, 1000.0).records(), "a test", False, str(tmp_path))
    found = Engine({"sys_interval": 0}, [], [{}], []).persist(path, "group", 2)
    assert not found["odd"] and not found["n_lost"], found
