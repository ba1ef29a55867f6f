"""Measure the dashboard: what the first view needs, and what open pages cost a broker with many clients.

    python -m perf.dashboard [--clients 10000] [--pages 50] [--seconds 30] [--browser]

The broker's CPU is read from /proc over SECONDS: without pages, with PAGES feeds, and with PAGES feeds and lists of
clients that each page reads again every 5 s. Pages read as a browser does, in this process. With --browser, headless
Chromium loads the page five times with an empty cache. The times are from the start of the navigation until the first
paint with contents, and until the figures are in the page; the start of Chromium's process for the page is in them.
"""

from __future__ import annotations

import argparse
import http.client
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from mosq.tools.bench.started import free_port

CHROMIUM = "/usr/bin/chromium-headless-shell"
CONFIG = """listener {port} 127.0.0.1
allow_anonymous true
listener {web} 127.0.0.1
protocol http_api
http_dashboard true
"""
LIST_EVERY_S = 5.0
NOTE_FIGURES = """new MutationObserver(() => {
    if (!window.figuresAt && document.querySelector('.tile strong')) window.figuresAt = performance.now();
}).observe(document, {subtree: true, childList: true})"""


def cpu_s(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def connect_clients(port: int, n: int) -> list[socket.socket]:
    """Return connected MQTT clients with one subscription each."""
    found = []
    for i in range(n):
        name = f"sensor-{i:05}".encode()
        sock = socket.create_connection(("127.0.0.1", port))
        topic = b"site/" + name
        sock.sendall(bytes((0x10, 12 + len(name))) + b"\0\4MQTT\4\2\0\0\0" + bytes((len(name),)) + name
                     + bytes((0x82, 5 + len(topic))) + b"\0\1\0" + bytes((len(topic),)) + topic + b"\0")
        found.append(sock)
    for sock in found:
        sock.recv(64)
    return found


class Feeds:
    """Open feeds, which a thread reads."""

    def __init__(self, web: int, n: int) -> None:
        self.received = self.events = 0
        self._end = threading.Event()
        self._selector = selectors.DefaultSelector()
        for _ in range(n):
            sock = socket.create_connection(("127.0.0.1", web))
            sock.sendall(b"GET /dashboard/api/feed HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            if not sock.recv(12).endswith(b"200"):
                raise SystemExit("a feed was refused")
            self._selector.register(sock, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._end.is_set():
            for key, _ in self._selector.select(0.2):
                data = key.fileobj.recv(65536)      # type: ignore[union-attr]
                self.received += len(data)
                self.events += data.count(b"event: stats")

    def close(self) -> None:
        self._end.set()
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()                     # type: ignore[union-attr]


def lists(web: int, n: int, end: threading.Event) -> None:
    """Read the list of clients for n pages, each every LIST_EVERY_S."""
    while not end.is_set():
        begun = time.monotonic()
        for _ in range(n):
            connection = http.client.HTTPConnection("127.0.0.1", web, timeout=30)
            connection.request("GET", "/dashboard/api/clients?sort=queued&count=50")
            if connection.getresponse().read()[:1] != b"{":
                raise SystemExit("a list was refused")
            connection.close()
            if end.wait(max(0.0, LIST_EVERY_S / n)):
                return
        end.wait(max(0.0, begun + LIST_EVERY_S - time.monotonic()))


def measured(pid: int, seconds: float) -> float:
    """Return the part of a core that the process uses, in percent."""
    before, begun = cpu_s(pid), time.monotonic()
    time.sleep(seconds)
    return 100 * (cpu_s(pid) - before) / (time.monotonic() - begun)


def first_views(web: int) -> str:
    """Load the page in a browser; return a line with the median time and the bytes."""
    from playwright.sync_api import sync_playwright

    times, size, requests = [], 0, 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for _ in range(6):
            context = browser.new_context()
            page = context.new_page()
            page.goto("about:blank")
            page.add_init_script(NOTE_FIGURES)
            page.goto(f"http://127.0.0.1:{web}/dashboard/", wait_until="commit")
            page.wait_for_selector(".tile strong")
            now = page.evaluate("window.figuresAt")
            shown = page.evaluate("performance.getEntriesByType('paint').map(one => one.startTime).at(-1)")
            entries = page.evaluate("""['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind))
                .map(one => one.transferSize)""")
            times.append((now, shown))
            size, requests = sum(entries), len(entries)
            context.close()
        browser.close()
    ready = statistics.median(one[0] for one in times[1:])      # the first one starts the browser's processes
    painted = statistics.median(one[1] for one in times[1:])
    return (f"first view: painted after {painted:.0f} ms, figures visible after {ready:.0f} ms, "
            f"{size / 1000:.1f} kB in {requests} requests")


def measure(pid: int, port: int, web: int, given: argparse.Namespace) -> None:
    """Print the part of a core with clients alone, with pages, and with pages that show the list of clients."""
    clients = connect_clients(port, given.clients)
    time.sleep(2)
    print(f"{given.clients} clients, no page: {measured(pid, given.seconds):.2f} % of a core", flush=True)
    feeds = Feeds(web, given.pages)
    time.sleep(2)
    events = feeds.events
    part = measured(pid, given.seconds)
    rate = (feeds.events - events) / given.seconds / given.pages
    print(f"{given.pages} pages: {part:.2f} %, {rate:.2f} events a second each", flush=True)
    end = threading.Event()
    reading = threading.Thread(target=lists, args=(web, given.pages, end))
    reading.start()
    time.sleep(2)
    print(f"{given.pages} pages that show the list of clients: {measured(pid, given.seconds):.2f} %", flush=True)
    end.set()
    reading.join()
    feeds.close()
    for sock in clients:
        sock.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--browser", action="store_true")
    given = parser.parse_args()
    port, web = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mosq.conf")
        file.write_text(CONFIG.format(port=port, web=web))
        broker = subprocess.Popen([sys.executable, "-m", "mosq", "-q", "-c", str(file)])
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", web), 1).close()
                    break
                except OSError:
                    time.sleep(.05)
            time.sleep(1)
            if given.browser:
                print(first_views(web), flush=True)
            measure(broker.pid, port, web, given)
        finally:
            broker.terminate()
            broker.wait()


if __name__ == "__main__":
    main()
