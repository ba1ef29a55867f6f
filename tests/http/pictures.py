"""Make the pictures of docs/dashboard.md: each view of the dashboard on a desk, on a phone, and in dark.

    python -m tests.http.pictures [FOLDER]      writes FOLDER/NAME-desk.png, ... (default docs/pictures)
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tests.http.dashboard import CONFIG, HOSTILE, Scene, USERS

CHROMIUM = "/usr/bin/chromium-headless-shell"
VIEWS = {
    "overview": "overview", "clients": "clients?sort=queued", "hot": "hot", "latency": "latency", "client": "client?id=press-03", "topics": "topics?prefix=site/north/press-03",
    "tail": "tail?filter=site/%23", "explain": "explain?topic=site/north/press-03/temperature", "drops": "drops", "system": "system",
    "log": "log", "config": "config",
}
SHAPES = {"desk": (1280, 800, "light"), "phone": (360, 740, "light"), "dark": (1280, 800, "dark")}
SECONDS = 45        # of traffic before the pictures, so that the charts show something
COLOURS = 128


def traffic(scene: Scene, ended: threading.Event) -> None:
    """Publish readings until the end, with waves in their number."""
    dice = random.Random(7)
    publisher = scene.client("gateway")
    n = 0
    while not ended.is_set():
        n += 1
        for _ in range(int(20 + 15 * abs((n % 80) - 40) / 40)):
            site, machine = dice.choice(("north", "south", "harbour")), dice.randrange(1, 13)
            kind = dice.choice(("temperature", "pressure", "state"))
            value = json.dumps({"value": round(dice.gauss(40, 4), 2), "unit": "°C", "ok": True}, ensure_ascii=False)
            publisher.publish(f"site/{site}/press-{machine:02}/{kind}", value, int(kind == "state"), retain=dice.random() < .2)
        ended.wait(.1)


def populate(scene: Scene) -> None:
    """Connect clients that read, some that are offline with a queue, and some with names that try to be markup."""
    for i in range(1, 13):
        scene.client(f"press-{i:02}", f"site/north/press-{i:02}/#", "site/+/+/state", "$share/alerts/site/#")
    scene.client("dashboard-wall", "site/+/+/temperature", "site/#")
    for name in HOSTILE[:2]:
        scene.client(name, "site/south/#")
    for i in range(3):
        scene.client(f"archive-{i}", f"site/{'north/+/state' if i else '#'}", clean=False)
        scene.disconnect(f"archive-{i}")


def shoot(page: Page, scene: Scene, folder: Path, shape: str) -> None:
    for name, place in VIEWS.items():
        page.goto(f"{scene.url}#/{place}")
        page.wait_for_selector("main h1")
        page.wait_for_selector("#state.open")
        if name == "tail":
            page.wait_for_selector(".messages li:nth-child(12)")
        if name == "topics":
            page.click("button:has-text('Look') >> nth=0")
            page.wait_for_selector("section[aria-label='Retained message'] pre")
        page.mouse.move(0, 0)           # no row is under the pointer
        page.wait_for_timeout(1600)
        path = folder / f"{name}-{shape}.png"
        page.screenshot(path=path)
        Image.open(path).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    folder = Path(sys.argv[1] if sys.argv[1:] else "docs/pictures")
    folder.mkdir(parents=True, exist_ok=True)
    ended = threading.Event()
    with Scene(CONFIG.replace("sys_interval 0", "sys_interval 0\nobserve_messages 4")) as scene, sync_playwright() as playwright:
        populate(scene)
        sender = threading.Thread(target=traffic, args=(scene, ended))
        sender.start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            for shape, (width, height, scheme) in SHAPES.items():
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme,
                                              http_credentials={"username": "admin", "password": USERS["admin"]})
                page = context.new_page()
                page.on("console", lambda message: print("console:", message.text))
                page.on("pageerror", lambda error: print("error:", error))
                page.goto(scene.url)
                if shape == next(iter(SHAPES)):
                    time.sleep(SECONDS)
                shoot(page, scene, folder, shape)
                context.close()
        finally:
            ended.set()
            sender.join()
            browser.close()
    print(f"{sum(one.stat().st_size for one in folder.glob('*.png')) // 1024} KiB in {folder}")


if __name__ == "__main__":
    main()
