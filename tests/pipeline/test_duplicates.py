"""Test the key of a rule: rows whose key silver has are in the quarantine, also after kills, restarts and a rebuild."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from mosq.pipeline import MosqPipelineError, settings
from mosq.pipeline.earlier import migrate
from mosq.pipeline.lake.table import Table
from mosq.pipeline.rows import duplicates, keys, types
from mosq.pipeline.runs import adopt, status, tending, verify
from mosq.pipeline.rows.duplicates import REASON, Known
from tests.pipeline.batches import Batches
from tests.pipeline.old_tables import OldTables
from tests.pipeline.test_telemetry import NOW_US, SECOND, Site, rebuilt, row, silver, without_spark

HOUR = 3600 * SECOND
SETTINGS = """
[pipeline]
journal = "streams"
node = "here"
[[silver]]
name = "t"
topic = "t/+"
format = "json"
schema = "device STRING, ts BIGINT, x DOUBLE"
time_column = "ts"
time_unit = "ms"
key = ["device", "ts"]
key_horizon = "1 minute"
[[silver]]
name = "power"
topic = "power/+"
format = "number"
values = ["value"]
"""


# ---- hashes

def test_equal_keys_have_equal_hashes_and_null_has_none() -> None:
    schema = types.schema("a STRING, b DOUBLE, c TIMESTAMP, d DECIMAL(5, 2), e BINARY, f BOOLEAN, g DATE")
    same: dict[str, Any] = {"a": "x", "b": 0.0, "c": None, "d": None, "e": None, "f": None, "g": None}
    rows = [row(i, NOW_US, None) | one for i, one in enumerate(({}, {"b": -0.0}, {"a": "y"}, {"a": None}, {"a": "x1", "b": 0.0}))]
    rows = [{name: value for name, value in (same | one).items() if name != "ts"} for one in rows]
    found, keyless = keys.hashed(silver(rows, schema), ["a", "b"], "salt")
    assert found.schema == keys.SCHEMA and keyless == 1 and found["seq"].to_pylist() == [0, 1, 2, 4]
    pairs = list(zip(found["high"].to_pylist(), found["low"].to_pylist(), strict=True))
    assert pairs[0] == pairs[1] and len(set(pairs)) == 3
    other, _ = keys.hashed(silver(rows, schema), ["a", "b"], "another salt")
    assert not set(other["high"].to_pylist()) & set(found["high"].to_pylist())
    each = [{"a": "1", "b": 1.0, "c": NOW_US, "d": 1, "e": b"1", "f": True, "g": 1} | {name: None} for name in "abcdefg"]
    assert [keys.hashed(silver([{**row(0, NOW_US, None), **one}], schema).select([*types.silver_schema(schema).names]), [name], "")[1] for name, one in zip("abcdefg", each, strict=True)] == [1] * 7
    none, n = keys.hashed(silver([], schema), list("abcdefg"), "")
    assert none.num_rows == n == 0


def hashes(rows: list[tuple[int, int, int, int]]) -> pa.Table:
    """Return rows of (key, time, shard, seq)."""
    return pa.Table.from_pylist([{"node": "n", "stream": "s", "shard": shard, "seq": seq, "time_us": time, "high": key // 2, "low": key % 2} for key, time, shard, seq in rows], keys.SCHEMA)


@examples(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.integers(0, 1)), max_size=12), max_size=14), st.integers(0, 8), st.lists(st.booleans(), min_size=14, max_size=14),
       st.lists(st.sampled_from([0, 0, 0, 1000, -1000]), min_size=14, max_size=14))
def test_duplicates_equal_those_of_a_loop_also_after_restarts(batches: list[list[tuple[int, int, int]]], horizon: int, restarts: list[bool], jumps: list[int]) -> None:
    known = Known("t", horizon, 1000)
    accepted: list[tuple[int, int, int, int]] = []
    seq, begin = 0, 0

    def load(times: Sequence[keys.Span]) -> Iterator[pa.Table]:
        yield hashes([one for one in accepted if any(lo <= one[1] <= hi for lo, hi in times)])

    for batch, restart, jump in zip(batches, restarts, jumps, strict=False):
        begin += 3
        rows = []
        for key, time, shard in batch:
            seq += 1
            rows.append((key, begin + jump + time, shard, seq))
        if restart:
            known = Known("t", horizon, 1000)
        fresh: list[tuple[int, int, int, int]] = []
        wanted = set()
        for one in sorted(rows, key=lambda one: (one[1], one[2], one[3])):
            if any(other[0] == one[0] and abs(other[1] - one[1]) <= horizon for other in (*accepted, *fresh)):
                wanted.add(one[3])
            else:
                fresh.append(one)
        table = hashes(rows)
        mask = known.duplicates(table, load)
        assert {one[3] for one, bad in zip(rows, mask, strict=True) if bad} == wanted
        accepted += fresh
        known.take(table.filter(pa.array(~mask)))


times = st.lists(st.tuples(st.integers(-20, 20), st.integers(0, 6)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=5)


@given(times, times, st.integers(0, 3))
def test_sets_of_times_equal_those_of_python(some: list[keys.Span], others: list[keys.Span], by: int) -> None:
    def every(spans: Sequence[keys.Span]) -> set[int]:
        return {time for lo, hi in spans for time in range(lo, hi + 1)}

    a, b = keys.joined(some), keys.joined(others)
    assert every(a) == every(some) and all(one[1] + 1 < other[0] for one, other in itertools.pairwise(a))
    assert every(keys.common(a, b)) == every(a) & every(b) and every(keys.without(a, b)) == every(a) - every(b)
    assert every(keys.widened(a, by)) == {time + step for time in every(a) for step in range(-by, by + 1)}
    assert keys.within(np.arange(-30, 30), a).tolist() == [time in every(a) for time in range(-30, 30)]
    if some:
        at = np.array([lo for lo, _ in some] * 2)
        assert every(keys.spans(at, by)) >= every([(time - by, time + by) for time in at.tolist()])
        assert len(keys.spans(np.arange(0, 1000, 50), by)) == keys.SPANS_MAX


def test_a_key_that_comes_again_and_again_costs_the_same_each_time() -> None:
    """Each row was compared with all earlier rows of its key: 16,000 rows took 27 s, and a batch may have 500,000."""
    compared = 0

    class Horizon(int):
        def __ge__(self, other: int) -> bool:      # Python asks this for `other <= horizon`
            nonlocal compared
            compared += 1
            return other <= int(self)

    known = Known("t", Horizon(10), 10_000)
    n = 1000
    known.take(hashes([(2, 11 * i, 0, i) for i in range(n)]))
    assert not known.duplicates(hashes([(2, 11 * i, 0, i) for i in range(n, 2 * n)])).any() and 0 < compared <= n


def test_more_keys_than_the_limit_are_an_error_and_old_ones_do_not_count() -> None:
    known = Known("t", 10, 50)
    for i in range(100):
        assert not known.duplicates(hashes([(i, i, 0, i)])).any()
        known.check_size(1)
        known.take(hashes([(i, i, 0, i)]))
    with pytest.raises(MosqPipelineError, match=r"silver t: 5. keys within two key_horizon are more than key_limit \(50\): nothing was committed"):
        known.check_size(31)


# ---- settings

@pytest.mark.parametrize(("more", "why"), [
    ('format = "json"\nkey = ["a"]', "key: expected a rule of format json or csv with a declared schema"),
    ('format = "sparkplug"\nkey = ["a"]', "key: expected a rule of format json or csv"),
    ('format = "number"\nkey_horizon = "1 hour"', "key_horizon: expected key beside it"),
    ('format = "number"\nkey = []', "key: expected a list of names"),
    ('format = "number"\nkey = ["value", "time"]', "t key: expected some of value, node, stream, topic, client_id; got 'time'"),
    ('format = "json"\nschema = "a ARRAY<INT>"\nkey = ["a"]', "t key: expected columns of plain types"),
])
def test_a_wrong_key_is_refused(tmp_path: Path, more: str, why: str) -> None:
    (tmp_path / "streams").mkdir()
    (tmp_path / "pipeline.toml").write_text(f'[pipeline]\njournal = "streams"\nnode = "here"\n[[silver]]\nname = "t"\ntopic = "a"\n{more}\n')
    with pytest.raises(MosqPipelineError) as caught:
        duplicates_of(settings.load(tmp_path))
    assert why in str(caught.value)


def duplicates_of(found: settings.Settings) -> Any:
    from mosq.pipeline.runs.tableset import rules

    return rules(found, {})


# ---- tables

class Devices(Site):
    """Send messages of devices, of which some are sent again, some of them later."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, SETTINGS)
        self.chance = random.Random(3)
        self.sent: list[tuple[int, bytes]] = []

    def fill(self, n: int = 30) -> None:
        for _ in range(n):
            self.n += 1
            now = self.journal.now_us = self.journal.now_us + self.chance.choice([SECOND, 2 * SECOND, 20 * SECOND])
            if self.sent and self.chance.random() < 0.4:
                device, payload = self.chance.choice(self.sent[-20:])
            else:
                device = self.n % 3
                payload = json.dumps({"device": f"d{device}" if self.n % 11 else None, "ts": now // 1000, "x": self.n}).encode()
                self.sent.append((device, payload))
            self.journal.put(f"t/{device}", payload, client_id=f"c{device}")
            if self.n % 5 == 0:
                self.journal.put("power/1", b"1", client_id="meter")
        self.journal.commit()

    def expected(self) -> Counter[tuple[str, int]]:
        """Return how often each key must be in silver, from bronze."""
        last: dict[tuple[str, int], list[int]] = {}
        rows = self.table("bronze").read().sort_by("seq").to_pylist()
        for one in rows:
            content = json.loads(one["payload"]) if one["topic"].startswith("t/") else {}
            if content.get("device"):
                times = last.setdefault((content["device"], content["ts"]), [])
                us = round(one["time"].timestamp() * SECOND)
                if not any(abs(us - other) <= 60 * SECOND for other in times):
                    times.append(us)
        return Counter({key: len(times) for key, times in last.items()})

    def check(self) -> None:
        found = self.table("silver/t").read().to_pylist()
        assert Counter((one["device"], one["ts"]) for one in found if one["device"]) == self.expected()
        gone = self.table("quarantine").read().to_pylist()
        bronze = {one["seq"]: one for one in self.table("bronze").read().to_pylist()}
        assert all((one["reason"], one["silver"], one["payload"]) == (REASON, "t", bronze[one["seq"]]["payload"]) for one in gone)
        assert len({one["seq"] for one in gone} | {one["seq"] for one in found}) == len(gone) + len(found) == sum(one["topic"].startswith("t/") for one in bronze.values())
        state = self.state()
        assert state["quarantine"] == {REASON: len(gone)} and state["rows"]["silver/t"] == len(found) and state["rows"]["quarantine"] == len(gone)
        assert sum(one["count"] for one in self.telemetry() if one["silver"] == "t") == len(found)
        assert verify.verify(self.settings).faults == []


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Devices]:
    found = Devices(tmp_path)
    with contextlib.closing(found.journal):
        yield found


@pytest.mark.part("kills")
def test_a_kill_at_any_commit_leaves_each_key_once(site: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = Table._commit
    for stop in range(1, 10):
        site.fill()
        left = [stop]

        def fatal(self: Table, *args: Any, left: list[int] = left, **kwargs: Any) -> bool:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return committed(self, *args, **kwargs)

        monkeypatch.setattr(Table, "_commit", fatal)
        with contextlib.suppress(KeyboardInterrupt):
            Batches(site.settings).all(25)
        monkeypatch.setattr(Table, "_commit", committed)
    batches = Batches(site.settings)
    batches.all(25)
    site.fill()
    batches.all(10)
    site.check()
    text = status.text(status.status(site.settings))
    assert f"x {REASON}" in text and "rows have null in their key" in text


@pytest.mark.parametrize("restarts", [False, True])
def test_a_time_in_the_future_lets_no_key_be_forgotten(site: Devices, restarts: bool) -> None:
    """The clock jumps a year ahead for one message, and back; all keys of the time before were forgotten then."""
    year = 365 * 24 * HOUR
    batches = Batches(site.settings)

    def put(ts: int, later: int = 0) -> None:
        nonlocal batches
        site.journal.now_us += later
        site.journal.put("t/1", b'{"device": "a", "ts": %d, "x": 1}' % ts, client_id="c1")
        site.journal.commit()
        batches = Batches(site.settings) if restarts else batches
        batches.all()

    put(1)
    put(2, year)
    for i in range(10):                             # more batches than runs are kept
        put(10 + i)
    put(2)
    put(1, -year)
    put(3)
    for _ in range(12):
        put(3, SECOND)
    put(2)                                          # its other row is a year away
    put(2, year)
    assert Counter((one["device"], one["ts"]) for one in site.table("silver/t").read().to_pylist() if one["ts"] < 10) == {("a", 1): 1, ("a", 2): 2, ("a", 3): 1}
    assert site.state()["quarantine"] == {REASON: 15}
    site.check()


def test_a_rebuild_and_a_lost_checkpoint_leave_each_key_once(site: Devices, monkeypatch: pytest.MonkeyPatch) -> None:
    site.fill(60)
    Batches(site.settings).all(7)
    site.check()
    before = site.telemetry()
    without_spark(site, monkeypatch)
    rebuilt(site)
    site.check()
    assert site.telemetry() == before
    site.fill()
    Batches(site.settings).all()
    site.settings.checkpoints.rename(site.folder / "lost")
    site.settings.checkpoints.mkdir()
    assert adopt.adopt(site.settings, lambda line: None)
    assert list(tending.compact_all(site.settings))
    site.fill()
    Batches(site.settings).all()
    site.check()


def test_a_migration_leaves_each_key_once(site: Devices) -> None:
    """The rows of tables before Delta went into silver with all duplicates."""
    old = OldTables(site.settings)
    for _ in range(3):
        site.fill()
        old.write()
    migrate.migrate(site.settings, lambda line: None)
    site.check()
    site.fill()
    Batches(site.settings).all()
    site.check()


def test_a_key_without_a_rebuild_is_refused_and_more_keys_than_the_limit_stop_the_run(site: Devices) -> None:
    site.fill()
    Batches(site.settings).all()
    site.set(SETTINGS.replace('key = ["device", "ts"]', 'key = ["ts"]'))
    with pytest.raises(MosqPipelineError, match=r"\[\[silver\]\] differs"):
        Batches(site.settings)
    site.set(SETTINGS.replace('key_horizon = "1 minute"', 'key_horizon = "1 minute"\nkey_limit = 10'))
    site.fill(100)
    with pytest.raises(MosqPipelineError, match=r"more than key_limit \(10\)"):
        Batches(site.settings).all()
    site.set(SETTINGS)
    Batches(site.settings).all()
    site.check()


def test_a_batch_of_many_files_reads_few_of_them_again(site: Devices) -> None:
    """Only files with duplicates are written again."""
    site.journal.put("t/1", b'{"device": "a", "ts": 1, "x": 1}')
    site.journal.put("t/1", b'{"device": "a", "ts": 2, "x": 1}')
    site.journal.commit()
    Batches(site.settings).all(1)
    site.journal.put("t/1", b'{"device": "a", "ts": 1, "x": 1}')
    site.journal.commit()
    Batches(site.settings).all()
    assert len(site.table("silver/t").files()) == 2 and duplicates.BYTES
    site.check()
