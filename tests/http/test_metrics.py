"""Test `/metrics`, `/health` and `/ready`: formats, values, access, a loop that does not answer, hostile names."""

from __future__ import annotations

import http.client
import json
import re
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from mosq.config.model import Config, Listener
from mosq.records import SlowSlice
from mosq.server.http import pages
from mosq.server.http.listeners import open_listeners
from mosq.server.http.metric_table import LABELLED, PLAIN, REASONS, STORE
from mosq.server.http.metrics import LISTENERS_MAX, Metrics, Reading, of_bridges, of_drops, of_hot
from mosq.stat_names import DROPS, REFUSALS, STATS
from tests.harness.broker import Broker, free_port

CONFIG = """listener {port} 127.0.0.1
allow_anonymous true
sys_interval 0
listener {web} 127.0.0.1
protocol http_api
http_dir {dir}
http_metrics true
"""
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
CONNECT = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01a"
PUBLISH = b"\x30\x05\x00\x01tXY"
PING, PONG = b"\xc0\x00", b"\xd0\x00"


def get(port, path, accept="", method="GET"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers={"Accept": accept} if accept else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), answer.headers["Content-Type"]
    finally:
        connection.close()


def values(text, parse=prometheus):
    return {(sample.name, *sample.labels.values()): sample.value for family in parse(text) for sample in family.samples}


@pytest.fixture(scope="module")
def scraped():
    web = free_port()
    with Broker(CONFIG.replace("{web}", str(web))) as broker:
        broker.web = web
        yield broker


def publish(broker, count):
    """Return a connected client that has published, and whose packets the broker has handled."""
    import socket

    client = socket.create_connection(("127.0.0.1", broker.port))
    client.settimeout(60)
    client.sendall(CONNECT + PUBLISH * count + PING)
    got = b""
    while not got.endswith(PONG):
        got += client.recv(100)
    return client


def test_every_statistic_is_in_exactly_one_table():
    keys = [row[0] for row in PLAIN + STORE] + [key for *_, by_label in LABELLED for key in by_label.values()]
    prefixes = ("drops_", *(prefix for prefix, *_ in REASONS))        # the drops are those of Engine.listener_drops()
    covered = {*keys, "disk_trouble", *(name for name in STATS if name is not None and name.startswith(prefixes))}
    assert covered == {name for name in STATS if name is not None}
    assert not [key for key in keys if key.startswith(prefixes)]
    names = [row[2] for row in PLAIN + STORE] + [row[0] for row in LABELLED]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("accept", "content_type", "parse"), [
    ("", "text/plain; version=", prometheus), (OPENMETRICS, "application/openmetrics-text; version=1.0.0", openmetrics),
])
def test_a_scrape_counts_what_happened(scraped, accept, content_type, parse):
    before = values(get(scraped.web, "/metrics", accept)[1], parse)
    with publish(scraped, 7):
        status, text, kind = get(scraped.web, "/metrics", accept)
        after = values(text, parse)
    assert (status, kind.startswith(content_type)) == (200, True)
    assert after["mosq_publish_received_total",] - before["mosq_publish_received_total",] == 7
    assert after["mosq_publish_received_bytes_total",] - before["mosq_publish_received_bytes_total",] == 14
    assert after["mosq_clients_connected",] == 1
    assert {key[1] for key in after if key[0] == "mosq_memory_bytes"} >= {"messages", "index", "buffers"}
    assert after["mosq_drops_total", f"127.0.0.1:{scraped.port}", "queue_messages"] == 0
    assert after["mosq_drops_total", "other", "queue_messages"] == 0
    assert after["process_cpu_seconds_total",] > 0
    assert after["process_resident_memory_bytes",] > 1 << 20
    assert ("mosq_store_commits_total",) not in after      # no store
    assert [key for key in after if key[0] == "mosq_build_info"]
    assert text.endswith("# EOF\n") == (parse is openmetrics)


def test_the_example_of_the_documentation_works():
    text = Path("docs/monitoring.md").read_text(encoding="utf-8")
    config = re.search(r"```\n# mosquitto.conf\n(.*?)```", text, re.DOTALL)[1]
    web = free_port()
    with Broker(config.replace("listener 1883", "listener {port}").replace("listener 8080", f"listener {web}")) as broker:
        assert [get(web, path)[0] for path in re.findall(r"curl http://127.0.0.1:8080(\S+)", text)] == [200, 200], broker.log()


@pytest.mark.parametrize("accept", ["application/openmetrics-text; version=abc", "text/plain;version=1e400;escaping", "text/plain;version=", ";,=", "x" * 8000])
def test_an_accept_header_that_cannot_be_understood_gets_the_text_format(scraped, accept):
    assert get(scraped.web, "/metrics", accept)[2].startswith("text/plain; version=0.0.4")
    assert "cannot answer" not in scraped.log()


def test_health_and_ready_answer_probes(scraped):
    status, text, _ = get(scraped.web, "/health")
    assert (status, json.loads(text)["status"]) == (200, "ok")
    status, text, _ = get(scraped.web, "/ready")
    assert (status, json.loads(text)) == (200, {"status": "ready", "reason": None})
    assert get(scraped.web, "/metrics", method="HEAD")[:2] == (200, "")


def test_without_the_option_these_paths_are_files():
    web = free_port()
    config = CONFIG.replace("{web}", str(web)).replace("http_metrics true\n", "")
    with Broker(config, {"metrics": "a file"}) as broker:
        assert broker.alive()
        assert get(web, "/metrics")[:2] == (200, "a file")
        assert get(web, "/health")[0] == get(web, "/ready")[0] == 404
        assert get(web, "/api/v1/health")[0] == 200


def test_access_rules_hold_for_the_metrics():
    web = free_port()
    config = CONFIG.replace("{web}", str(web)) + "acl_file {dir}/acl\n"
    with Broker(config, {"acl": "topic read /ready\n"}):
        assert [get(web, path)[0] for path in ("/metrics", "/health", "/ready")] == [401, 401, 200]


def test_the_store_has_metrics_of_its_own():
    web = free_port()
    config = CONFIG.replace("{web}", str(web)) + "persistence true\npersistence_location {dir}/\n"
    with Broker(config):
        after = values(get(web, "/metrics")[1])
        assert ("mosq_store_commits_total",) in after
        assert [after["mosq_store_trouble", state] for state in ("full", "error", "memory")] == [0, 0, 0]
        assert get(web, "/ready")[0] == 200


@pytest.fixture
def metrics_server(serve):
    """Serve the pages in this process; the test holds the answer of the loop back with `release`."""
    readings = []

    def begin(**options):
        server = serve(http_metrics=True)

        class Engine:
            def stats(self):
                readings.append(1)
                return server.stats()

            def observed(self):
                return None

            def streams(self):
                return {}

            def hot(self, what):
                return None

            def listener_drops(self):
                return {"other": dict.fromkeys(DROPS, 0)}

            def slow(self, position, limits):
                return SlowSlice([], 0, 0, 0, 0)

        metrics = Metrics("1", lambda: False, Engine(), list, dict)
        server.api.pages.scrapes = pages.Statistics(metrics.read)
        return server

    begin.readings = readings
    return begin


def test_a_scrape_while_the_loop_does_not_answer_is_refused(metrics_server, monkeypatch):
    monkeypatch.setattr(pages, "STATS_WITHIN_S", 0.1)
    server = metrics_server()
    server.release.clear()
    assert get(server.port, "/metrics")[:2] == (503, "The broker does not answer.\n")
    assert get(server.port, "/ready")[:2] == (503, "The broker does not answer.\n")
    server.release.set()
    monkeypatch.setattr(pages, "STATS_WITHIN_S", 60)
    assert get(server.port, "/metrics")[0] == 200


def test_scrapes_at_the_same_time_share_a_reading(metrics_server, monkeypatch):
    monkeypatch.setattr(pages, "STATS_WITHIN_S", 60)
    server = metrics_server()
    server.release.clear()
    got = []
    threads = [threading.Thread(target=lambda: got.append(get(server.port, "/metrics")[0])) for _ in range(10)]
    for thread in threads:
        thread.start()
    server.release.set()
    for thread in threads:
        thread.join(60)
    assert got == [200] * 10
    assert len(metrics_server.readings) <= 10


def page_of(config, stats=None):
    page = pages.Pages(config, "version", lambda: defaultdict(int, stats or {}))
    page.close()
    return page


def test_a_broker_with_a_bad_store_is_not_ready():
    config = Config()
    assert page_of(config)._store_trouble({"disk_trouble": 1}) is None      # it has no store
    config.persistence, config.persistence_location = True, "/tmp"
    page = page_of(config)
    assert page._store_trouble({"disk_trouble": 1, "disk_commits": 0, "disk_waiting_bytes": 0}) == "store: full"
    assert page._store_trouble({"disk_trouble": 2, "disk_commits": 0, "disk_waiting_bytes": 0}) == "store: error"
    config.without_store = "damaged"
    assert page._store_trouble({"disk_trouble": 0}) == "store: not open"


def test_a_store_stalls_if_records_wait_and_no_batch_completes():
    progress = pages.Progress()
    waits, empty = {"disk_commits": 5, "disk_waiting_bytes": 9}, {"disk_commits": 5, "disk_waiting_bytes": 0}
    assert not progress.stalls(waits, 1000)
    assert not progress.stalls(waits, 1000 + pages.STALLED_S - 1)
    assert progress.stalls(waits, 1000 + pages.STALLED_S)
    assert not progress.stalls({**waits, "disk_commits": 6}, 1000 + pages.STALLED_S)
    assert not progress.stalls(empty, 2000)
    assert not progress.stalls(waits, 2001)


def test_each_alert_and_each_reason_is_on_the_page():
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "monitoring.md").read_text()
    alerts = re.findall(r"alert: (\w+)", (root / "conf" / "monitoring" / "mosq-rules.yml").read_text())
    assert len(alerts) > 10
    assert [name for name in (*alerts, *DROPS, *REFUSALS) if f"`{name}`" not in page] == []


def test_drops_have_their_listener_and_those_of_many_listeners_are_bounded():
    drops = {str(n): dict.fromkeys(DROPS, n) for n in range(LISTENERS_MAX + 10)}
    text, _ = Reading(of_drops({**drops, "other": dict.fromkeys(DROPS, 7)})).text("")
    found = values(text.decode())
    assert len(found) == (LISTENERS_MAX + 1) * len(DROPS)
    assert found["mosq_drops_total", "3", "quota"] == 3
    assert found["mosq_drops_total", "other", "quota"] == 7 + sum(range(LISTENERS_MAX, LISTENERS_MAX + 10))


@pytest.mark.parametrize("parse", [prometheus, openmetrics])
def test_hostile_names_stay_label_values(parse):
    name = 'x"} 1\nmosq_evil 1\n# HELP \\ <b>'
    accept = OPENMETRICS if parse is openmetrics else ""
    text, _ = Reading(of_bridges([{"name": name, "state": "connected", "queued": 3}])).text(accept)
    found = values(text.decode(), parse)
    assert found == {("mosq_bridges",): 1, ("mosq_bridge_connected", name): 1, ("mosq_bridge_queued_messages", name): 3}


def test_hot_names_are_no_labels():
    def row(**figures):
        return {"client_id": "<b>", "delay_seconds": None, "queue_age_seconds": None, "queue_length": 0, "queue_bytes": 0, "unsent_bytes": 0, **figures}

    found = {"sampled": 64, "messages_per_second": 200.0, "published_per_second": 0.0, "deliveries_per_second": 10.0, "publishers": [],
             "topics": [{"topic": 'x"}', "messages_per_second": 50.0}], "receivers": [{"client_id": "r", "messages_per_second": 10.004}],
             "queued": 12, "inflight": 5, "queue_bytes": 900,
             "slow": [row(delay_seconds=1.5, queue_length=3), row(queue_age_seconds=7.0, queue_bytes=9), row(unsent_bytes=11)]}
    shown = values(Reading(of_hot(found)).text("")[0].decode())
    assert shown == {("mosq_slowest_delivery_seconds",): 1.5, ("mosq_oldest_queued_seconds",): 7, ("mosq_longest_queue_messages",): 3,
                     ("mosq_largest_queue_bytes",): 9, ("mosq_largest_unsent_bytes",): 11, ("mosq_hottest_share", "topic"): 0.25,
                     ("mosq_hottest_share", "publisher"): 0, ("mosq_hottest_share", "receiver"): 1, ("mosq_queued_messages",): 12, ("mosq_inflight_messages",): 5,
                     ("mosq_queues_bytes",): 900}
    off = values(Reading(of_hot({"sampled": 0, "slow": [], "queued": 0, "inflight": 0, "queue_bytes": 0})).text("")[0].decode())
    assert off == {key: 0 for key in shown if key[0] not in ("mosq_slowest_delivery_seconds", "mosq_hottest_share")}


def test_a_missing_package_is_reported_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    for module in ("prometheus_client.core", "prometheus_client.exposition", "mosq.server.http.metrics"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    listener = Listener(0, "127.0.0.1")
    listener.protocol, listener.http_metrics = "http_api", True
    with pytest.raises(OSError, match=r"http_metrics needs the package prometheus-client.*pip install"):
        open_listeners([listener], [])


def wait_for_metric(web, name, there):
    """Wait until a scrape has the metric, or lacks it. A reload ends the connections of the earlier server."""
    import time

    end = time.monotonic() + 60
    while True:
        try:
            if (name in get(web, "/metrics")[1]) is there:
                return
        except (OSError, http.client.HTTPException):
            pass
        assert time.monotonic() < end
        time.sleep(0.02)


def test_observe_messages_adds_histograms_also_by_a_reload():
    import signal

    web = free_port()
    with Broker(CONFIG.replace("{web}", str(web))) as broker:
        assert "mosq_match_seconds" not in get(web, "/metrics")[1]
        broker.config.write_text(broker.config.read_text() + "observe_messages 1\n")
        broker.send_signal(signal.SIGHUP)
        wait_for_metric(web, "mosq_match_seconds_count", True)
        with publish(broker, 3):
            text = get(web, "/metrics")[1]
            assert values(text)["mosq_match_seconds_count",] == 3
            assert values(text)["mosq_match_seconds_bucket", "+Inf"] == 3
            assert values(text)["mosq_delivery_seconds_count", "0"] == 0
            assert values(get(web, "/metrics", OPENMETRICS)[1], openmetrics)["mosq_turn_seconds_count",] > 0
        broker.config.write_text(broker.config.read_text().replace("observe_messages 1\n", ""))
        broker.send_signal(signal.SIGHUP)
        wait_for_metric(web, "mosq_match_seconds_count", False)


def test_streams_have_metrics():
    web = free_port()
    config = CONFIG.replace("{web}", str(web)) + "persistence true\npersistence_location {dir}/\nstream all t/#\nstream none x\n"
    with Broker(config) as broker, publish(broker, 3):
        wait_for_metric(web, 'mosq_stream_records_total{stream="all"} 3.0', True)
        assert values(get(web, "/metrics")[1])["mosq_stream_records_total", "none"] == 0
