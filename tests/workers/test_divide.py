"""Compare stores that were divided and joined with a model that is a plain description of each session."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from mosq._core import record_decode, record_encode, scan, worker_place
from mosq.tools.db import kinds
from mosq.tools.db.commands import db
from mosq.tools.db.divide import Content, Division
from mosq.tools.db.partly import Spread
from mosq.tools.db.store import NewStore

MESSAGE = {"qos": 1, "retain": False, "retained_set": False, "expires_wall_ms": 0, "source_hash": 0, "props": b""}
ALONE = Spread(1, b"")


class Writer:
    """Write a store like a broker: with records that were replaced, ended sessions and numbers that are used again."""

    def __init__(self, path: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = NewStore(str(path), "a test")
        self.ids: dict[int, bytes] = {}         # living sessions
        self.tails: dict[int, int] = {}
        self.waiting: dict[int, dict[int, int]] = {}        # position: packet id
        self.free = list(range(1, 12))

    def add(self, kind: int, **fields: Any) -> None:
        self.store.add(kind, record_encode(kind, fields))

    def session(self, sno: int, connected: bool) -> None:
        self.add(kinds.SESSION, sno=sno, connected=connected, expiry_s=600, ends_wall_ms=0, next=self.tails[sno] // 2,
                 id=self.ids[sno], user=self.random.choice([None, b"user"]), security=0, mount=b"", last_pid=self.tails[sno])

    def message(self, topic: bytes) -> dict[str, Any]:
        size = self.random.choice([0, 3, 200, 4000])
        return {**MESSAGE, "topic": topic, "payload": self.random.randbytes(size)}

    def step(self) -> None:
        do = self.random.randrange(12)
        sno = self.random.choice(list(self.ids) or [0])
        if do == 0 or not sno:
            self._begin()
        elif do == 1:
            self.add(kinds.SUB, sno=sno, options=self.random.randrange(3), sub_id=self.random.randrange(3),
                     filter=b"f/%d" % self.random.randrange(5))
        elif do == 2:
            self.add(kinds.UNSUB, sno=sno, filter=b"f/%d" % self.random.randrange(5))
        elif do == 3 and self.waiting[sno]:
            gone = self.random.sample(sorted(self.waiting[sno]), min(2, len(self.waiting[sno])))
            self.add(kinds.ACKS, acks=[(sno, position) for position in gone])
            for position in gone:
                del self.waiting[sno][position]
        elif do == 4 and self.waiting[sno]:
            position = self.random.choice(sorted(self.waiting[sno]))
            self.add(kinds.RELEASED, acks=[(sno, position, self.waiting[sno][position])])
        elif do == 5:
            pid = self.random.randrange(1, 6)
            self.add(kinds.INBOX, sno=sno, pid=pid, refused=False, **{**self.message(b"in/1"), "qos": 2})
        elif do == 6:
            self.add(kinds.INBOX_DONE, sno=sno, pid=self.random.randrange(1, 6))
        elif do == 7:
            self._will(sno)
        elif do == 8:
            self._retained()
        elif do == 9 and self.random.random() < 0.2:
            self._end(sno)
        else:
            self._publish()

    def _begin(self) -> None:
        if self.free:
            sno = self.free.pop()
            self.ids[sno], self.tails[sno], self.waiting[sno] = b"client-%d" % self.random.randrange(10**6), 0, {}
            self.session(sno, True)

    def _end(self, sno: int) -> None:
        self.add(kinds.END, sno=sno)
        del self.ids[sno]
        self.free.append(sno)

    def _will(self, sno: int) -> None:
        if self.random.random() < 0.3:
            self.add(kinds.WILL_GONE, sno=sno)
        elif self.random.random() < 0.5:
            self.add(kinds.WILL, sno=sno, due_wall_ms=5, delay_s=7, **self.message(b"will"))
        else:
            self.add(kinds.CLIENT_WILL, security=0, expiry_s=None, id=b"lone-%d" % self.random.randrange(5), user=None, mount=b"",
                     **self.message(b"will"))

    def _retained(self) -> None:
        topic = b"kept/%d" % self.random.randrange(6)
        if self.random.random() < 0.2:
            self.add(kinds.RETAINED_GONE, topic=topic)
            return
        self.add(kinds.MSG, **{**self.message(topic), "retained_set": True, "payload": b"p%d" % self.random.randrange(99)}, entries=[])
        if self.random.random() < 0.5:
            self.add(kinds.RETAINED_FROM, security=1, topic=topic, id=b"from", user=b"u")

    def _publish(self) -> None:
        entries = []
        for sno in self.random.sample(sorted(self.ids), self.random.randrange(1, len(self.ids) + 1)):
            position, pid = self.tails[sno], self.tails[sno] + 1
            self.tails[sno] += 1
            self.waiting[sno][position] = pid
            entries.append((sno, position, pid, 1 | self.random.choice([0, 0x80, 0x40]), self.random.randrange(2)))
        self.add(kinds.MSG, **self.message(b"f/1"), entries=entries)
        if self.random.random() < 0.3:
            self.session(self.random.choice(list(self.ids)), self.random.random() < 0.5)

    def finish(self) -> None:
        self.store.finish()
        assert self.store.close() is None


def described(paths: list[Path], owner: Spread = ALONE) -> dict[str, Any]:
    """Return what the stores hold, without numbers; check that each part is where it belongs."""
    out: dict[str, Any] = {}
    for place, path in enumerate(paths):
        content, bodies = Content(False), {}
        records: list[Any] = []
        scan(str(path), records.extend)
        for lsn, kind, _flags, body in records:
            fields = record_decode(kind, body)
            bodies[lsn] = fields
            content.apply(lsn, kind, fields, len(body))
        content.end()
        assert not content.n_problems

        def shown(lsn: int, bodies: Any = bodies) -> Any:
            f = bodies[lsn]
            return {name: f[name] for name in ("topic", "payload", "qos", "retain", "props")}

        for s in content.sessions.values():
            assert owner.place(s.id) == place and s.id not in out
            entries = {position: next(e[1:] for e in bodies[lsn - 1]["entries"] if e[:2] == (s.sno, position))
                       for position, lsn in s.queue.places()}
            out[s.id] = {
                "user": s.user, "connected": s.connected, "next": s.next, "pid": content.last_pids[s.sno],
                "subs": {filter: options[:2] for filter, options in s.subscriptions.items()},
                "queue": {position: (shown(lsn - 1), entries[position]) for position, lsn in s.queue.places()},
                "released": {position: pid for position, (pid, _) in s.released.items()},
                "inbox": {pid: shown(lsn) for pid, (lsn, _) in s.inbox.items()},
                "will": s.will and (shown(s.will[0]), s.will[1:]),
            }
        for topic, (lsn, *_) in content.retained.items():
            assert owner.place(topic) == place
            source = content.publishers.get(topic)
            out["retained", topic] = shown(lsn), source is not None and bodies[source]["id"]
        for client_id, lsn in content.client_wills.items():
            assert owner.place(client_id) == place
            out["will", client_id] = shown(lsn)
    return out


def spread(n: int) -> Spread:
    return Spread(n, bytes(range(n, n + 16))) if n > 1 else ALONE


def divided(sources: list[Path], old: Spread, folder: Path, new: Spread) -> list[Path]:
    targets = [folder / f"{i}" for i in range(new.n)]
    for target in targets:
        target.mkdir(parents=True)
    Division([str(one) for one in sources], old, [str(one) for one in targets], new).write("a test")
    return targets


def size_of(paths: list[Path]) -> int:
    bodies: list[Any] = []
    for path in paths:
        scan(str(path), bodies.extend)
    return sum(len(body) for _, kind, _, body in bodies if kind == kinds.MSG)


@pytest.mark.parametrize("seed", range(25))
def test_stores_that_are_divided_and_joined_hold_the_same(tmp_path: Path, seed: int) -> None:
    writer = Writer(tmp_path / "one", seed)
    for _ in range(300):
        writer.step()
    writer.finish()
    expected = described([tmp_path / "one"])
    assert expected
    paths, old = [tmp_path / "one"], ALONE
    sizes = {}
    for i, n in enumerate((1, 3, 2, 5, 1)):
        new = spread(n)
        paths = divided(paths, old, tmp_path / f"step{i}", new)
        old = new
        assert described(paths, new) == expected
        sizes[i] = size_of(paths)
    assert sizes[4] <= sizes[0] * 1.01 + 2000       # copies of one message are one again; short ones are not looked for


def test_a_message_is_written_once_for_each_store(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "one", 1)
    while len(writer.ids) < 11:
        writer._begin()
    for _ in range(20):
        writer.add(kinds.MSG, **MESSAGE, topic=b"t", payload=bytes(10_000),
                   entries=[(sno, writer.tails[sno], 1, 1, 0) for sno in writer.ids])
        for sno in writer.tails:
            writer.tails[sno] += 1
    writer.finish()
    two = divided([tmp_path / "one"], ALONE, tmp_path / "two", spread(2))
    assert size_of(two) < 2.1 * size_of([tmp_path / "one"])
    one = divided(two, spread(2), tmp_path / "again", ALONE)
    assert size_of(one) == size_of([tmp_path / "one"])      # the 20 equal messages stay 20


def test_a_missing_end_and_a_client_id_in_two_stores_lose_no_other_session(tmp_path: Path) -> None:
    key = spread(2)
    name = next(b"id%d" % i for i in range(99) if worker_place(key.key, b"id%d" % i, 2) == 1)
    other = next(b"id%d" % i for i in range(99) if worker_place(key.key, b"id%d" % i, 2) == 0)
    for place, filter in enumerate((b"wrong", b"right")):
        writer = Writer(tmp_path / f"{place}", 1)
        writer.ids, writer.tails = {1: b"gone", 2: other}, {1: 0, 2: 0}
        writer.session(1, False)
        writer.ids[1] = name                # without a record of the end of "gone"
        writer.session(1, False)
        writer.add(kinds.SUB, sno=1, options=1, sub_id=0, filter=filter)
        if place == 0:
            writer.session(2, False)
        writer.finish()
    division = Division([str(tmp_path / "0"), str(tmp_path / "1")], key, [str(tmp_path / "new")], ALONE)
    division.write("a test")
    assert "in several of the stores" in division.warnings[0]
    found = described([tmp_path / "new"])
    assert set(found) == {name, other} and found[name]["subs"] == {b"right": (1, 0)}


RUN = {"log": 77, "run": 1}


@pytest.mark.parametrize(("arrived", "local_done", "filters", "lacks"), [
    (False, False, (b"q", b"q"), None),         # no worker has it
    (True, False, (b"other", b"q"), []),        # the only worker that needs it has it
    (True, False, (b"q", b"q"), [0]),           # the publisher's own subscribers do not have it
    (False, True, (b"q", b"+"), [1]),
    (True, True, (b"q", b"#"), []),
    (True, False, (b"$share/g/q", b"$share/g/q"), []),          # one member of the group has it
    (True, False, (b"$share/h/q", b"$share/g/q"), [b"$share/h/q"]),
    (True, True, (b"$share/h/q", b"$share/g/q"), []),
    (False, True, (b"$share/h/q", b"$share/g/q"), [b"$share/g/q"]),     # it went to worker 2, which does not have it
    (None, True, (b"q", b"$share/g/q"), [b"$share/g/q"]),       # worker 2 has it for its plain subscribers, and not for the group
    (True, False, (b"", b"q"), []),             # a subscription with QoS 0
])
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_qos_2_message_that_a_part_of_the_workers_has(tmp_path: Path, arrived: bool | None, local_done: bool, steps: int,
                                                        filters: tuple[bytes, bytes], lacks: list[int | bytes] | None) -> None:
    """`lacks`: the workers whose sessions lack it, and groups. `steps`: number of further divisions before a start."""
    key = spread(2)
    part = worker_place(key.key, filters[1], 1 << 16) | 1
    names = [next(b"id%d" % i for i in range(99) if worker_place(key.key, b"id%d" % i, 2) == place) for place in range(2)]
    for place in range(2):
        writer = Writer(tmp_path / f"{place}", 1)
        writer.ids, writer.tails = {1: names[place]}, {1: 0}
        writer.add(kinds.LINK_RUN, log=77 + place, run=1)
        writer.session(1, False)
        writer.add(kinds.SUB, sno=1, options=2 if filters[place] else 0, sub_id=0, filter=filters[place] or b"q")
        if place == 0:
            writer.add(kinds.INBOX, sno=1, pid=5, refused=False, identity=9, local_done=local_done, **{**MESSAGE, "qos": 2}, topic=b"q",
                       payload=b"p")
            if filters[1].startswith(b"$share"):
                writer.add(kinds.LINK_CHOICE, identity=9, part=part, worker=1)
        elif arrived is not False:
            writer.add(kinds.LINK_IDENTITY, worker=0, log=77, identity=9, part=part if arrived and filters[1].startswith(b"$share") else 0)
        writer.finish()
    paths, old = [tmp_path / "0", tmp_path / "1"], key
    for step in range(steps + 1):
        new = spread((3, 1, 2, 4)[step])
        paths = divided(paths, old, tmp_path / f"step{step}", new)
        old = new
    ids, found = sessions_and_undelivered(paths)
    inbox = records_of(paths, kinds.INBOX)
    assert len(inbox) == 1 and inbox[0]["refused"] == (lacks is not None) and not inbox[0].get("identity")
    assert not any(records_of(paths, kind) for kind in range(kinds.LINK_RUN, kinds.UNDELIVERED))
    assert all(f["id"] == names[0] and f["topic"] == b"q" and f["payload"] == b"p" and not f["retained_set"] for _, f in found)
    reached = [ids[place, sno] for place, f in found for sno in f["sessions"]]
    assert sorted(reached) == sorted(names[one] for one in lacks or () if isinstance(one, int))
    assert [f["group"] for _, f in found if f["group"]] == [one for one in lacks or () if isinstance(one, bytes)]
    for place, f in found:
        if f["group"]:
            member = names[filters.index(f["group"])]
            assert old.place(member) == place
    # a worker that has delivered nothing has not committed what it wrote to streams
    assert sum(f["unjournalled"] for _, f in found) == (lacks is not None and not local_done)


def records_of(paths: list[Path], kind: int) -> list[dict[str, Any]]:
    return [fields for _, fields in placed(paths, kind)]


def placed(paths: list[Path], kind: int) -> list[tuple[int, dict[str, Any]]]:
    found = []
    for place, path in enumerate(paths):
        records: list[Any] = []
        scan(str(path), records.extend)
        found += [(place, record_decode(kind, body)) for _, one, _, body in records if one == kind]
    return found


def sessions_and_undelivered(paths: list[Path]) -> tuple[dict[tuple[int, int], bytes], list[tuple[int, dict[str, Any]]]]:
    return {(place, f["sno"]): f["id"] for place, f in placed(paths, kinds.SESSION)}, placed(paths, kinds.UNDELIVERED)


def test_undelivered_messages_keep_the_order_of_their_publisher(tmp_path: Path) -> None:
    """Cleaning writes the records of an inbox again in any order; the identities have that of the publisher."""
    key = spread(2)
    names = [next(b"id%d" % i for i in range(99) if worker_place(key.key, b"id%d" % i, 2) == place) for place in range(2)]
    for place in range(2):
        writer = Writer(tmp_path / f"{place}", 1)
        writer.ids, writer.tails = {1: names[place]}, {1: 0}
        writer.add(kinds.LINK_RUN, log=77 + place, run=1)
        writer.session(1, False)
        writer.add(kinds.SUB, sno=1, options=2, sub_id=0, filter=b"q")
        for pid in (3, 1, 2) if place == 0 else ():
            writer.add(kinds.INBOX, sno=1, pid=pid, refused=False, identity=1000 + pid, local_done=True, **{**MESSAGE, "qos": 2}, topic=b"q",
                       payload=b"%d" % pid)
        writer.finish()
    paths, old = [tmp_path / "0", tmp_path / "1"], key
    for step, n in enumerate((1, 3)):
        paths = divided(paths, old, tmp_path / f"step{step}", spread(n))
        old = spread(n)
        found = records_of(paths, kinds.UNDELIVERED)
        assert [(f["payload"], f["number"]) for f in found] == [(b"1", 1), (b"2", 2), (b"3", 3)]


@pytest.mark.parametrize(("identity", "qos", "lacks"), [(0, 1, [1]), (9, 2, [1]), (0, 0, [])])
def test_a_will_that_other_workers_lack(tmp_path: Path, identity: int, qos: int, lacks: list[int]) -> None:
    key = spread(2)
    names = [next(b"id%d" % i for i in range(99) if worker_place(key.key, b"id%d" % i, 2) == place) for place in range(2)]
    owner = key.place(b"q")
    for place in range(2):
        writer = Writer(tmp_path / f"{place}", 1)
        writer.ids, writer.tails = {1: names[place]}, {1: 0}
        writer.add(kinds.LINK_RUN, log=77 + place, run=1)
        writer.session(1, False)
        writer.add(kinds.SUB, sno=1, options=2, sub_id=0, filter=b"q")
        if place == 1 - owner:
            writer.add(kinds.LINK_WILL, number=4, handle=identity, security=0, expiry_s=None, id=b"dying", user=None, mount=b"",
                       **{**MESSAGE, "qos": qos, "retain": True}, topic=b"q", payload=b"p")
        writer.finish()
    new = spread(3)
    paths = divided([tmp_path / "0", tmp_path / "1"], key, tmp_path / "new", new)
    ids, found = sessions_and_undelivered(paths)
    assert [ids[place, sno] for place, f in found for sno in f["sessions"]] == [names[owner] for _ in lacks]
    assert [place for place, f in found if f["retained_set"]] == [new.place(b"q")]
    assert all(f.get("again", False) == (not identity) and not f["unjournalled"] for _, f in found)
    assert not records_of(paths, kinds.LINK_WILL) and not records_of(paths, kinds.WAITING_WILL)


def test_the_tools_read_an_undelivered_message(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "store", 1)
    writer.ids, writer.tails = {1: b"sub"}, {1: 0}
    writer.session(1, False)
    message = {**MESSAGE, "qos": 2, "topic": b"q", "payload": b"p", "id": b"pub", "user": None, "security": 0, "mount": b"", "expiry_s": None,
               "sessions": [1], "group": b"", "unjournalled": False}
    writer.add(kinds.UNDELIVERED, number=1, **message)
    writer.add(kinds.UNDELIVERED, number=2, **message)
    writer.add(kinds.WAITING_WILL_GONE, number=1)
    writer.finish()
    run = CliRunner().invoke
    store = str(tmp_path / "store")
    assert run(db, ["check", store]).exit_code == 0
    assert json.loads(run(db, ["stats", "--json", store]).output)["undelivered"] == 1
    for client in ("sub", "pub"):
        lines = run(db, ["dump", "--client", client, "--kind", "undelivered", store]).output.splitlines()
        assert len(lines) == 2 and lines[1].endswith('2: of "pub": "q" qos 2, 1 B -> 1'), lines
    assert run(db, ["export", "--jsonl", str(tmp_path / "lines"), store]).exit_code == 0
    found = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [one["state"] for one in found if one["type"] == "delivery"] == ["undelivered"]
