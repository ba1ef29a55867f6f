"""Test `mosq cluster check`: it finds nothing in a pair of nodes that serve, and each kind of damage that a test makes by a change of keys."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator

import pytest

import redis as client_library

from mosq.cli.commands import main
from mosq.cluster import scripts
from mosq.cluster.address import Address
from mosq.cluster.entries import entry_of, text_of
from mosq.cluster.registry import Registry
from mosq.server.storage import IN_REDIS, losses
from mosq.tools.cluster import check
from tests.cluster.servers import Redis
from tests.cluster.test_serving import publish
from tests.cluster.test_two_nodes import SECRET, Linked, shared_out, subscribed
from tests.harness.packets import Unsubscribe
from tests.workers.case import until

pytestmark = pytest.mark.part("redis")

TABLE, BEATS, NODES, FIGURES = (f"mosq:{{mosq}}:{name}" for name in ("workers", "beats", "announcements", "figures"))


@pytest.fixture(scope="module")
def linked() -> Iterator[Linked]:
    """Two nodes that serve, with sessions, messages and routes."""
    with Redis() as redis:
        running = Linked(redis)
        try:
            for node, prefix in zip(shared_out(running), ("f", "s"), strict=True):
                for name in running.ids(prefix):
                    subscribed(node, name, f"t/{name}", 1)
                publish(node.pinned(running.ids(f"p{prefix}")[0]), 1, 1)
            yield running
        finally:
            running.close()


@pytest.fixture
def run(linked: Linked, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, list[str]]]:
    """Provide run(), which returns the exit status and the differences."""
    secret = linked.nodes[0].dir / "secret"

    def run_check() -> tuple[int, list[str]]:
        status = main(["cluster", "check", f"redis://127.0.0.1:{linked.redis.port}", "--secret-file", str(secret), "--json"])
        out, err = capsys.readouterr()
        assert not err, err
        found = json.loads(out)
        assert (found["cluster"], found["workers"]) == ("mosq", 2)
        return status, found["differences"]

    return run_check


def test_a_reading_asks_once_for_each_thing(linked: Linked, monkeypatch: pytest.MonkeyPatch) -> None:
    registry, asked = Copy(linked).registry(), []
    run = Registry._run
    monkeypatch.setattr(Registry, "_run", lambda self, script, arguments, *more, **how: asked.append(script or " ".join(arguments)) or run(
        self, script, arguments, *more, **how))
    check.read(registry, linked.facts, "mosq")
    assert asked == [scripts.LOOK, f"HGETALL {FIGURES}", scripts.STORE, scripts.STORE]


def test_nothing_is_found_in_two_nodes_that_serve(linked: Linked, run: Callable[..., tuple[int, list[str]]]) -> None:
    # routes that come and go make no difference
    client = subscribed(linked.nodes[0], linked.ids("x")[0], "some/filter", 1)
    until(lambda: run() == (0, []), linked.nodes[0].log)
    client.send(Unsubscribe(2, ("some/filter",)))
    client.read_packet()
    until(lambda: run() == (0, []), linked.nodes[0].log)

    def noted() -> tuple[list[object], list[object]]:
        first, second = (json.loads(linked.redis.client.hget(FIGURES, place)) for place in (0, 1))
        return [first["routes"], first["links"]["1"][1:]], [second["links"]["0"][1:], second["routes"]]

    # each worker writes its figures at its own times, so they agree a moment later
    until(lambda: noted()[0] == noted()[1] and noted()[0][0] != [0, 0], lambda: str(noted()))


# ---- damage, in a copy of the keys: the nodes do not see it

COPY_DB = 1
NODES_ALIVE = {"a", "b"}
HEADER_BYTES = 4096


class Copy:
    """A copy of all keys of the cluster in another database of the same Redis."""

    def __init__(self, linked: Linked) -> None:
        self.id = linked.facts.id[:8]
        self.linked = linked
        self.client = client_library.Redis(port=linked.redis.port, db=COPY_DB, protocol=2)
        self.client.flushdb()
        for key in linked.redis.client.keys("mosq:*"):
            linked.redis.client.copy(key, key, destination_db=COPY_DB)

    def key(self, worker: int, what: str) -> str:
        return f"mosq:{{mosq:{self.id}:{worker}}}:{what}"

    def node_of(self, worker: int) -> str:
        """Return the node of a worker, from 1."""
        return entry_of(self.client.hget(TABLE, worker - 1).decode()).name

    def entry(self, worker: int, **changes: object) -> None:
        """Change the entry of a worker in the table."""
        entry = entry_of(self.client.hget(TABLE, worker - 1).decode())
        self.client.hset(TABLE, worker - 1, text_of(entry._replace(**changes)))

    def segment(self) -> tuple[str, str]:
        """Return the name of a segment of worker 1, and the key of its content."""
        names = {name.decode(): content.decode() for name, content in self.client.hgetall(self.key(1, "names")).items()}
        name = next(name for name in sorted(names) if "/segment." in name)
        return name, self.key(1, f"f:{names[name]}")

    def header(self, key: str, at: int, value: bytes) -> None:
        """Write into both copies of a segment's header."""
        for copy in (0, 2048):
            self.client.setrange(key, copy + at, value)

    def second_segment(self, base: int, store_id: bytes | None = None) -> None:
        """Add a segment to worker 1: a copy of its first one, with another number and base."""
        _, key = self.segment()
        other = self.key(1, "f:9999")
        self.client.set(other, self.client.get(key))
        self.header(other, 32, struct.pack("<QQ", 1 << 30, base))
        if store_id is not None:
            self.header(other, 16, store_id)
        self.client.hset(self.key(1, "names"), "/store/segment.009999", "9999")

    def end(self) -> int:
        """Return the lsn up to which the first segment of worker 1 reaches at most."""
        key = self.segment()[1]
        return struct.unpack("<Q", self.client.getrange(key, 40, 47))[0] + self.client.strlen(key) - HEADER_BYTES

    def figures(self, worker: int, change: Callable[[dict], object]) -> None:
        """Change the figures of a worker."""
        found = json.loads(self.client.hget(FIGURES, worker - 1))
        change(found)
        self.client.hset(FIGURES, worker - 1, json.dumps(found))

    def registry(self) -> Registry:
        """Return the data of the copy."""
        facts = self.linked.facts
        made = Registry(Address((("127.0.0.1", self.linked.redis.port),), db=COPY_DB), "mosq", "operator", "operator", facts.terms, secret=SECRET)
        made.open(facts.workers)
        return made


@pytest.fixture
def copy(linked: Linked) -> Iterator[Copy]:
    """A copy that is whole."""
    made: list[Copy] = []

    def whole() -> bool:
        made.append(Copy(linked))
        return check.differences(check.read(made[-1].registry(), linked.facts, "mosq"), linked.facts, "mosq", NODES_ALIVE) == []

    until(whole, linked.nodes[0].log)
    yield made[-1]
    for one in made:
        one.client.close()


def missing_content(copy: Copy) -> None:
    copy.client.delete(copy.segment()[1])


def foreign_content(copy: Copy) -> None:
    copy.client.set(copy.segment()[1], b"no segment")


def removed_content(copy: Copy) -> None:
    copy.client.hset(copy.key(1, "gone"), copy.segment()[1], "1")


def one_content_of_two_files(copy: Copy) -> None:
    name, key = copy.segment()
    copy.client.hset(copy.key(1, "names"), f"{name[:-1]}x", key.rpartition(":")[2])


def cut_content(copy: Copy) -> None:
    key = copy.segment()[1]
    copy.client.set(key, copy.client.get(key)[:-1])


DAMAGE: list[tuple[str, Callable[[Copy], object], str]] = [
    ("a node without a beat", lambda c: c.client.hdel(BEATS, "a"), "The node a has an announcement, and no beat."),
    ("a node without an announcement", lambda c: c.client.hdel(NODES, "a"), "The node a has a beat, and no announcement."),
    ("a damaged announcement", lambda c: c.client.hset(NODES, "a", "{"), "The announcement of the node a is damaged, or of a later version of mosq: all of them."),
    ("a large announcement", lambda c: c.client.hset(NODES, "a", "x" * 70000), "The announcement of the node a in Redis has 70000 bytes, and none has more than 65536"),
    ("a damaged beat", lambda c: c.client.hset(BEATS, "a", "r"), "The beat of the node a is damaged."),
    ("a silent node", lambda c: c.client.hset(BEATS, "c", "r 1") and c.client.hset(NODES, "c", "{}"), "The node c gives no sign of life."),
    ("two nodes of one address", lambda c: c.client.hset(NODES, "b", c.client.hget(NODES, "a")), "The nodes a and b announce the same address, "),
    ("a worker too many", lambda c: c.client.hset(TABLE, 7, "17"), "The table has an entry 7, which is no worker"),
    ("a damaged entry", lambda c: c.client.hset(TABLE, 0, "x y"), "The entry of worker 1 in the table is damaged."),
    ("a worker without a node", lambda c: c.entry(1, name="", run=""), "Worker 1 has no node."),
    ("an unknown node", lambda c: c.entry(1, name="z"), "Worker 1 belongs to z, which is no node of this cluster."),
    ("an earlier process", lambda c: c.entry(1, run="before"), "Worker 1 belongs to an earlier process of the node "),
    ("a lost store", lambda c: c.client.delete(c.key(1, "head")), "The store of worker 1 is missing: Redis has lost its sessions and messages."),
    ("files without a head", lambda c: c.client.delete(c.key(1, "head")), "The store of worker 1 has files, and no head."),
    ("a damaged head", lambda c: c.client.hset(c.key(1, "head"), "number", "x"), "The head of the store of worker 1 is damaged."),
    ("a lost claim", lambda c: c.entry(1, token=1), "The store of worker 1 was taken under a token that the table of workers does not have"),
    ("a store in other hands", lambda c: c.client.hset(c.key(1, "head"), "token", "1"), "The process of worker 1 has not taken its store: the table has a newer token"),
    ("a lost content", missing_content, "The content of /store/segment."),
    ("a content without its end", cut_content, "The content of /store/segment.000001 in the store of worker 1 has "),
    ("a content without a name", lambda c: c.client.hdel(c.key(1, "names"), c.segment()[0]), "The store of worker 1 has the content mosq:{mosq:"),
    ("a foreign content", foreign_content, "The content of /store/segment."),
    ("a removed content", removed_content, "The content of /store/segment."),
    ("one content of two files", one_content_of_two_files, "Two files of the store of worker 1 have one content: "),
    ("two stores", lambda c: c.second_segment(c.end(), b"x" * 16), "The store of worker 1 has segments of different stores."),
    ("a gap in the log", lambda c: c.second_segment(c.end() + 1), "The log in the store of worker 1 has a gap before /store/segment.009999"),
    ("no figures", lambda c: c.client.hdel(FIGURES, 0), "Worker 1 has noted no figures: "),
    ("damaged figures", lambda c: c.client.hset(FIGURES, 0, "{}"), "Worker 1 has damaged figures."),
    ("old figures", lambda c: c.figures(1, lambda f: f.update(token=1)), "Worker 1 has noted no figures since its start."),
    ("a link that is down", lambda c: c.figures(1, lambda f: f["links"]["1"].__setitem__(0, 0)), "The link from worker 1 to worker 2 is down."),
    ("a route too few", lambda c: c.figures(1, lambda f: f["links"]["1"].__setitem__(1, 0)), "Worker 1 has other routes of worker 2 (0, sum "),
    ("another route", lambda c: c.figures(2, lambda f: f.update(routes=[f["routes"][0], 5])), "Worker 1 has other routes of worker 2 ("),
]


@pytest.mark.parametrize(("damage", "text"), [pytest.param(*row[1:], id=row[0]) for row in DAMAGE])
def test_damage_is_found(copy: Copy, damage: Callable[[Copy], object], text: str, capsys: pytest.CaptureFixture[str],
                         monkeypatch: pytest.MonkeyPatch) -> None:
    damage(copy)
    monkeypatch.setattr(check, "alive_of", lambda *_: NODES_ALIVE)
    monkeypatch.setattr(check, "PAUSE_LEASES", 0)
    where = f"redis://127.0.0.1:{copy.linked.redis.port}/{COPY_DB}"
    status = main(["cluster", "check", where, "--secret-file", str(copy.linked.nodes[0].dir / "secret")])
    lines = capsys.readouterr().out.splitlines()
    assert status == 1
    assert any(line.startswith(f"! {text}") for line in lines), lines
    assert lines[-1].startswith("cluster mosq: 2 workers, ")


def test_a_segment_that_follows_without_a_gap_is_no_difference(copy: Copy) -> None:
    copy.second_segment(copy.end())
    assert check.differences(check.read(copy.registry(), copy.linked.facts, "mosq"), copy.linked.facts, "mosq", NODES_ALIVE) == []


def test_a_difference_that_does_not_stand_is_not_reported(copy: Copy) -> None:
    entry = copy.client.hget(TABLE, 0)
    copy.entry(1, name="z")
    pauses: list[float] = []

    def pause(long_s: float) -> None:
        pauses.append(long_s)
        copy.client.hset(TABLE, 0, entry)

    assert check.standing(copy.registry(), copy.linked.facts, "mosq", NODES_ALIVE, pause) == []
    assert pauses == [1.5 * copy.linked.facts.terms.lease_s]


def test_the_log_names_this_command_for_a_damaged_store() -> None:
    found = {"n_lost": 1, "lost": [(5, 9)], "lost_bytes": 3, "odd": 0, "denied": 0, "unreadable": 0, "foreign": 0}
    [line] = losses(f"mosq:id:1{IN_REDIS}", found)
    assert line == "1 damaged places in mosq:id:1 in Redis: the records at lsn 5 to 9 are lost (3 bytes). `mosq cluster check` shows more."
