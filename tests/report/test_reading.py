"""Test the reading of results from any source: no content may end the report, become markup, or be dropped without a report."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mosq.tools.bench.html import figures, numbers, reading, sections
from mosq.tools.bench.html.command import contents
from mosq.tools.bench.html.figures import Spread, groups, tail
from mosq.tools.bench.html.lab import Lab
from mosq.tools.bench.html.model import Folder
from mosq.tools.bench.html.parts import Bars, Curves, Lines, Section
from mosq.tools.bench.html.reading import read
from mosq.tools.bench.spec import BenchError
from mosq.tools.extras import install_advice
from mosq.cli.commands import main
from tests.report import folder

ROOT = Path(__file__).parents[2]


def one(**phase: Any) -> dict[str, Any]:
    """Return the first run of the artificial lab, with parts of its phase replaced."""
    told = folder.first()
    told["phases"][0].update(phase)
    return told


def lines_of(path: Path, *lines: str | bytes) -> Folder:
    path.joinpath("runs.jsonl").write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
    return read(str(path))


GOOD = json.dumps(one())


@pytest.mark.parametrize(("line", "why"), [
    ("{", "not JSON: Expecting property name"), (GOOD[:400], "not JSON"), (b"\xff\xfe", "not JSON: not UTF-8"),
    ("[1]", "the line: expected an object"), ("{}", "format None; this reads format 1"), ('{"format": 2, "run": {}, "phases": []}', "format 2"),
    (json.dumps({"format": 1, "phases": []}), "run: expected an object"), (json.dumps({"format": 1, "run": {"test": "a"}}), "phases: expected a list"),
    (json.dumps({**one(), "run": {"test": 1}}), "test: expected text"), (json.dumps({**one(), "phases": [7]}), "a phase: expected an object"),
    (json.dumps(one(rate="fast")), "rate: expected a number"), (json.dumps(one(rate=-1)), "rate: below zero"), (GOOD.replace('"per": 100000', '"per": 1e999'), "per: out of bounds"),
    (GOOD.replace('"per": 100000', '"per": NaN'), "NaN is not a number"), (GOOD.replace('"per": 100000', '"per": ' + "9" * 5000), "a number is too long"),
    (GOOD.replace('"per": 100000', '"per": ' + "9" * 400), "per: out of bounds"),
    (json.dumps(one(latency={"count": 1, "buckets_ns": [[1, 2]]})), "buckets_ns: expected"), (json.dumps(one(latency={"count": 1, "buckets_ns": [[2, 1, 1]]})), "buckets_ns"),
    (json.dumps(one(latency={"count": 1, "buckets_ns": {"a": 1}})), "buckets_ns: expected"),
    (json.dumps(one(latency={"count": 1, "buckets_ns": 5})), "buckets_ns: expected"),
    (json.dumps(one(latency=[])), "latency: expected an object"), (json.dumps(one(complete="yes")), "complete: expected true or false"),
    (json.dumps(one(broker=5)), "broker: expected an object"), (json.dumps(one(broker={"cpu_us_per": []})), "cpu_us_per: expected a number"),
    ("[" * 100_000, "nested too deep")])
def test_a_wrong_line_is_reported_and_the_others_are_read(tmp_path: Path, line: str | bytes, why: str) -> None:
    found = lines_of(tmp_path, GOOD, line, "", GOOD)
    problem, = found.problems
    assert problem.startswith(f"{tmp_path}/runs.jsonl:2: ") and why in problem
    assert found.runs == 2 == len(found.rows)


def test_missing_values_are_allowed(tmp_path: Path) -> None:
    found = lines_of(tmp_path, json.dumps({"format": 1, "phases": [{}], "run": {}}))
    row, = found.rows
    assert not found.problems and row.rate == 0 and row.times.count == 0 and figures.CPU.value(row) is None
    assert [section.id for section in contents(Lab(found))[1]] == ["measured", "missing"]


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none", "expected a folder"), (tmp_path, "no results in it")):
        with pytest.raises(BenchError, match=why):
            read(str(path))
    with pytest.raises(BenchError, match="not JSON"):
        lines_of(tmp_path, "{")


def test_reading_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "RUNS_MAX", 2)
    found = lines_of(tmp_path, GOOD, GOOD, GOOD)
    assert found.runs == 2 and "more than 2 runs; reading stopped at line 3" in found.problems[0]
    monkeypatch.setattr(reading, "LINE_BYTES_MAX", len(GOOD) + 1)
    found = lines_of(tmp_path, GOOD, GOOD + " " * 50)
    assert found.runs == 1 and "line 2 has more than" in found.problems[0]
    monkeypatch.setattr(reading, "PROBLEMS_MAX", 3)
    assert len(lines_of(tmp_path, GOOD, *"{{{{{{").problems) == 4
    monkeypatch.setattr(reading, "TOTAL_BYTES_MAX", 1000)
    with pytest.raises(BenchError, match="MB of results; this reads"):
        read(str(tmp_path))


def test_results_by_hand_have_their_own_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BY_HAND_BYTES_MAX", len(GOOD) + 10)
    assert lines_of(tmp_path, GOOD, GOOD, GOOD).runs == 3
    for i in range(2):
        (tmp_path / f"{i}.json").write_text(GOOD)
    with pytest.raises(BenchError, match=r"MB of \*.json; this reads"):
        read(str(tmp_path))


def test_the_number_of_brokers_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "COLUMNS_MAX", 3)          # the empty variant counts as one
    found = lines_of(tmp_path, *(json.dumps({**one(), "run": {**one()["run"], "broker": f"b{i}"}}) for i in range(4)))
    assert found.brokers() == ["b0", "b1"] and "runs.jsonl:3: more than 3 brokers and variants" in found.problems[0]


def test_any_junk_value_is_read_or_reported(tmp_path: Path) -> None:
    """Test junk in place of each value of a run, of about.json and of locust.json: the only effect may be a problem."""
    junk = (None, True, -1, 0, 1e17, 10**400, "", "<b>", "x" * 500, [], [[]], [None], {}, {"": 0}, {"count": 1}, {"format": 1})

    def places(told: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        items = told.items() if isinstance(told, dict) else enumerate(told[:2]) if isinstance(told, list) else ()
        return [path, *(found for key, value in items for found in places(value, (*path, key)))] if path or items else [path]

    def put(told: Any, path: tuple[Any, ...], value: Any) -> Any:
        copy = json.loads(json.dumps(told))
        at = copy
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        return copy

    told = one()
    told["phases"][0]["latency"]["buckets_ns"] = [[1000, 1001, 5], [2000, 2001, 5]]
    lines = [json.dumps(put(told, path, value)) for path in places(told)[1:] for value in junk]
    found = lines_of(tmp_path, GOOD, *lines)
    assert len(lines) > 1000 and 300 < found.runs < len(lines)
    contents(Lab(found))
    for name, whole in (("about.json", folder.ABOUT), ("locust.json", folder.LOCUST)):
        for path in places(whole)[1:]:
            for value in junk:
                (tmp_path / name).write_text(json.dumps(put(whole, path, value)))
                probe = Folder("")
                with reading._Naming(probe, name):
                    told = reading.table(reading._parsed((tmp_path / name).read_bytes()), name)
                    reading._format(told)
                    contents(Lab(Folder("", about=reading._about(told)) if name == "about.json" else Folder("", locust=reading._locust(told))))


def test_junk_in_results_by_hand(tmp_path: Path) -> None:
    """Test junk beside a good result: it must not become a place on an axis."""
    good = folder.first()
    del good["run"]
    (tmp_path / "good.json").write_text(json.dumps(good))
    for name, value in (("name", 5), ("clients", "x"), ("publishers", "many"), ("messages", [1]), ("qos", "<b>"), ("size", 10**400), ("messages", 10**400), ("x" * 999, {})):
        (tmp_path / "bad.json").write_text(json.dumps({**good, "options": {**good["options"], name: value}}))
        found = read(str(tmp_path))
        assert found.runs + len(found.problems) == 2
        contents(Lab(found))
    for name, value in (("started", 5), ("scenario", []), ("options", 7)):
        (tmp_path / "bad.json").write_text(json.dumps({**good, name: value}))
        found = read(str(tmp_path))
        assert found.runs == len(found.problems) == 1


def test_the_other_files_are_checked_too(tmp_path: Path) -> None:
    folder.write(tmp_path, [one()], about={**folder.ABOUT, "brokers": {"mosq": 5}}, locust={**folder.LOCUST, "entries": [{"p50_ms": "x"}]})
    (tmp_path / "other.json").write_text('{"format": 1}')
    found = read(str(tmp_path))
    assert found.rows and found.locust is None and [problem.rpartition("/")[2] for problem in found.problems] == [
        "about.json: brokers.mosq: expected an object", "locust.json: p50_ms: expected a number", "other.json: expected a result of `mosq bench --json`"]


def test_names_are_bounded_and_printable(tmp_path: Path) -> None:
    run = {**one()["run"], "broker": "b" * 500, "test": "t\x1b[31m\udc80\t", "title": ""}
    row, = lines_of(tmp_path, json.dumps({**one(), "run": run})).rows
    assert len(row.key.broker) == reading.NAME_CHARS_MAX and row.title == "t\N{REPLACEMENT CHARACTER}[31m\N{REPLACEMENT CHARACTER}\t"


def test_runs_by_hand(tmp_path: Path) -> None:
    """Test that equal options make repetitions, and that different ones make cases."""
    for i, (name, qos, size) in enumerate((("mosq", 1, 64), ("mosq", 1, 64), ("mosq", 1, 1024), ("other", 0, 64))):
        told = folder.line({}, "pairs", one()["phases"], qos=qos, size=size, name=name, port=1000 + i)
        del told["run"]
        (tmp_path / f"{i}.json").write_text(json.dumps(told))
    found = groups(read(str(tmp_path)))
    assert [(group.key.broker, group.key.test, group.key.case, group.key.x, len(group.rows)) for group in found] == [
        ("mosq", "pairs", "QoS 1", 64, 2), ("mosq", "pairs", "QoS 1", 1024, 1), ("other", "pairs", "QoS 0", 64, 1)]
    told["options"]["burst"] = 20
    (tmp_path / "4.json").write_text(json.dumps(told))
    found = groups(read(str(tmp_path)))
    assert [(group.key.broker, group.key.test, group.key.case, len(group.rows)) for group in found] == [
        ("mosq", "pairs", "QoS 1, size 64, burst None", 2), ("mosq", "pairs", "QoS 1, size 1,024, burst None", 1),
        ("other", "pairs", "QoS 0, size 64, burst None", 1), ("other", "pairs", "QoS 0, size 64, burst 20", 1)]


def test_runs_by_hand_without_names_get_the_address_of_the_broker(tmp_path: Path) -> None:
    for i, (where, port, cafile) in enumerate((("mosq", 40_001, "a"), ("mosq", 40_002, "b"), ("", 1883, "a"), ("", 1884, "a"), ("192.0.2.1:1883", 1883, "a"))):
        told = folder.line({}, "pairs", one()["phases"], qos=1, host="127.0.0.1", port=port, cafile=cafile, cert=cafile, key=cafile, servername=cafile)
        del told["run"]
        (tmp_path / f"{i}.json").write_text(json.dumps({**told, **({"where": where} if where else {})}))
    assert [(group.key.broker, group.key.case, len(group.rows)) for group in groups(read(str(tmp_path)))] == [
        ("mosq", "QoS 1", 2), ("127.0.0.1:1883", "QoS 1", 1), ("127.0.0.1:1884", "QoS 1", 1), ("192.0.2.1:1883", "QoS 1", 1)]


# ---------------------------------------------------------------- the sections

def lab(*lines: dict[str, Any]) -> Lab:
    found = Folder("made up")
    for told in lines:
        reading._run(found, told, told["run"])
    return Lab(found)


def section_of(lab: Lab, name: str) -> Section:
    return next(section for section in contents(lab)[1] if section.id == name)


def test_medians_and_their_spread() -> None:
    told = [one(rate=rate) for rate in (3e6, 1e6, 2e6)]
    for rep, each in enumerate(told):
        each["run"]["rep"] = rep
    section = section_of(lab(*told), "throughput")
    chart, = section.charts
    assert isinstance(chart, Bars) and chart.groups[0][1][0].value == Spread(2e6, 1e6, 3e6, 3)
    cell = section.tables[0].rows[0][-1]
    assert (cell.text.replace("\N{NARROW NO-BREAK SPACE}", " "), cell.spread) == ("2.00 M/s", "1.00–3.00")


def test_incomplete_runs_are_listed_and_in_no_figure() -> None:
    broken = one(complete=False, rate=1.0)
    broken.update(complete=False, why="the broker went away")
    found = lab(one(rate=2e6), broken)
    assert section_of(found, "throughput").tables[0].rows[0][-1].text.startswith("2.00")
    assert "the broker went away" in [cell.text for cell in section_of(found, "missing").tables[0].rows[0]]
    assert any("1 of 2 runs broke off" in warning for warning in section_of(found, "measured").warnings)


def test_without_complete_runs_there_is_no_sentence_on_messages() -> None:
    broken = one(complete=False)
    broken.update(complete=False, why="the broker went away")
    assert sections.summary(lab(broken)) == ["0 of 1 runs finished."]
    assert sections.summary(lab(broken, one())) == ["1 of 2 runs finished, and every message in them was received once and in order."]


def test_doubtful_figures_are_marked() -> None:
    found = lab(one(limit="generator", foreign_cpu_share=0.5, lost=3, seconds=1.0))
    assert section_of(found, "throughput").tables[0].rows[0][-1].marks == "gfx"
    warnings = " ".join(section_of(found, "measured").warnings)
    assert "The load generator was the bottleneck" in warnings and "more than a quarter of a core" in warnings and "measured only once" in warnings


def test_notes_of_the_plan_are_on_the_page() -> None:
    told = []
    for x, note in ((1000, "without connecting"), (19_899, "without connecting; 19,899 publishers instead of 20,000: open files")):
        each = one()
        each["run"].update(x=x, x_name="publishers", case=f"{x:,} publishers", suite="paper", note=note, start="mosq -c DIR/x &",
                           command="mosq bench fan-in --broker-pid $!", dropped_packets=x - 1000)
        told.append(each)
    found = lab(*told)
    for name in ("throughput", "paper"):
        cells = [cell for row in section_of(found, name).tables[0].rows for cell in row if cell.text.endswith("publishers")]
        assert [(cell.text, cell.note) for cell in cells] == [
            ("1,000 publishers", ""), ("19,899 publishers", "19,899 publishers instead of 20,000: open files")]
    measured = section_of(found, "measured")
    assert measured.notes == ["50 publishers to one subscriber: without connecting."]
    assert any(warning.startswith("In 1 of 2 runs the kernel dropped packets") for warning in measured.warnings)
    assert measured.folds[-1] == ("Commands that repeat each run by hand (1)", "mosq -c DIR/x &\nmosq bench fan-in --broker-pid $!")


def test_omitted_measurements_are_on_the_page(tmp_path: Path) -> None:
    folder.write(tmp_path, [one()], about={**folder.ABOUT, "left_out": ["other was left out of tls: it has none"]}, locust=None)
    found = Lab(read(str(tmp_path)))
    assert "other was left out of tls: it has none" in section_of(found, "measured").warnings[0]
    assert [row[0].text for row in section_of(found, "missing").tables[0].rows] == ["other was left out of tls: it has none"]


def test_figures_of_the_paper_combine_all_repetitions() -> None:
    told = []
    for rep, (seconds, count, mean, deviation, most) in enumerate(((1.0, 10, 100.0, 0.0, 5e3), (2.0, 10, 100.0, 10.0, 1e3), (6.0, 20, 200.0, 0.0, 2e3))):
        each = one(seconds=seconds, latency={"count": count, "mean_us": mean, "stdev_us": deviation, "max_us": most})
        each["run"].update(suite="paper", rep=rep)
        told.append(each)
    table, = section_of(lab(*told), "paper").tables
    shown = {head.text: (cell.text.replace("\N{NARROW NO-BREAK SPACE}", " "), cell.spread) for head, cell in zip(table.heads, table.rows[0], strict=True)}
    assert shown["mean run time"] == ("3.00 s", "1.00–6.00") and shown["largest delay"] == ("5.00 ms", "1.00–5.00")
    # (10 * 50**2 + 10 * (50**2 + 10**2) + 20 * 50**2) / 40 = 2525
    assert shown["mean delay of all"] == ("150 µs", "100–200") and shown["deviation of all delays"] == ("50.2 µs", "0–10.0")
    del told[0]["phases"][0]["latency"]["stdev_us"]
    assert "deviation of all delays" in [head.text for head in section_of(lab(*told), "paper").tables[0].heads]


@pytest.mark.parametrize(("seconds", "marks"), [(0.049, ""), (0.051, "g"), (0.21, "gf")])
def test_a_short_phase_has_no_mark(seconds: float, marks: str) -> None:
    group, = lab(one(limit="generator", foreign_cpu_share=0.5, seconds=seconds)).groups
    assert group.marks == marks


def test_a_series_is_a_line_and_cases_are_bars() -> None:
    found = Lab(_all())
    charts = section_of(found, "throughput").charts
    assert [type(chart) for chart in charts] == [Bars, Lines, Bars, Lines, Bars]
    line = next(chart for chart in charts if isinstance(chart, Lines) and chart.x_name == "bytes")
    assert [x for x, _ in line.lines[0].points] == [100, 10_000, 1_000_000] and line.lines[0].label == "mosq"


def test_a_series_whose_numbers_have_names_is_one_line() -> None:
    """Test numbers that each have a case with its name, as the lab writes them."""
    told = []
    for x in (10, 20):
        each = one()
        each["run"].update(x=x, x_name="messages", case=f"{x} messages each")
        told.append(each)
    section = section_of(lab(*told), "throughput")
    chart, = section.charts
    assert isinstance(chart, Lines) and [x for x, _ in chart.lines[0].points] == [10, 20]
    assert [row[1].text for row in section.tables[0].rows] == ["10 messages each", "20 messages each"]


def test_the_first_column_names_a_test_once() -> None:
    section = section_of(Lab(_all()), "throughput")
    assert section.tables[0].spans() == [3, 0, 0, 3, 0, 0] and [row[0].text[:3] for row in section.tables[0].rows[2:4]] == ["50 ", "Idl"]


def test_ratios_are_taken_within_a_repetition() -> None:
    """Test with a machine that was twice as slow in the second repetition."""
    told = []
    for rep, slow in enumerate((1.0, 2.0, 1.0)):
        for broker, cost in (("mosq", 1.0), ("other", 3.0)):
            each = one(broker={"cpu_us_per": cost * slow})
            each["run"].update(broker=broker, rep=rep)
            told.append(each)
    found = section_of(lab(*told), "peers")
    assert found.tables[0].rows[0][-1].text.startswith("3.00") and found.tables[0].rows[0][-1].spread == "3.00–3.00"


def test_ablation_shows_the_savings() -> None:
    told = []
    for variant, cost in (("", 1.0), ("no letters", 4.0)):
        each = one(broker={"cpu_us_per": cost})
        each["run"].update(variant=variant, suite="ablation")
        told.append(each)
    found = lab(*told)
    saved, cost = (table.rows[0] for table in section_of(found, "ablation").tables[:2])
    assert [cell.text.replace("\N{NARROW NO-BREAK SPACE}", " ") for cell in saved[:3]] == ["no letters", "+75 %", "+75 %"]
    assert [cell.text.replace("\N{NARROW NO-BREAK SPACE}", " ") for cell in cost[2:]] == ["1.00 µs", "4.00 ×"]
    assert "cpu" not in [section.id for section in contents(found)[1]]


@pytest.mark.parametrize(("us", "words"), [(0.6, "✓ met"), (0.61, "✗ missed")])
def test_the_promise_of_the_generator(us: float, words: str) -> None:
    assert section_of(lab(one(generator={"cpu_us_per": us})), "generator").tables[0].rows[0][-1].text == words


def test_the_promise_applies_to_small_messages_in_fan_in() -> None:
    told = one(generator={"cpu_us_per": 100.0})
    told["options"]["size"] = 1_000_000
    assert [table.title for table in section_of(lab(told), "generator").tables] == ["Scenarios of mosq bench"]


def test_the_promise_applies_to_one_load_and_no_mixture() -> None:
    def of(suite: str, us: float, broker: str = "mosq", case: str = "QoS 0", **options: Any) -> dict[str, Any]:
        told = one(generator={"cpu_us_per": us})
        told["run"].update(suite=suite, case=case, broker=broker, test=f"{suite}-fan-in", title=suite)
        told["options"].update(options)
        return told

    def promised(*told: dict[str, Any]) -> list[tuple[str, str, str, str]]:
        tables = [table for table in section_of(lab(*told), "generator").tables if table.title.startswith("Bound for")]
        return [(row[0].text, row[1].text, row[2].text, row[-1].text) for table in tables for row in table.rows]

    paper = [of("paper", 0.5, case="a"), of("paper", 5.0, case="b"), of("paper", 0.1, case="c", tls=True), of("paper", 0.1, case="d", size=100)]
    assert promised(*paper) == [("paper", "a", "mosq", "✓ met"), ("paper", "b", "mosq", "✗ missed")]
    assert promised(*paper, of("bench", 0.7), of("bench", 0.1, "other"), of("bench", 0.1, case="ws", ws=True)) == [
        ("bench", "QoS 0", "mosq", "✗ missed")]
    assert promised(of("bench", 0.1, "other"), of("bench", 0.1, tls=True)) == [("bench", "QoS 0", "other", "✓ met")]
    assert not promised(of("bench", 0.1, ws=True))


def test_a_load_test_with_locust(tmp_path: Path) -> None:
    folder.write(tmp_path, [])
    section = section_of(Lab(read(str(tmp_path))), "locust")
    assert ("Messages", "30,000 sent, 30,000 delivered, 0 lost") in section.facts and "Locust itself was the bottleneck" in section.warnings[0]
    assert [cell.text for cell in section.tables[0].rows[2][:4]] == ["connect", "connect storm", "30,000", "3"]
    assert [cell.text for cell in section.tables[1].rows[0]] == ["connect", "connect storm", "no connection: Connection refused", "3"]
    folder.write(tmp_path, [], locust={**folder.LOCUST, "complete": False, "why": "no broker"})
    assert "The load test is not complete: no broker." in section_of(Lab(read(str(tmp_path))), "locust").warnings


def test_histograms_of_repetitions_are_added() -> None:
    both = [one(latency={"count": 50, "p50_us": 1, "buckets_ns": [[1000, 1001, 50]]}), one(latency={"count": 50, "p50_us": 3, "buckets_ns": [[3000, 3001, 50]]})]
    points = dict(tail(lab(*both).folder.rows))
    assert points[0.5] == 1.0 and points[0.25] == 3.0 and 0.001 not in points       # no message is beyond 99.9 %


def test_a_curve_without_histograms_goes_through_the_quantiles() -> None:
    found = lab(one(latency={"count": 1000, "p50_us": 1.0, "p99_us": 9.0, "p9999_us": 10.0}))
    chart, = section_of(found, "latency").charts
    assert isinstance(chart, Curves) and chart.curves[0].points == ((0.5, 1.0), (0.01, 9.0))


def test_a_missing_deviation_comes_from_the_histogram() -> None:
    row, = lab(one(latency={"count": 2, "buckets_ns": [[1000, 1001, 1], [3000, 3001, 1]]})).folder.rows
    assert row.latency.us["stdev_us"] == pytest.approx(1.0)


@pytest.mark.parametrize(("kind", "value", "text"), [
    ("rate", 1_250_814, "1.25 M/s"), ("rate", 999, "999 /s"), ("time", 0.5, "0.500 µs"), ("time", 1234, "1.23 ms"), ("cpu", 561.49, "561 µs"),
    ("cpu", 12_345, "12.3 ms"), ("bytes", 571, "571 B"), ("bytes", 25_000_000_000, "25.0 GB"), ("ratio", 0.305, "0.305 ×"), ("time", 0, "0 µs"),
    ("ratio", 128_000, "128,000 ×"), ("rate", 999_999, "1,000 k/s")])
def test_numbers(kind: str, value: float, text: str) -> None:
    assert numbers.shown(kind, value).replace(numbers.NARROW, " ") == text


def test_places_and_percents() -> None:
    assert [numbers.place(x, name).replace(numbers.NARROW, " ") for x, name in ((100, "bytes"), (10_000, "bytes"), (70_000, "messages"), (20_000, "publishers"))] == [
        "100 B", "10 kB", "70,000 messages", "20,000 publishers"]
    assert [numbers.percent(share).replace(numbers.NARROW, " ") for share in (0.031, -0.25)] == ["+3.1 %", "−25 %"]


def _all() -> Folder:
    return lab(*folder.runs(2)).folder


# ---------------------------------------------------------------- the command

def test_csv_has_every_run_and_no_formula(tmp_path: Path) -> None:
    from mosq.tools.bench.html import csv_files

    found = lab(*folder.runs(2)[:4])
    evil = one()
    evil["run"]["title"] = "=cmd()"
    csv_files.write(str(tmp_path / "csv"), lab(evil, *folder.runs(2)), None)
    rows, medians, curves = (list(csv.DictReader((tmp_path / "csv" / name).read_text().splitlines())) for name in ("runs.csv", "medians.csv", "curves.csv"))
    assert rows[0]["title"] == "'=cmd()" and len(rows) == 1 + sum(phase["name"] != "hold" for run in folder.runs(2) for phase in run["phases"])
    assert len(medians) == len(lab(*folder.runs(2)).groups) and float(medians[0]["cpu_us_per"]) > 0 and curves
    with pytest.raises(BenchError, match="cannot write"):
        csv_files.write("/proc/none", found, None)


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_a_missing_package_is_reported(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: str) -> None:
    for name in ("page", "charts"):         # as if neither had been imported yet
        monkeypatch.delitem(sys.modules, f"mosq.tools.bench.html.{name}", raising=False)
        monkeypatch.delattr(sys.modules["mosq.tools.bench.html"], name, raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["bench", "report", folder.write(tmp_path, [one()])]) == 1
    assert f"is not installed: {install_advice('bench')}" in capfd.readouterr().err


def test_reading_and_comparing_need_nothing_installed() -> None:
    program = ("import sys, mosq.tools.bench.html.command, mosq.tools.bench.html.reading, mosq.tools.bench.html.sections, mosq.tools.bench.html.comparing, mosq.tools.bench.html.against, "
               "mosq.tools.bench.html.csv_files, mosq.cli.commands_bench; sys.exit(bool({'matplotlib', 'jinja2', 'numpy'} & sys.modules.keys()))")
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_mistakes_and_empty_folders(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["bench", "report"]) == 3
    assert main(["bench", "report", str(tmp_path)]) == 1 and "no results in it" in capfd.readouterr().err
    assert sections.some([]) == "" and sections.some(list("abcdefgh")) == "a; b; c; d; e; f; and 2 more"


@pytest.mark.interop
def test_unreadable_parts_are_reported_and_the_others_written(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder.write(tmp_path, [one()], about={})
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write(GOOD[:100])
    assert main(["bench", "report", str(tmp_path), "--out", str(tmp_path / "page.html")]) == 2
    out, err = capfd.readouterr()
    assert f"Warning: {tmp_path}/runs.jsonl:2: not JSON" in err and "about.json: format None" in err
    assert "1 runs" in out and "runs.jsonl:2" in (tmp_path / "page.html").read_text()
    assert main(["bench", "report", str(tmp_path), "--out", "/proc/none/page.html"]) == 1
