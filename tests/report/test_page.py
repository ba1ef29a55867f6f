"""Test the report in a real browser: headless Chromium shows each section on a desktop, on a phone and on paper."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from mosq.tools.bench.html.command import contents
from mosq.tools.bench.html.lab import Lab
from mosq.tools.bench.html.reading import read
from mosq.cli.commands import main
from tests.report import folder

pytestmark = pytest.mark.interop
CHROMIUM = "/usr/bin/chromium-headless-shell"       # Debian's; playwright's own cannot be downloaded everywhere
COLOURS_LEAST = 150            # the smoothed letters of two lines alone have 80
SECTIONS = ["measured", "against", "throughput", "cpu", "latency", "memory", "peers", "paper", "vendors", "ablation", "generator", "locust", "missing"]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("report")
    lines = folder.runs(reps=2)
    lines[3].update(complete=False, why="the broker went away")
    lines[0]["run"]["title"] = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"
    for one in lines:
        if one["run"]["test"] == "p2p":         # bars would vanish beside flashmq's
            one["phases"][0].update(broker={"cpu_us_per": {"flashmq-1.26.2": 449.0}.get(one["run"]["broker"], 0.391)})
    lines[1]["run"]["case"] = "$\\frac{ 名前 _x & y"
    new, old = folder.write(root / "new", lines), folder.write(root / "old", folder.runs(reps=2, slower=0.8, seed=2))
    assert main(["bench", "report", new, "--against", old, "--quiet"]) == 4
    return root / "new" / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])     # the tests run as root
        yield browser
        browser.close()


@pytest.fixture(scope="module", params=[(1280, "light"), (390, "dark")], ids=["desk", "phone"])
def page(request: pytest.FixtureRequest, browser: Browser, page_file: Path) -> Iterator[Page]:
    width, scheme = request.param
    context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: (said.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda asked: asked.url.startswith(("file:", "data:")) or said.append(asked.url))
    page.goto(page_file.as_uri())
    yield page
    context.close()
    assert said == []


def colours(page: Page, section: Locator) -> int:
    """Return the number of colours in a picture of the section, as far as the window shows it; every third pixel counts."""
    left, top, right, bottom = section.evaluate("""section => {
        section.scrollIntoView({block: 'start', behavior: 'instant'});
        const r = section.getBoundingClientRect();
        return [r.left, Math.max(r.top, 0), r.right, Math.min(r.bottom, innerHeight)];
    }""")
    session = page.context.new_cdp_session(page)
    taken = session.send("Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True})["data"]
    picture = Image.open(io.BytesIO(base64.b64decode(taken))).convert("RGB").crop((left, top, right, bottom))
    return len(picture.resize((picture.width // 3, picture.height // 3), Image.Resampling.NEAREST).getcolors(1 << 24) or ())


def box(page: Page, selector: str) -> list[dict[str, Any]]:
    """Return the elements that exceed their own box, such as text of a picture beyond its edges."""
    found: list[dict[str, Any]] = page.evaluate("""selector => [...document.querySelectorAll(selector)].map(svg => {
        const edge = svg.getBoundingClientRect();
        const out = [...svg.querySelectorAll('text')].filter(text => {
            const r = text.getBoundingClientRect();
            return r.left < edge.left - 1 || r.right > edge.right + 1 || r.top < edge.top - 1 || r.bottom > edge.bottom + 1;
        });
        return {width: edge.width, height: edge.height, out: out.map(text => text.textContent)};
    })""", selector)
    return found


def test_each_section_is_there_and_not_empty(page: Page) -> None:
    assert [section.get_attribute("id") for section in page.locator("section").all()] == SECTIONS
    for name in SECTIONS:
        section = page.locator(f"#{name}")
        size = section.bounding_box()
        assert size and size["width"] > 300 and size["height"] > 100, name
        section.evaluate("section => section.scrollIntoView({block: 'start', behavior: 'instant'})")
        assert colours(page, section) > COLOURS_LEAST, name
        assert section.locator("h2").is_visible() and section.locator(".sentence").is_visible()


def test_nothing_is_wider_than_the_page_or_cut_off(page: Page) -> None:
    wide, shown = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert wide <= shown
    pictures = box(page, "figure div svg")
    assert len(pictures) > 35
    assert [picture for picture in pictures if picture["width"] < 300 or picture["height"] < 60 or picture["out"]] == []
    # wide tables scroll in their own box
    assert page.evaluate("[...document.querySelectorAll('.table')].every(t => t.getBoundingClientRect().right <= innerWidth)")


def test_names_are_text(page: Page) -> None:
    assert page.title() == folder.ABOUT["title"]
    assert page.locator("script").count() == page.locator("img").count() == 0
    assert "<script>" in page.locator("#cpu").inner_text()


def test_a_broker_has_one_colour(page: Page) -> None:
    slots = page.evaluate("""() => [...document.querySelectorAll('th, td')].filter(cell => cell.querySelector('.dot'))
        .map(cell => [cell.textContent.replace('\\u2060', '').split(',')[0].trim(), getComputedStyle(cell.querySelector('.dot')).backgroundColor])""")
    assert {name for name, _ in slots} == set(folder.COST) and len({tuple(pair) for pair in slots}) == len(folder.COST)


def test_the_page_works_without_javascript_and_in_print(browser: Browser, page_file: Path) -> None:
    # A4 without its margins
    context = browser.new_context(viewport={"width": 703, "height": 1000}, java_script_enabled=False, color_scheme="dark")
    page = context.new_page()
    page.emulate_media(media="print")
    page.goto(page_file.as_uri())
    wide, shown = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    pictures = box(page, "figure div svg")
    assert wide <= shown and pictures and not any(picture["out"] for picture in pictures)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("pre").first.is_visible()       # settings are unfolded on paper
    assert len(re.findall(rb"/Type /Page\b", page.pdf(format="A4", page_ranges="1-4"))) == 4
    context.close()


def test_sections_without_data_are_left_out_and_named(browser: Browser, tmp_path: Path) -> None:
    name = folder.write(tmp_path / "few", [one for one in folder.runs(1) if one["run"]["test"] == "fan-in"], locust=None)
    assert main(["bench", "report", name, "--quiet"]) == 0
    _, sections = contents(Lab(read(name)))
    page = browser.new_page()
    page.goto((tmp_path / "few" / "report.html").as_uri())
    assert [one.get_attribute("id") for one in page.locator("section").all()] == [section.id for section in sections]
    left_out = page.locator("#missing").inner_text()
    assert page.locator("#paper").count() == 0 and "no run of the paper's tests" in left_out and "make load" in left_out
    page.close()
