"""Test `mosq journal` on streams that a writer has left, and on one that continues."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import mosq.journal.report
import mosq.journal.stream
from mosq._core import PyJournal
from mosq.cli.commands_journal import journal
from mosq.journal import Stream
from mosq.journal.dump import Choice, Dump, Place, place_of
from mosq.journal.parts import later_parts

START_US = 1_790_000_000_000_000      # 2026-09-21T14:13:20Z


def put(face: PyJournal, lo: int, hi: int) -> None:
    for i in range(lo, hi):
        face.append(i % 2, topic=b"plant/%d/temp" % (i % 3), client_id=b"c", payload=b"%d" % i + bytes(400), time_us=START_US + i * 1_000_000)
        if i % 10 == 9:
            face.seal()
            face.write(START_US + i)
    face.seal()
    assert face.write(START_US) and face.sync() and face.mark(START_US)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Make a persistence_location with two streams."""
    streams = tmp_path / "mosquitto.db.store" / "streams"
    streams.mkdir(parents=True)
    face = PyJournal(streams / "telemetry", shards=2, segment_bytes=8192, block_bytes=4096)
    put(face, 0, 200)
    face.close()
    face = PyJournal(streams / "events")
    face.append(0, kind=3, topic=b"", client_id=b"meter", reason=0x8E, payload=b"{}", time_us=START_US)
    face.append(0, topic=b"a", properties=b"\x26\x00\x01k\x00\x01v", payload=b"\xff", flags=5, username=b"u", time_us=START_US + 5)
    put(face, 0, 0)
    face.close()
    return tmp_path


@pytest.fixture
def telemetry(store: Path) -> Path:
    return store / "mosquitto.db.store/streams/telemetry"


def test_a_dump_names_the_node_of_a_cluster(tmp_path: Path) -> None:
    for node in (b"", b"a"):
        face = PyJournal(tmp_path / "s", node=node)
        put(face, 0, 1)
        face.close()
    assert [row.get("cluster_node", "") for row in lines(invoke("dump", tmp_path / "s"))] == ["", "a"]


def test_a_part_that_begins_during_a_command_is_left_out(telemetry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(what: Callable[..., Any]) -> Callable[..., Any]:
        """Let a worker begin its part as soon as the marks or the shards were read."""
        def then_begun(path: Path) -> Any:
            found = what(path)
            part = telemetry / f"worker.{len(later_parts(telemetry)) + 1}"
            PyJournal(part).close()
            return found

        return then_begun

    for module in (mosq.journal.stream, mosq.journal.report):
        for name in ("marks_of", "shards_of"):
            monkeypatch.setattr(module, name, seen(getattr(module, name)))
    records: list[str] = []
    Dump(Stream(telemetry), Choice(), records.append, pytest.fail).once()
    assert len(records) == 200
    assert [shard["records"] for shard in mosq.journal.report.figures(telemetry)["shards"][:2]] == [100, 100]


def invoke(*args: object) -> Result:
    return CliRunner().invoke(journal, [str(arg) for arg in args], standalone_mode=False)


def lines(result: Result) -> list[dict]:
    assert result.return_value == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


# ---- stats

def test_stats_lists_streams_and_the_lag_of_consumers(store: Path, telemetry: Path) -> None:
    Stream(telemetry).put_consumer("spark", [90, 100])
    (telemetry / "consumers/old").write_bytes(b"x")
    events, counted = lines(invoke("stats", "--json", store))
    assert (events["stream"], events["records"], counted["stream"], counted["records"]) == ("events", 2, "telemetry", 200)
    assert (counted["oldest"], counted["newest"]) == ("2026-09-21T14:13:20.000000Z", "2026-09-21T14:16:39.000000Z")
    assert counted["bytes"] == sum(path.stat().st_size for path in telemetry.glob("*.seg"))
    assert counted["segments"] == len(list(telemetry.glob("*.seg"))) == sum(shard["segments"] for shard in counted["shards"])
    assert [(shard["first_seq"], shard["next_seq"]) for shard in counted["shards"]] == [(0, 100), (0, 100)]
    assert counted["records_per_s"] == pytest.approx(1, rel=0.05)
    assert [(each["name"], each["lag"], each["damaged"]) for each in counted["consumers"]] == [("old", None, True), ("spark", 10, False)]
    text = invoke("stats", telemetry).stdout
    assert "telemetry: 200 records" in text and "consumer spark: 10 records behind" in text and "remove consumers/old" in text


def test_an_empty_stream_has_figures(tmp_path: Path) -> None:
    PyJournal(tmp_path / "s").close()
    (counted,) = lines(invoke("stats", "--json", tmp_path / "s"))
    assert (counted["records"], counted["oldest"], counted["records_per_s"]) == (0, None, None)
    assert "0 records" in invoke("stats", tmp_path / "s").stdout
    assert invoke("check", tmp_path / "s").return_value == 0


@pytest.mark.parametrize("command", ["stats", "check", "dump"])
def test_an_error_without_a_stream_names_the_remedy(tmp_path: Path, command: str) -> None:
    result = invoke(command, tmp_path / "no")
    assert result.return_value == 1 and "no such folder; expected" in result.stderr
    result = invoke(command, tmp_path)
    assert result.return_value == 1 and "no stream there; a broker writes one with `stream NAME FILTER...`" in result.stderr
    PyJournal(tmp_path / "s").close()
    (tmp_path / "s/mark.a").unlink()
    (tmp_path / f"s/000-{0:020}-{1:020}.seg").write_bytes(b"")
    result = invoke(command, tmp_path / "s")
    assert result.return_value == 1 and "mark is missing; start the broker" in result.stderr


# ---- check

def test_check_reads_all_records_and_reports_losses(store: Path, telemetry: Path) -> None:
    result = invoke("check", store)
    assert result.return_value == 0 and "telemetry: 200 records: no damage found." in result.stdout
    segments = sorted(telemetry.glob("000-*.seg"))
    segments[1].unlink()
    data = bytearray(segments[3].read_bytes())
    data[4096 + 100] ^= 1
    segments[3].write_bytes(data)
    result = invoke("check", "--json", telemetry)
    assert result.return_value == 1
    found = json.loads(result.stdout)
    assert [(hole["why"], hole["from"]) for hole in found["lost"]] == [("missing", int(segments[1].name[4:24])), ("damaged", int(segments[3].name[4:24]))]
    assert found["records"] == 200 - sum(hole["records"] for hole in found["lost"])
    assert "damaged: " in invoke("check", telemetry).stdout


def test_check_reports_a_damaged_consumer(telemetry: Path) -> None:
    (telemetry / "consumers/old").write_bytes(b"x")
    result = invoke("check", telemetry)
    assert result.return_value == 1 and "write it again, or remove" in result.stdout


# ---- dump

def test_dump_prints_records_in_order_of_time(telemetry: Path) -> None:
    rows = lines(invoke("dump", telemetry))
    assert [row["payload"].rstrip("\0") for row in rows] == [str(i) for i in range(200)]
    assert [(row["shard"], row["seq"]) for row in rows[:3]] == [(0, 0), (1, 0), (0, 1)]


@pytest.mark.parametrize(("options", "expected"), [
    (["--shard", "1", "--from", "98"], [197, 199]),
    (["--shard", "0", "--from", "3", "--to", "5"], [6, 8]),
    (["--from", "2026-09-21T14:13:30Z", "--to", "2026-09-21T16:13:33+02:00"], [10, 11, 12]),
    (["--from", "97", "--filter", "plant/+/temp", "--limit", "3"], [194, 195, 196]),
    (["--from", "95", "--filter", "plant/1/#"], [190, 193, 196, 199]),
    (["--from", "1000"], []),
    (["--to", "0"], []),
])
def test_dump_prints_the_requested_records(telemetry: Path, options: list[str], expected: list[int]) -> None:
    assert [int(row["payload"].rstrip("\0")) for row in lines(invoke("dump", telemetry, *options))] == expected


def test_dump_prints_all_fields(store: Path) -> None:
    first, second = lines(invoke("dump", store / "mosquitto.db.store/streams/events"))
    assert (first["kind"], first["client_id"], first["reason"], first["topic"]) == ("disconnect", "meter", 0x8E, None)
    assert (second["qos"], second["retain"], second["username"], second["payload_base64"]) == (1, True, "u", "/w==")
    assert second["properties"]["user_properties"]


def test_dump_reports_losses_on_stderr(telemetry: Path) -> None:
    sorted(telemetry.glob("000-*.seg"))[1].unlink()
    result = invoke("dump", telemetry)
    assert "are missing" in result.stderr and len(lines(result)) < 200


@pytest.mark.parametrize("options", [["--from", "yesterday"], ["--to", "2026-13-01"], ["--from", str(1 << 62)], ["--shard", "2"]])
def test_an_invalid_position_is_an_error(telemetry: Path, options: list[str]) -> None:
    result = invoke("dump", telemetry, *options)
    assert isinstance(result.exception, click.UsageError)
    assert re.search(r"neither a sequence number nor a time such as|too large|has 2 shards", result.exception.format_message())


def test_dump_of_several_streams_is_an_error(store: Path) -> None:
    result = invoke("dump", store)
    assert result.return_value == 1 and "several streams; expected one of" in result.stderr


def test_follow_continues_with_new_records(tmp_path: Path) -> None:
    face = PyJournal(tmp_path / "s", shards=2)
    put(face, 0, 10)
    got: list[str] = []
    more = iter(range(10, 40, 10))
    dump = Dump(Stream(tmp_path / "s"), Choice(begin=Place(seq=2), limit=32), got.append, got.append)

    def wait() -> None:
        lo = next(more)
        writer = threading.Thread(target=put, args=(face, lo, lo + 10))
        writer.start()
        writer.join()

    dump.follow(wait)
    assert [int(json.loads(line)["payload"].rstrip("\0")) for line in got] == list(range(4, 36))


def test_a_place_is_a_number_or_a_time() -> None:
    assert place_of("2026") == Place(seq=2026)
    assert place_of("2026-09-21T14:13:20Z") == Place(time_us=START_US)
