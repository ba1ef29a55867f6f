"""Test the state that follows from records: pending deliveries, live records, and the output of `mosq db`."""

import io
import json
import sqlite3
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from mosq._core import record_encode
from mosq.tools.db import commands, kinds, state as module
from mosq.tools.db.dump import Choice, dump_to, matches
from mosq.tools.db.export import Lines, export
from mosq.tools.db.mosquitto_export import MosquittoExport
from mosq.tools.db.read import state_of
from mosq.tools.db.report import figures, problems, stats_text
from mosq.tools.db.several import Stores
from mosq.tools.db.state import GAP_MAX, HALF, Places, State
from mosq.tools.db.store import StoreError
from tests.db.fake import FakeSource

NEVER = 0xFFFFFFFF
WRAP = 1 << 32


def session(sno: int, id: bytes, **more: Any) -> tuple[int, dict[str, Any]]:
    return kinds.SESSION, {"sno": sno, "connected": False, "expiry_s": NEVER, "ends_wall_ms": 0, "next": 0, "id": id, "user": None, **more}


def message(payload: bytes, *to: tuple[int, int], qos: int = 1, topic: bytes = b"a/b", **more: Any) -> tuple[int, dict[str, Any]]:
    return kinds.MSG, {"qos": qos, "retain": False, "retained_set": False, "expires_wall_ms": 0, "source_hash": 0, "topic": topic, "props": b"",
                       "payload": payload, "entries": [(sno, position, position % 65535 + 1, qos, 0) for sno, position in to], **more}


STORE = [
    (kinds.META, {b"format": b"1", b"broker": b"mosq test"}),
    session(1, b"one", user=b"ann"),
    session(2, b"two\x1b[2J", connected=True, ends_wall_ms=1, expiry_s=60),
    session(3, b"ended"),
    (kinds.SUB, {"sno": 1, "options": 0x2E, "sub_id": 4, "filter": b"a/#"}),
    (kinds.SUB, {"sno": 1, "options": 1, "sub_id": 0, "filter": b"b"}),
    (kinds.UNSUB, {"sno": 1, "filter": b"b"}),
    message(b"first", (1, 0), (2, 0), (3, 0)),
    message(b"second", (1, 1), qos=2),
    message(b"third", (1, 2), qos=2, props=b"\x03\x00\x01t"),
    message(b"kept", topic=b"r/1", retained_set=True, retain=True),
    message(b"replaced", topic=b"r/2", retained_set=True, retain=True),
    (kinds.ACKS, {"acks": [(1, 0)]}),
    (kinds.RELEASED, {"acks": [(1, 1, 2)]}),
    (kinds.END, {"sno": 3}),
    (kinds.RETAINED_GONE, {"topic": b"r/2"}),
    (kinds.INBOX, {**message(b"inbound", qos=2)[1], "sno": 2, "pid": 9, "refused": False}),
    (kinds.INBOX, {"sno": 2, "pid": 8, "refused": True}),
    (kinds.INBOX_DONE, {"sno": 2, "pid": 8}),
    (kinds.WILL, {**message(b"\xff\xfe")[1], "sno": 2, "due_wall_ms": 0, "delay_s": 5}),
]


def client_will(id: bytes, payload: bytes) -> tuple[int, dict[str, Any]]:
    return kinds.CLIENT_WILL, {**message(payload)[1], "id": id, "user": b"ann", "security": 0, "mount": b"", "expiry_s": None}


WILLS = [
    (kinds.META, {b"format": b"1", b"broker": b"mosq test"}),
    client_will(b"gone", b"discarded"),
    client_will(b"stays", b"replaced"),
    client_will(b"stored", b"of a client that has a stored session since then"),
    (kinds.CLIENT_WILL_GONE, {"id": b"gone"}),
    (kinds.CLIENT_WILL_GONE, {"id": b"never seen"}),
    client_will(b"stays", b"last words"),
    session(1, b"stored"),
]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `mosq db ...` on a list of records."""
    def run(records: list[Any] | FakeSource, *arguments: str) -> Result:
        source = records if isinstance(records, FakeSource) else FakeSource(records)
        monkeypatch.setattr(commands, "open_stores", lambda directory: Stores(directory, [(0, source)]))
        return CliRunner().invoke(commands.db, [arguments[0], "DIR", *arguments[1:]], standalone_mode=False)

    return run


def test_state() -> None:
    state, _, unreadable = state_of(FakeSource(STORE))
    assert not state.problems and not unreadable.n
    one, two = state.sessions[1], state.sessions[2]
    assert sorted(state.sessions) == [1, 2]
    assert list(one.subscriptions) == [b"a/#"] and one.user == b"ann"
    assert [position for position, _ in one.queue.places()] == [2] and list(one.released) == [1]
    assert [position for position, _ in two.queue.places()] == [0] and list(two.inbox) == [9] and two.will is not None
    assert list(state.retained) == [b"r/1"]
    assert len(state.live) == 5         # first (for two), third, kept, inbound, will


def test_deliveries_that_wait_for_a_plugin() -> None:
    _, fields = message(b"m", (1, 4), (1, 5), (2, 9))
    records = [session(1, b"one"), session(2, b"two"), (kinds.GATED, fields), (kinds.GATED, fields), (kinds.GATED_DONE, {"acks": [(1, 5), (3, 7)]})]
    state, _, unreadable = state_of(FakeSource(records))
    assert not state.problems and not unreadable.n
    assert (list(state.sessions[1].gate), list(state.sessions[2].gate), len(state.live)) == ([5], [9], 1)
    state, _, _ = state_of(FakeSource([*records, (kinds.END, {"sno": 2}), (kinds.GATED_DONE, {"acks": [(1, 6)]})]))
    assert not state.live


def test_wills_that_wait_for_a_plugin(cli: Any) -> None:
    fields = {**client_will(b"client", b"last words")[1], "handle": 9}
    records = [*((kinds.WAITING_WILL, {**fields, "number": number}) for number in (1, 2, 2)), (kinds.WAITING_WILL_GONE, {"number": 1}), (kinds.END, {"sno": 1})]
    state, _, _ = state_of(FakeSource(records))
    assert not state.problems and (list(state.waiting_wills), len(state.live)) == ([2], 1)
    assert "wills            1" in cli(records, "stats").output
    assert '2: "client" user "ann": "a/b" qos 1, 10 B "last words"' in cli(records, "dump", "--payload", "--client", "client").output


def test_a_copy_replaces_the_older_record() -> None:
    """Test records that cleaning writes again, and the older ones that it drops later."""
    state, _, _ = state_of(FakeSource([session(1, b"c"), message(b"m", (1, 5), (1, 6)), (kinds.ACKS, {"acks": [(1, 5)]}), message(b"m", (1, 6))]))
    assert len(state.live) == 1 and state.sessions[1].queue.count == 1
    # a session's record may have been moved behind the records that belong to it
    state, _, _ = state_of(FakeSource([message(b"m", (1, 6)), session(1, b"c")]))
    assert not state.problems
    state, _, _ = state_of(FakeSource([message(b"m", (1, 6))]))
    assert state.problems == [(-1, "records belong to session 1, which has no record")]


@given(st.integers(0, WRAP - 1), st.lists(st.tuples(st.sampled_from("ppppt"), st.one_of(st.integers(-50, 50), st.integers(-3, 3).map(lambda n: n * GAP_MAX)))))
def test_places_against_a_dictionary(start: int, steps: list[tuple[str, int]]) -> None:
    places, model = Places(), dict[int, int]()
    for lsn, (what, offset) in enumerate(steps):
        position = (start + offset) % WRAP
        if what == "p":
            assert places.put(position, lsn) == model.get(position, 0)
            model[position] = lsn + 1
        else:
            assert places.take(position) == model.pop(position, 0)
        assert places.count == len(model)
        assert places.get(position) == model.get(position, 0)
    assert dict(places.places()) == model


@given(st.integers(0, WRAP - 1), st.lists(st.sampled_from("pppttgb"), max_size=200), st.integers(1, 4))
def test_places_of_a_queue_that_moves_on(start: int, steps: list[str], trim_min: int) -> None:
    with patch.object(module, "TRIM_MIN", trim_min):
        places, model, next_one = Places(), dict[int, int](), start
        for lsn, what in enumerate(steps):
            if what == "t" and model:           # the oldest
                position = min(model, key=lambda one: (one - start) % WRAP)
                assert places.take(position) == model.pop(position)
            elif what == "b" and model:         # a copy of a record comes late, before the others
                position = (min(model, key=lambda one: (one - start) % WRAP) - 1) % WRAP
                if (position - start) % WRAP < HALF:
                    assert places.put(position, lsn) == 0
                    model[position] = lsn + 1
            else:
                next_one += 3 if what == "g" else 1
                assert places.put(next_one % WRAP, lsn) == model.get(next_one % WRAP, 0)
                model[next_one % WRAP] = lsn + 1
            assert list(places.places()) == sorted(model.items(), key=lambda one: (one[0] - start) % WRAP)


def test_a_queue_that_moves_on_takes_no_more_memory() -> None:
    places = Places()
    for position in range(100_000):
        places.put(position, position)
        if position >= 100:
            assert places.take(position - 100) == position - 99
    assert places.count == 100 and len(places._lsns) < 5000


def test_live_bytes_count_all_needed_records() -> None:
    source = FakeSource([session(1, b"c"), (kinds.SUB, {"sno": 1, "options": 0, "sub_id": 0, "filter": b"f"}), message(b"m", (1, 0)), message(b"n", (1, 1))])
    state, _, _ = state_of(source)
    assert state.live_bytes() == source.end
    state.apply(source.end, kinds.ACKS, {"acks": [(1, 0), (1, 1)]}, 20)
    assert state.live_bytes() == source.records[2][0]
    state.apply(source.end + 20, kinds.END, {"sno": 1}, 20)
    assert state.live_bytes() == 0 and State().live_bytes() == 0


def test_check(cli: Any) -> None:
    result = cli(STORE, "check")
    assert (result.return_value, result.output) == (0, "DIR: 20 records, 2 sessions: all is well.\n")
    source = FakeSource([*STORE, (kinds.MSG, b""), (99, b""), session(7, b"one")])
    source.loss = {"n": 1, "ranges": [(100, 200)], "bytes": 100, "torn_bytes": 5}
    result = cli(source, "check")
    assert result.return_value == 1
    for text in ("lost: lsn 100 to 200\n", "torn: 5 bytes", "of kind 5 (msg) and 0 bytes ends before its last field", "of kind 99 (unknown)",
                 "sessions 1 and 7 both have the client id b'one'", "not all is well"):
        assert text in result.output
    source.loss = {"torn_bytes": 5}
    assert "torn" not in cli(source, "check", "--live").output


class DroppingSource(FakeSource):
    """A live store: the first scans come too late for a segment with a deletion; `late`: their number."""

    def __init__(self, before: list[Any], after: list[Any], late: int) -> None:
        super().__init__(after)
        self.late, self.before = late, before

    def scan(self, give: Any) -> dict[str, Any]:
        if self.late == 0:
            return super().scan(give)
        self.late -= 1
        return {**FakeSource(self.before).scan(give), "moved": 1}


def test_a_walk_begins_again_if_the_broker_drops_a_segment(tmp_path: Path) -> None:
    """The session `gone` ended in a segment that the first two walks did not read."""
    before, after = [session(1, b"gone"), session(2, b"here")], [session(2, b"here")]
    state, _, _ = state_of(DroppingSource(before, after, 2))
    assert [s.id for s in state.sessions.values()] == [b"here"]
    out = io.BytesIO()
    assert MosquittoExport({0: DroppingSource(before, after, 2)}, out).run().sessions == 1
    assert b"gone" not in out.getvalue()
    with pytest.raises(StoreError, match="dropped segments before they were read, 10 times"):
        state_of(DroppingSource(before, after, 99))


def test_stats(cli: Any) -> None:
    text = cli(STORE, "stats", "--kinds").output
    for line in ("sessions         2, 1 of them connected, 1 expired", 'queued           2 (most: 1 for "one")', "retained         1, 0 of them expired",
                 "QoS 2 under way  1 to clients, 1 from clients", "wills            1", "msg                         5"):
        assert line in text
    counted = json.loads(cli(STORE, "stats", "--json").output)
    assert counted["queued"] == 2 and counted["subscriptions"] == 1 and 0 < counted["live_bytes"] < counted["total_bytes"]
    assert cli([], "stats").return_value == 0


def test_dump(cli: Any) -> None:
    lines = cli(STORE, "dump").output.splitlines()
    assert len(lines) == len(STORE)
    assert '1 "one" user "ann" offline, never expires, sent up to 0' in lines[1]
    assert '2 "two\\u001b[2J" connected, expires after 60 s' in lines[2]            # no character that moves a cursor
    assert '1 "a/#" qos 2, no-local, retain-as-published, retain-handling 2, id 4' in lines[4]
    assert '"a/b" qos 1, 5 B -> 1:0 qos 1 pid 1, 2:0 qos 1 pid 1, 3:0 qos 1 pid 1' in lines[7]
    assert "first" not in lines[7] and '5 B "first" ->' in cli(STORE, "dump", "--payload").output
    assert [line.split()[1] for line in cli(STORE, "dump", "--client", "one", "--kind", "msg", "--kind", "acks").output.splitlines()] == ["msg"] * 3 + ["acks"]
    assert len(cli(STORE, "dump", "--topic", "r/+").output.splitlines()) == 3
    assert len(cli(STORE, "dump", "--limit", "4").output.splitlines()) == 4
    assert len(cli(STORE, "dump", "--from", "1").output.splitlines()) == len(STORE) - 1
    rows = [json.loads(line) for line in cli(STORE, "dump", "--json", "--payload").output.splitlines()]
    assert len(rows) == len(STORE) and rows[9]["payload"] == "third" and rows[9]["properties"] == {"content_type": "t"}
    assert rows[-1]["payload_base64"] == "//4="
    assert "`nonsense`; expected one of session, sub" in str(cli(STORE, "dump", "--kind", "nonsense").exception)


def test_export_jsonl(cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert cli(STORE, "export", "--jsonl", str(out)).return_value == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["type"] for row in rows] == ["meta", "session", "delivery", "session", "message", "delivery", "message", "delivery", "message", "inbox", "will"]
    assert rows[2] == {"type": "delivery", "lsn": None, "sno": 1, "position": 1, "pid": 2, "qos": 2, "state": "released"}
    assert cli(STORE, "export", "--jsonl", "-").stdout.splitlines()[:3] == out.read_text().splitlines()[:3]
    assert "exists already; expected a new file, or --force" in cli(STORE, "export", "--jsonl", str(out)).output
    assert cli(STORE, "export", "--jsonl", str(out), "--force").return_value == 0
    assert cli(STORE, "export", "--jsonl", str(tmp_path / "no" / "such")).return_value == 1
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize("kind", ["--jsonl", "--sqlite"])
def test_an_export_is_private_and_goes_through_no_link(cli: Any, tmp_path: Path, kind: str) -> None:
    """It has the messages of all; and others may write in the folder while root exports."""
    (tmp_path / "out.part").symlink_to(tmp_path / "elsewhere")
    assert cli(STORE, "export", kind, str(tmp_path / "out")).return_value == 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o600


def test_export_sqlite(cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "out.sqlite"
    assert cli(STORE, "export", "--sqlite", str(out)).return_value == 0
    with sqlite3.connect(out) as found:
        assert found.execute("SELECT client_id, username, queued FROM sessions ORDER BY sno").fetchall() == [("one", "ann", 1), ("two\x1b[2J", None, 1)]
        assert found.execute("SELECT topic, payload FROM messages WHERE retained").fetchall() == [("r/1", b"kept")]
        assert found.execute("SELECT client_id, payload, d.state FROM deliveries d JOIN sessions USING (sno) LEFT JOIN messages USING (lsn) "
                             "ORDER BY sno, position").fetchall() == [("one", None, "released"), ("one", b"third", "waiting"), ("two\x1b[2J", b"first", "waiting")]
        assert found.execute("SELECT count(*) FROM inbox").fetchone() == found.execute("SELECT count(*) FROM wills").fetchone() == (1,)
    found.close()


def test_wills_of_clients_without_a_stored_session(cli: Any, tmp_path: Path) -> None:
    """Test that the last record of a client id counts, in each command."""
    state, _, _ = state_of(FakeSource(WILLS))
    assert not state.problems and list(state.client_wills) == [b"stays"] and len(state.live) == 1
    assert cli(WILLS, "check").return_value == 0
    assert "wills            1" in cli(WILLS, "stats").output
    assert '"stays" user "ann": "a/b" qos 1, 10 B "last words"' in cli(WILLS, "dump", "--payload").output
    assert [line.split()[1] for line in cli(WILLS, "dump", "--client", "gone").output.splitlines()] == ["client_will", "client_will_gone"]
    out = tmp_path / "out"
    assert cli(WILLS, "export", "--jsonl", str(out)).return_value == 0
    (row,) = (row for row in map(json.loads, out.read_text().splitlines()) if row["type"] == "will")
    assert (row["sno"], row["id"], row["user"], row["topic"], row["payload"]) == (None, "stays", "ann", "a/b", "last words")
    assert cli(WILLS, "export", "--sqlite", str(out), "--force").return_value == 0
    with sqlite3.connect(out) as found:
        assert found.execute("SELECT sno, client_id, username, payload FROM wills JOIN messages USING (lsn)").fetchall() == [
            (None, "stays", "ann", b"last words")]
    found.close()


@pytest.mark.parametrize(("filter", "topic", "is_it"), [("a/+", "a/b", True), ("#", "a", True), ("#", "$SYS/a", False), ("a/#", "a", True),
                                                          ("a", "a/b", False), ("+/b", "a/b", True), ("a/b", "a", False)])
def test_matches(filter: str, topic: str, is_it: bool) -> None:
    assert matches(filter, topic) == is_it


BODIES = st.binary(max_size=40) | st.tuples(st.sampled_from([*STORE, *WILLS]), st.integers(0, 60), st.integers(0, 255))


@given(st.lists(st.tuples(st.integers(0, 20), BODIES), max_size=12))
def test_hostile_records(records: list[tuple[int, Any]]) -> None:
    """Test that no content of a store crashes, and that each line is one line of printable characters."""
    source = FakeSource([])
    for lsn, (kind, body) in enumerate(records):
        if isinstance(body, tuple):                 # a valid record with one byte changed
            (kind, fields), at, byte = body
            whole = bytearray(record_encode(kind, fields))
            if at < len(whole):
                whole[at] = byte
            body = bytes(whole)
        source.records.append((lsn * 100, kind, 0, body))
    state, loss, unreadable = state_of(source)
    problems(state, loss, unreadable, False)
    stats_text(figures(source, state, loss, 1.0))
    lines: list[str] = []
    for as_json in (False, True):
        dump_to(source, Choice(topic=None), lines.append, True, as_json)
    assert all(line.isprintable() for line in lines)
    export(source, Lines(io.StringIO()))
