"""Test the dashboard's page in a real browser: headless Chromium, on a desk and on a phone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.http.dashboard import CONFIG, HOSTILE, USERS, WAIT_S, Scene

pytestmark = pytest.mark.interop
CHROMIUM = "/usr/bin/chromium-headless-shell"       # Debian's; playwright's own cannot be downloaded everywhere
VIEWS = ["overview", "clients", "hot", "topics", "tail", "explain", "drops", "latency", "system", "log", "config"]
expect.set_options(timeout=WAIT_S * 1000)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with Scene() as running:
        yield running


@pytest.fixture(scope="module")
def measuring() -> Iterator[Scene]:
    """A broker that measures and samples every message."""
    with Scene(CONFIG.replace("sys_interval 0", "sys_interval 0\nobserve_messages 1")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])     # the tests run as root
        yield browser
        browser.close()


class Opened:
    """Pages of one user. Any message of the browser's console fails the test, and so does a request to another host."""

    def __init__(self, browser: Browser, scene: Scene, user: str = "admin", **options: Any) -> None:
        self.scene, self.seen, self.expected = scene, list[str](), "nothing"
        login = {"username": user, "password": USERS[user]}
        self.context = browser.new_context(http_credentials=login, **options)
        self.context.set_default_timeout(WAIT_S * 1000)

    def close(self) -> None:
        self.context.close()
        assert [text for text in self.seen if not re.search(self.expected, text)] == []

    def page(self, view: str = "overview") -> Page:
        page = self.context.new_page()
        page.on("console", lambda message: self.seen.append(message.text))
        page.on("pageerror", lambda error: self.seen.append(str(error)))
        page.on("dialog", lambda dialog: (self.seen.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda asked: asked.url.startswith(self.scene.url) or self.seen.append(asked.url))
        page.goto(f"{self.scene.url}#/{view}")
        expect(page.locator("#state")).to_have_text("Live")
        expect(page.locator("main h1")).to_be_visible()
        return page


@pytest.fixture
def opened(browser: Browser, scene: Scene) -> Iterator[Opened]:
    one = Opened(browser, scene, viewport={"width": 1280, "height": 800})
    yield one
    one.close()


@pytest.fixture
def reader(browser: Browser, scene: Scene) -> Iterator[Opened]:
    one = Opened(browser, scene, "reader", viewport={"width": 1280, "height": 800})
    yield one
    one.close()


def test_every_view_fits_a_desk_and_a_phone_in_light_and_dark(browser: Browser, scene: Scene) -> None:
    for name in HOSTILE:
        scene.client(name, f"hostile/{'#' if len(name) > 200 else name.replace('#', '').replace('+', '')}")
    for width, scheme in ((1280, "dark"), (360, "light")):
        one = Opened(browser, scene, viewport={"width": width, "height": 740}, color_scheme=scheme)
        page = one.page()
        for view in VIEWS:
            page.goto(f"{scene.url}#/{view}")
            expect(page.locator("nav a[aria-current=page]")).to_have_attribute("href", f"#/{view}")
            expect(page.locator(f"main.view-{view} h1")).to_be_visible()
            expect(page.get_by_text(re.compile("^(Loading|Reading|Waiting for the first)"))).to_have_count(0)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (view, width)
            assert page.locator("main .notice.bad").count() == 0, view
            # each field and button has a name, and is large enough for a finger
            assert page.evaluate("""[...document.querySelectorAll('input, select, textarea, button, a')].filter(one => one.checkVisibility() &&
                !(one.labels?.length || one.textContent.trim() || one.getAttribute('aria-label'))).length""") == 0, view
            assert page.evaluate("""[...document.querySelectorAll('main button, main select')].filter(one => one.checkVisibility() &&
                one.getBoundingClientRect().height < 31).length""") == 0, view
        one.close()


def test_names_and_payloads_of_clients_are_text(opened: Opened, scene: Scene) -> None:
    sender = scene.client("marker")
    for i, text in enumerate(HOSTILE):
        scene.client(text, f"mark/{i}")
        scene.publish(sender, f"mark/{text.replace('#', '').replace('+', '')}", text, retain=True)
    page = opened.page("clients")
    page.fill("[data-search]", "owned")
    expect(page.locator("td a", has_text=HOSTILE[0])).to_be_visible()
    page.fill("[data-search]", "gnp")
    expect(page.locator("td a", has_text="abc\\u202egnp.exe")).to_be_visible()
    page.click("td a:has-text('gnp')")
    expect(page.locator("h1")).to_have_text("abc\\u202egnp.exe")
    expect(page.locator("td", has_text="mark/4")).to_be_visible()
    page.goto(f"{scene.url}#/topics?prefix=mark")
    expect(page.locator("tbody tr").first).to_be_visible()
    page.goto(f"{scene.url}#/tail?filter=mark/%23")
    expect(page.locator("form.row button[type=submit]")).to_have_text("Stop")       # a link with a filter follows it
    expect(page.locator("[role=status].facts")).to_have_text("Waiting for messages.")

    def shown() -> bool:
        scene.publish(sender, "mark/x", HOSTILE[1])
        page.wait_for_timeout(300)
        return bool(page.locator(".messages .payload", has_text=HOSTILE[1]).count())

    assert any(shown() for _ in range(100))
    assert page.locator("main script, main img, main svg[onload]").count() == 0
    assert "owned" not in page.title()


def test_two_pages_kick_the_same_client(opened: Opened, scene: Scene) -> None:
    opened.expected = "status of (404|409)"     # the second kick, and the client that is gone
    victim = scene.client("twice")
    victim.on_disconnect = lambda client, *what: client.loop_stop()
    pages = [opened.page("client?id=twice") for _ in range(2)]
    for page in pages:
        page.click("button:has-text('End connection')")
        expect(page.locator("#ask")).to_be_visible()
    for page, outcome in zip(pages, ("The connection has ended.", "Client not found"), strict=True):
        page.click("#ask button:has-text('End connection')")
        expect(page.locator("#toast")).to_have_text(re.compile(f"{outcome}|Client not connected"))
        expect(page.locator("#ask")).to_be_hidden()


def test_a_reader_sees_figures_and_may_change_nothing(reader: Opened, scene: Scene) -> None:
    scene.publish(scene.client("feeder"), "site/read", "me", retain=True)
    page = reader.page("topics")
    expect(page.locator("#user")).to_contain_text("read only")
    page.goto(f"{scene.url}#/topics?prefix=site")
    expect(page.locator("button:has-text('Clear')").first).to_be_disabled()
    page.click("button:has-text('Look') >> nth=0")
    expect(page.locator("pre")).to_have_text("me")
    page.goto(f"{scene.url}#/config")
    expect(page.locator("button:has-text('Reload')")).to_be_disabled()
    page.goto(f"{scene.url}#/client?id=feeder")
    expect(page.locator("button:has-text('End connection')")).to_be_disabled()


def test_a_message_is_published_looked_at_and_cleared(opened: Opened, scene: Scene) -> None:
    page = opened.page("tail")
    page.click("summary")
    page.fill("[name=topic]", "form/a")
    page.fill("[name=payload]", '{"a": [1, 2]}')
    page.check("[name=retain]")
    page.click("button:has-text('Publish')")
    expect(page.locator("#toast")).to_have_text("The message is published.")
    page.goto(f"{scene.url}#/topics?prefix=form")
    page.click("button[aria-label='Look at form/a']")
    expect(page.locator("pre")).to_contain_text('"a": [')
    page.click("button[aria-label='Clear form/a']")
    page.click("#ask button:has-text('Clear')")
    expect(page.locator("#toast")).to_have_text("The retained message is cleared.")
    page.click("button:has-text('Show')")
    expect(page.locator("main .notice")).to_contain_text("no retained messages")


def test_the_keyboard_reaches_every_view(opened: Opened) -> None:
    page = opened.page()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()
    for view, key in zip(VIEWS, "ochtledasgf", strict=True):
        page.keyboard.press("g")
        page.keyboard.press(key)
        expect(page.locator("nav a[aria-current=page]")).to_have_attribute("href", f"#/{view}")
    expect(page.locator("main.view-config h1")).to_be_visible()
    page.keyboard.press("/")
    expect(page.locator("[data-search]")).to_be_focused()
    page.keyboard.type("max_queued")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Escape")
    page.reload()
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_a_page_of_another_site_changes_nothing(browser: Browser, scene: Scene) -> None:
    """A page on another origin, in a browser that knows the password, sends what an attack would send."""
    scene.client("target")
    one = Opened(browser, scene, viewport={"width": 800, "height": 600})
    page = one.page()
    evil = one.context.new_page()
    evil.route("http://evil.test/**", lambda route: route.fulfill(body="<p>evil", content_type="text/html"))
    evil.goto("http://evil.test/")
    outcome = evil.evaluate("""async url => {
        const tries = [];
        for (const [path, options] of [["kick", {method: "POST", mode: "no-cors", credentials: "include", body: '{"clientid":"target"}'}],
            ["kick", {method: "POST", credentials: "include", headers: {"content-type": "application/json", "x-mosq-token": "x"}, body: "{}"}],
            ["clients", {credentials: "include"}], ["session", {credentials: "include"}]]) {
            try { const r = await fetch(url + "api/" + path, options); tries.push(await r.text()); } catch (error) { tries.push("refused"); }
        }
        return tries;
    }""", scene.url)
    assert set(outcome) <= {"", "refused"}
    frame = evil.evaluate("""url => new Promise(done => {
        const frame = document.createElement("iframe");
        frame.onload = () => { try { done(frame.contentDocument ? "empty" : "error page"); } catch { done("blocked"); } };
        frame.src = url;
        document.body.append(frame);
    })""", scene.url)
    assert frame in ("blocked", "error page", "empty")
    assert evil.frames[-1].url.startswith("chrome-error:") or evil.frames[-1].locator("h1").count() == 0
    assert scene.get("client?id=target")[1]["client"]["connected"] is True
    assert page.title().startswith("Overview")
    one.context.close()


@pytest.mark.one_process("with workers, the dashboard's log has the lines of worker 1 only")
def test_the_page_connects_again_after_a_reload(opened: Opened, scene: Scene) -> None:
    opened.expected = "ERR_"    # requests during the reload
    page = opened.page("config")
    page.click("button:has-text('Reload')")
    page.click("#ask button:has-text('Reload')")
    expect(page.locator("#toast")).to_contain_text("The broker reloads")
    page.goto(f"{scene.url}#/log")
    expect(page.locator(".log li", has_text="Reloading config.").first).to_be_visible()
    expect(page.locator("#state")).to_have_text("Live")


def test_the_last_drop_of_a_reason_is_an_example(opened: Opened, reader: Opened, scene: Scene) -> None:
    scene.client(HOSTILE[1], "kept/#", clean=False)
    scene.disconnect(HOSTILE[1])
    sender = scene.client("drop-maker")
    page, other = opened.page("drops"), reader.page("drops")
    row, hidden = (one.locator("tr", has=one.locator("code", has_text=re.compile("^queue_messages$"))) for one in (page, other))

    def dropped() -> bool:
        for _ in range(501):
            sender.publish(f"kept/{HOSTILE[1]}", "x", 1)
        scene.publish(sender, f"kept/{HOSTILE[1]}", "x")
        page.wait_for_timeout(300)
        return bool(row.locator("bdi", has_text=f"kept/{HOSTILE[1]}").count())

    assert any(dropped() for _ in range(100))
    expect(row.locator("time")).to_be_visible()
    expect(row.locator("td[data-label='By listener']")).to_contain_text("no client connected 100 %")
    expect(hidden).to_contain_text("a topic that you may not read")
    assert page.locator("main img").count() == 0
    row.locator("a", has_text=HOSTILE[1]).click()
    expect(page.locator("main.view-client h1")).to_have_text(HOSTILE[1])


def test_a_broker_that_measures_nothing_says_how_to_change_that(opened: Opened) -> None:
    page = opened.page("latency")
    expect(page.locator("main .notice")).to_contain_text("observe_messages 64")
    page.goto(f"{opened.scene.url}#/overview")
    expect(page.locator(".tile", has_text="Delivery")).to_contain_text("observe_messages is 0")


def test_the_histograms_are_drawn_with_their_percentiles(browser: Browser, measuring: Scene) -> None:
    client = measuring.client("measured", "site/#")
    one = Opened(browser, measuring, viewport={"width": 1280, "height": 800})
    page = one.page("latency")
    card = page.locator("figure", has=page.locator("h2", has_text="Delivery at QoS 1"))

    def drawn() -> bool:
        for _ in range(20):
            measuring.publish(client, "site/a", "x")
        page.wait_for_timeout(500)
        return bool(card.locator("rect.bar").count())

    assert any(drawn() for _ in range(100))
    expect(card.locator(".legend")).to_have_text(re.compile(r"p50 [\d.]+ (ns|µs|ms|s)p90 [\d.]+ (ns|µs|ms|s)p99 [\d.]+ (ns|µs|ms|s)"))
    expect(card.locator("svg")).to_have_attribute("aria-label", re.compile("^Delivery at QoS 1: p50 "))
    assert page.evaluate("""[...document.querySelectorAll('main svg')].every(one => [...one.querySelectorAll('rect, text')].every(part => {
        const box = part.getBoundingClientRect(), all = one.getBoundingClientRect();
        return box.left >= all.left - 1 && box.right <= all.right + 1 && box.top >= all.top - 4 && box.bottom <= all.bottom + 1; }))""")
    page.select_option("select", "minute")
    expect(page.locator("table")).to_be_visible()
    page.goto(f"{measuring.url}#/overview")
    expect(page.locator(".tile", has_text="Delivery")).to_contain_text(re.compile(r"[1-9]\d* measured"))
    one.close()


def test_percentiles_and_differences_of_histograms(opened: Opened) -> None:
    page = opened.page()
    found = page.evaluate("""async () => {
        const { atMost, mean, quantile, seconds, since, together } = await import("./durations.js");
        const ends = [1, 2, 4, 8].map((one) => one * 1e-6);
        const one = { count: 100, sumS: 1, first: 1, numbers: [50, 49, 1] };
        const earlier = { count: 60, sumS: .5, first: 2, numbers: [20, 0] };
        const later = since(one, { ...earlier, count: 20 });
        return [quantile(one, .5, ends), quantile(one, .51, ends), quantile(one, .99, ends), quantile(one, 1, ends), later.numbers, later.count,
            since(earlier, one).count, together([undefined, { count: 0, first: 0, numbers: [] }, one, earlier]), quantile(together([]), .5, ends),
            [0, 64e-9, 5e-6, 12e-6, 0.25, 30, null].map(seconds), atMost(quantile({ count: 1, first: 4, numbers: [1] }, .5, ends), ends),
            mean({ count: 2, sumS: 32, first: 3, numbers: [1, 1] }, ends, true), mean({ count: 2, sumS: 32, first: 3, numbers: [1, 1] }, ends, false),
            mean({ count: 2, sumS: 32, first: 3, numbers: [2] }, ends, true)];
    }""")
    assert found == [2e-6, 4e-6, 4e-6, 8e-6, [50, 29, 1], 80, 60, {"count": 160, "first": 1, "numbers": [50, 69, 1]}, None,
                     ["0 ns", "64 ns", "5.0 µs", "12 µs", "250 ms", "30 s", "–"], "over 8.0 µs",
                     "over 16 s", "16 s", "16 s"]  # fmt: skip


def test_the_labels_of_a_histogram_do_not_cover_each_other(opened: Opened) -> None:
    page = opened.page()
    ends = [64e-9 * 2 ** (i / 4) for i in range(107)]
    empty = {"count": 0, "sumS": 0, "first": 0, "numbers": []}
    shapes = {"flush_qos0": (0, [1] * 108), "flush_qos1": (107, [9]), "flush_qos2": (0, [9]), "match": (50, [5, 5]), "turn": (0, [9] + [0] * 106 + [1])}
    histograms = {key: {"count": sum(numbers), "sumS": 16.0 * sum(numbers), "first": first, "numbers": numbers} for key, (first, numbers) in shapes.items()}
    page.route("**/api/latency", lambda route: route.fulfill(json={
        "period": 64, "untilS": ends, "histograms": {**histograms, "commit": empty, "handshake": empty}}))
    page.goto(f"{opened.scene.url}#/latency")
    expect(page.locator("figure")).to_have_count(5)
    assert page.evaluate("""[...document.querySelectorAll('main svg')].flatMap(one => { const all = one.getBoundingClientRect();
        const boxes = [...one.querySelectorAll('text')].map(part => [part.textContent, part.getBoundingClientRect()]);
        return boxes.flatMap(([text, box], i) => [...(box.left < all.left - 1 || box.right > all.right + 1 ? [text + ' is outside'] : []),
            ...boxes.slice(i + 1).filter(([, other]) => box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom)
                .map(([other]) => text + ' covers ' + other)]); })""") == []
    row = page.locator("tbody tr", has_text="Delivery at QoS 1")
    expect(row.locator("td").nth(2)).to_have_text("over 16 s")         # the mean
    expect(row.locator("td").nth(5)).to_have_text(re.compile("^over [0-9.]+ s$"))


def test_the_tiles_fill_their_rows_and_separate_retained_messages_of_the_broker(browser: Browser) -> None:
    with Scene(CONFIG.replace("sys_interval 0", "sys_interval 1")) as scene:
        one = Opened(browser, scene, viewport={"width": 1280, "height": 800})
        page = one.page()
        tile = page.locator(".tile", has=page.locator(".label", has_text="Retained"))
        expect(tile.locator("strong")).to_have_text("0")
        expect(tile.locator(".detail")).to_have_text(re.compile(r"^messages, and \d\d+ of \$SYS$"))
        for width in (1280, 1100, 800, 360):
            page.set_viewport_size({"width": width, "height": 800})
            rows = page.evaluate("Object.values(Object.groupBy([...document.querySelectorAll('.tile')], one => one.offsetTop)).map(row => row.length)")
            assert sum(rows) == 12 and len(set(rows)) == 1, (width, rows)
        one.close()


def test_the_first_view_needs_at_most_150_kb(opened: Opened) -> None:
    page = opened.page()
    expect(page.locator(".tile strong").first).to_be_visible()
    total = page.evaluate("['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind)).reduce((sum, one) => sum + one.transferSize, 0)")
    assert 20_000 < total < 150_000


def test_the_processor_time_and_the_memory_of_the_process_are_shown(opened: Opened) -> None:
    page = opened.page()
    tile = page.locator(".tile", has=page.locator(".label", has_text="Processor"))
    expect(tile.locator("strong")).to_have_text(re.compile(r"^\d+(\.\d)? %$"))
    expect(tile.locator(".detail")).to_have_text(re.compile(r"^of a core; \d+ MiB resident$"))


def test_the_charts_show_the_shortest_time_that_holds_what_is_known(opened: Opened) -> None:
    page = opened.page()
    first = page.locator(".chart").first.locator("text.tick:not(.end)").first
    expect(page.locator(".chart polyline").first).to_be_attached()
    for known_s, text in ((40, "1 min"), (70, "2 min"), (130, "5 min"), (400, "5 min")):
        page.evaluate("""async (seconds) => {
            const { live } = await import("./live.js");
            live.rows = live.rows.slice(-2);
            live.rows.unshift([live.rows[0][0] - seconds * 1000, ...live.rows[0].slice(1)]);
        }""", known_s)
        expect(first).to_have_text(text)            # with the next event


def test_a_name_of_usual_length_is_on_one_line(opened: Opened, scene: Scene) -> None:
    scene.client("one-of-a-usual-length-42", "site/+/+/temperature")
    page = opened.page("clients")
    row = page.locator("tr", has=page.locator("a", has_text="one-of-a-usual-length-42"))
    expect(row).to_be_visible()
    assert row.locator("bdi").evaluate_all("all => all.map(one => [one.textContent, one.getClientRects().length])") == [
        ["one-of-a-usual-length-42", 1], ["device", 1]]
    page.goto(f"{scene.url}#/explain?topic=site/north/press-03/temperature")
    found = page.locator("td bdi", has_text="site/+/+/temperature").first
    expect(found).to_be_visible()
    assert found.evaluate("one => one.getClientRects().length") == 1


def test_a_client_shows_its_last_drops_and_how_to_trace_it(opened: Opened, scene: Scene) -> None:
    client = scene.client("it's \u202ehers")
    scene.publish(client, "$SYS/no", "x")
    page = opened.page("client?id=it's%20%E2%80%AEhers")
    expect(page.locator("main code", has_text="mosq trace")).to_have_text("mosq trace --client 'it'\\''s \\u202ehers'")
    expect(page.locator("main h2", has_text="Drops")).to_be_visible()


def test_the_log_is_filtered_by_level(opened: Opened, scene: Scene) -> None:
    scene.client("a-subscriber", "site/#")
    page = opened.page("log")
    expect(page.locator(".log li.is-subscribe").first).to_be_visible()
    page.select_option("select", label="Warnings and errors")
    expect(page.locator(".log li.is-subscribe").first).to_be_hidden()
    expect(page.locator(".log li.is-information").first).to_be_hidden()
    expect(page.locator(".facts")).to_have_text(re.compile(r"^\d+ of \d+ lines$"))
    page.select_option("select", label="Subscriptions")
    expect(page.locator(".log li.is-subscribe").first).to_be_visible()


def test_a_view_that_loads_slowly_does_not_replace_a_later_one(opened: Opened) -> None:
    """A view is loaded when it is opened. A slow one must not appear after the user has gone elsewhere."""
    page = opened.page()
    page.route("**/latency.js", lambda route: held.append(route))
    held: list[Any] = []
    page.evaluate("location.hash = '#/latency'")
    expect(page).to_have_title(re.compile("^Latency"))
    page.evaluate("location.hash = '#/system'")
    expect(page.locator("main.view-system h1")).to_have_text("System")
    assert held
    for one in held:
        one.continue_()
    page.evaluate("import('./latency.js')")         # it is loaded once, so this waits for the same file
    expect(page.locator("main.view-system h1")).to_have_text("System")


def test_hot_topics_and_slow_clients_have_names_that_are_text(browser: Browser, measuring: Scene) -> None:
    topic = f"loud/{HOSTILE[1]}"
    client = measuring.client(HOSTILE[0], "loud/#")
    slow = measuring.client(HOSTILE[1], "loud/#", clean=False)
    one = Opened(browser, measuring, viewport={"width": 1280, "height": 800})
    page = one.page("hot")

    def shown() -> bool:
        for _ in range(20):
            measuring.publish(client, topic, "x")
        page.wait_for_timeout(300)
        return bool(page.locator("td", has_text=topic).count() and page.locator("td a", has_text=HOSTILE[0]).count())

    assert any(shown() for _ in range(100))
    assert page.locator("main script, main img").count() == 0 and slow.is_connected()
    page.locator("td a", has_text=re.compile("^loud/$")).click()
    expect(page.locator("main.view-topics h1")).to_have_text("Topics")
    row = page.locator("tbody tr", has_text=HOSTILE[1][:10])
    expect(row.first).to_contain_text("/s")
    page.goto(f"{measuring.url}#/hot")
    page.locator("td a", has_text=HOSTILE[0]).first.click()
    expect(page.locator("main.view-client h1")).to_have_text(HOSTILE[0])
    one.close()


def test_a_broker_that_samples_nothing_says_how_to_change_that(opened: Opened) -> None:
    page = opened.page("hot")
    expect(page.locator("main .hint")).to_contain_text("observe_messages")
