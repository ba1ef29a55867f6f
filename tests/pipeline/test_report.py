"""Test `mosq pipeline report` in a real browser (each section on a desktop, on a phone and on paper), and its figures against Arrow's."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from mosq.pipeline import MosqPipelineError
from mosq.pipeline.report import about_devices, about_sessions, about_values, gather, sections
from mosq.pipeline.report.gather import Tables
from mosq.pipeline.report.make import contents, write
from mosq.tools.bench.html.parts import Lines
from tests.pipeline import gold

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHROMIUM = "/usr/bin/chromium-headless-shell"       # Debian's; playwright's own cannot be downloaded everywhere
COLOURS_LEAST = 150            # the smoothed letters of two lines alone have 80
SECTIONS = ["audit", "source", "traffic", "values", "topics", "clients", "prefixes", "latency", "fanout", "drops", "churn", "devices", "backlog",
            "quarantine", "late"]


@pytest.fixture(scope="module")
def made(spark: SparkSession) -> Tables:
    return gold.tables(spark)


@pytest.fixture(scope="module")
def folder(made: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "out"
    steps: list[str] = []
    written = write(out, "A pipeline, made up", made, steps.append)
    assert {path.name for path in written} == {"report.html", "quarantine.csv", *(f"{name}.csv" for name in made.gold)} and len(steps) > 20
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])     # the tests run as root
        yield browser
        browser.close()


def colours(page: Page, name: str) -> int:
    """Return the number of colours in a picture of the section, as far as the window shows it."""
    box = page.locator(f"#{name}").evaluate("""section => { section.scrollIntoView({block: 'start', behavior: 'instant'});
        const r = section.getBoundingClientRect(); return [r.left, Math.max(r.top, 0), r.right, Math.min(r.bottom, innerHeight)]; }""")
    taken = page.context.new_cdp_session(page).send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})["data"]
    picture = Image.open(io.BytesIO(base64.b64decode(taken))).convert("RGB").crop(tuple(box))
    return len(picture.resize((picture.width // 3, picture.height // 3), Image.Resampling.NEAREST).getcolors(1 << 24) or ())


@pytest.mark.interop
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")], ids=["desk", "phone"])
def test_each_section_is_there_and_not_empty(browser: Browser, folder: Path, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or said.append(asked.url))
    page.goto((folder / "report.html").as_uri())
    assert [section.get_attribute("id") for section in page.locator("section").all()] == SECTIONS
    for name in SECTIONS:
        assert colours(page, name) > COLOURS_LEAST, name
    wide, shown = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    out = page.evaluate("""[...document.querySelectorAll('figure div svg')].flatMap(svg => { const e = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')].filter(t => { const r = t.getBoundingClientRect();
        return r.left < e.left - 1 || r.right > e.right + 1 || r.top < e.top - 1 || r.bottom > e.bottom + 1; }).map(t => t.textContent); })""")
    assert wide <= shown and out == [] and page.locator("figure div svg").count() > 18
    # names are shown as text
    assert page.title() == "A pipeline, made up" and page.locator("script").count() == 0
    assert "<script>" in page.locator("#prefixes").inner_text() and "ALARM" in page.locator("header").inner_text()
    assert page.locator("header .kind").inner_text().lower() == "mosq pipeline report" and said == []
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    context.close()


def test_figures_are_those_of_the_tables(made: Tables, folder: Path) -> None:
    arrow = gold.arrow()
    messages = pc.sum(arrow["topics"]["messages"]).as_py()
    traffic = sections.traffic(made)
    assert ("Messages", f"{messages:,}") in traffic.facts
    [line] = traffic.charts[0].lines
    assert sum(value.median for _, value in line.points) * 60 == pytest.approx(messages) and len(line.points) == gold.WINDOWS
    first = sections.ranked(made, "topics", "topic", "Topics", "").tables[0].rows[0]
    by_topic = arrow["topics"].group_by("topic").aggregate([("messages", "sum")]).sort_by([("messages_sum", "descending")]).to_pylist()[0]
    assert (first[0].text, first[1].text) == (by_topic["topic"], f"{by_topic['messages_sum']:,}")
    with (folder / "topics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == arrow["topics"].num_rows and sum(int(row["messages"]) for row in rows) == messages
    assert f"'{gold.FORMULA}" in {row["topic"] for row in rows} and rows[0]["window_start"].startswith("2026-11-01T12:59:00")


def test_alarms_are_on_top(made: Tables, spark: SparkSession) -> None:
    audit = about_sessions.audit(made)
    assert audit.warnings[0] == "ALARM: messages of 2 of 7 sessions do not add up."
    assert "+3 between published messages and their outcomes" in audit.warnings[1] and ", session 8): has ended, and 5 still wait" in audit.warnings[2]
    assert audit.warnings[2].startswith("owing (node ")
    good = about_sessions.audit(gold.tables(spark, wrong=False))
    assert good.warnings == [] and good.notes[0].startswith("All 5 sessions add up: ")
    assert "dropped" in good.notes[0].partition(" or waits. ")[2]


def test_the_head_names_what_is_missing_for_the_audit(made: Tables, spark: SparkSession, tmp_path: Path) -> None:
    """With events of clients that have no persistent session, the head said that the events are missing."""
    none = spark.createDataFrame(gold.arrow()["audit"].slice(0, 0))
    for name, shown, reason in (
            ("clients", {"audit": none, "churn": made.gold["churn"]}, "the broker's events name no persistent session"),
            ("nothing", {"audit": none}, "it needs the broker's events: stream_events true")):
        write(tmp_path / name, "", Tables(shown), lambda step: None)
        html = unescape((tmp_path / name / "report.html").read_text())
        assert html.index(f"No accounts of sessions: {reason}.") < html.index("<section")


def test_devices_are_offline_silent_or_unusual(made: Tables) -> None:
    section = about_devices.devices(made)
    assert dict(section.facts) == {"Clients on a topic": "1", "Clients online": "1", "Clients offline": "1", "Gaps in telemetry": "2", "Silent now": "1",
                                   "Windows with an unusual rate": "1"}
    offline, gaps, rates = ([[cell.text for cell in row] for row in table.rows] for table in section.tables)
    assert offline[0][:3] == ["pump", "n1", "offline"] and [row[4] for row in gaps] == ["still silent", "2026-11-01 12:00:20"] and rates[0][4:] == ["60", "20", "14", "26"]
    assert not about_devices.devices(Tables({})).filled


def test_values_have_a_line_for_each_topic_or_one_for_all(made: Tables) -> None:
    section = about_values.values(made)
    assert dict(section.facts) == {"Values": "2,880", "Fields": "2"}
    assert [[cell.text for cell in row] for row in section.tables[0].rows] == [
        ["power", "value", "2,400", "10", "-10.8", "40.1", "93.0"], ["temps", "celsius", "480", "2", "-10.8", "0.0833", "13.0"]]
    power, temps = section.charts
    assert isinstance(power, Lines) and isinstance(temps, Lines)
    assert [line.label for line in power.lines] == ["all topics"] and [line.label for line in temps.lines] == ["north", "south"]
    first = [line.points[0][1] for line in (*power.lines, *temps.lines)]
    assert [(one.median, one.least, one.most) for one in first] == [(45.0, -1.0, 93.0), (0.0, 0.0, 0.0), (10.0, 10.0, 10.0)]
    assert {len(line.points) for chart in (power, temps) for line in chart.lines} == {gold.WINDOWS}
    assert not about_values.values(Tables({})).filled


def test_a_long_table_of_devices_is_folded(spark: SparkSession) -> None:
    offline = [{"node": "n", "client_id": f"c{i:02}", "online": False, "state": "offline", "since": gold.BEGIN, "reason": 0, "connects": 1} for i in range(40)]
    frames = {"devices": spark.createDataFrame(gold.table([{"topic": "t", "client_id": "c00"}])),
              "presence": spark.createDataFrame(gold.table(offline, online=pa.bool_(), state=pa.string(), since=pa.timestamp("us", "UTC")))}
    section = about_devices.devices(Tables(frames))
    assert len(section.tables[0].rows) == gather.BARS
    assert [(title, len(one.rows)) for title, one in section.folded] == [("Offline clients, the last ones first: the first 40", 40)]


def test_fan_out_and_lag_and_reasons(made: Tables) -> None:
    # 70 sites: a matches each; a twice and b once match site 7
    by = {row[0].text: row[1].text for row in sections.fan_out(made).tables[0].rows}
    assert by == {"none": "2", "1": "69", "2 to 9": "1"}
    source = sections.source(made)
    assert "10 records are on the disk but not in the tables yet" in source.notes[0] and source.tables[0].rows[0][2].text == "10"
    drops = about_sessions.drops(made)
    assert {row[0].text for row in drops.tables[0].rows} == {"queue messages", "expired", "reason 200"}
    ends = {row[0].text for row in about_sessions.churn(made).tables[0].rows}
    assert ends == {"still connected", "disconnected", "taken over", "reason 0xC8"}


def test_a_span_is_cut_into_few_bins(spark: SparkSession) -> None:
    frame = spark.createDataFrame(gold.table([{**gold.window(i), "rows": 1} for i in (0, 1, 10_000)]))
    over = gather.span(frame)
    assert over is not None and len(over.bins()) <= gather.POINTS and over.width_s % 60 == 0
    assert sum(one["rows"] for one in gather.summed(frame, over, ("rows",)).values()) == 3


def test_a_page_without_data(spark: SparkSession, tmp_path: Path) -> None:
    empty = Tables({name: spark.createDataFrame(one.slice(0, 0)) for name, one in gold.arrow().items()}, place="/tables")
    found = contents(empty, lambda step: None)
    assert [section.id for section in found] == ["source", "missing"]
    assert len(found[-1].tables[0].rows) == len(SECTIONS) - 1
    (tmp_path / "file").write_text("")
    with pytest.raises(MosqPipelineError, match="cannot write"):
        write(tmp_path / "file" / "out", "", Tables({}), lambda step: None)
