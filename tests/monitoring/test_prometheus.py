"""Test conf/monitoring with Debian's Prometheus: promtool's checks, a real scrape, alerts that fire, and the queries of the dashboard."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from mosq.server.http.metric_table import CLUSTER, DROPS, HISTOGRAMS, LABELLED, PLAIN, QUEUES, REASONS, SLOWEST, STORE, STREAMS
from tests.harness.broker import Broker, free_port

pytestmark = pytest.mark.part("monitoring")

CONF = Path(__file__).resolve().parents[2] / "conf" / "monitoring"
WAIT_S = 60
CONFIG = """listener {port} 127.0.0.1
allow_anonymous true
observe_messages 1
persistence true
persistence_location {dir}/
stream all all/#
listener {web} 127.0.0.1
protocol http_api
http_metrics true
connection away
address 127.0.0.1:{nowhere}
topic # out
"""
# metrics that metrics.py makes without a table
OTHERS = {"up", "process_cpu_seconds_total", "process_start_time_seconds", "process_resident_memory_bytes", "mosq_build_info",
          "mosq_store_trouble", "mosq_bridge_connected", "mosq_bridge_queued_messages", "mosq_bridges",
          "mosq_login_failures_total", "mosq_logins_refused_by_backoff_total", "mosq_backoff_users", "mosq_observations_lost_total", "mosq_hottest_share",
          "mosq_cluster_node_up", "mosq_cluster_worker_up", "mosq_cluster_commit_lag_seconds"}
WORD = re.compile(r"\b(?:mosq|process|up)(?:_[a-z0-9_]+)?\b(?=[\[{ )>]|$)")


def promtool(*arguments):
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_files():
    promtool("check", "config", CONF / "prometheus.yml")
    promtool("check", "rules", CONF / "mosq-rules.yml")


def series(name, values, **labels):
    labels = {"instance": "x:8080", "job": "mosq", **labels}
    inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
    return f"      - series: '{name}{{{inside}}}'\n        values: '{values}'\n"


ALERTS = {
    "MosqDown": (series("up", "1 1 0+0x20"), "5m"),
    "MosqStoreTrouble": (series("mosq_store_trouble", "0 1+0x20", state="full"), "5m"),
    "MosqDrops": (series("mosq_drops_total", "0+600x20", reason="queue_messages"), "12m"),
    "MosqClientsLost": (series("mosq_clients_connected", "100 100 100 10+0x20"), "5m"),
    "MosqBridgeDown": (series("mosq_bridge_connected", "0+0x20", bridge="b"), "7m"),
    "MosqSubscriberBehind": (series("mosq_oldest_queued_seconds", "0 0 61+60x20"), "8m"),
    "MosqRestarted": (series("process_start_time_seconds", "100 100 100 200+0x20") + series("mosq_upgrades_total", "2 2 2 0+0x20"), "4m"),
    "MosqStoreSlow": (series("mosq_store_waiting_bytes", "0+4000000x20"), "12m"),
    "MosqRefusals": (series("mosq_refusals_total", "0+600x20", reason="descriptors"), "12m"),
    "MosqConnectionsNearlyFull": (series("mosq_clients_connected", "0 950+0x20") + series("mosq_connections_room", "1000+0x20"), "8m"),
    "MosqReconnects": (series("mosq_connects_accepted_total", "0+600x20") + series("mosq_clients_connected", "10+0x20"), "12m"),
    "MosqOutputWaits": (series("mosq_output_waiting_bytes", "0+20000000x20"), "14m"),
    "MosqLongTurn": (series("mosq_turn_max_seconds", "0 2+0x20"), "3m"),
    "MosqLoginFailures": (series("mosq_login_failures_total", "0+60x20") + series("mosq_logins_refused_by_backoff_total", "0+60x20"), "12m"),
    "MosqChecksSlow": (series("mosq_auth_requests_timed_out_total", "0+1x20"), "4m"),
    "MosqStreamLoss": (series("mosq_stream_lost_total", "0+0x20", stream="s") + series("mosq_stream_retired_unread_total", "0+5x20", stream="s"), "4m"),
    "MosqLoopBusy": (series("process_cpu_seconds_total", "0+58x30"), "20m"),
    "MosqClusterNodeDown": (series("mosq_cluster_node_up", "1 0+0x20", node="b"), "4m"),
    "MosqClusterWorkerDown": (series("mosq_cluster_worker_up", "1 0+0x20", worker="2", node=""), "4m"),
    "MosqClusterLinksDown": (series("mosq_cluster_links_down", "0 2+0x20"), "4m"),
    "MosqClusterCommitLag": (series("mosq_cluster_commit_lag_seconds", "0 6+2x20", worker="2"), "4m"),
    "MosqSlowDelivery": (series("mosq_delivery_seconds_bucket", "0+0x30", qos="1", le="1") +
                         series("mosq_delivery_seconds_bucket", "0+9x30", qos="1", le="2") +
                         series("mosq_delivery_seconds_bucket", "0+9x30", qos="1", le="+Inf"), "20m"),
}


def test_each_alert_has_a_row_above():
    assert set(re.findall(r"alert: (\w+)", (CONF / "mosq-rules.yml").read_text())) == set(ALERTS)


def fires(tmp_path, alert, given, when, expected):
    """Check with promtool whether an alert fires at a time."""
    test = tmp_path / "test.yml"
    test.write_text(f"rule_files: ['{CONF}/mosq-rules.yml']\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n{given}"
                    f"    promql_expr_test:\n      - expr: count(ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}})\n"
                    f"        eval_time: {when}\n        exp_samples: {'[{value: 1}]' if expected else '[]'}\n")
    promtool("test", "rules", test)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_an_alert_fires_after_its_time_and_not_at_once(alert, tmp_path):
    given, at = ALERTS[alert]
    fires(tmp_path, alert, given, at, True)
    fires(tmp_path, alert, given, "0m", False)


@pytest.mark.parametrize(("started", "upgrades", "expected"), [
    ("100 100 200+0x9", "0 0 1+0x9", False),
    ("100 100 200 300+0x9", "4 4 5 6+0x9", False),
    ("100 100 200 300+0x9", "4 4 5 0+0x9", True),
    ("100 100 200+0x9", "0+0x12", True),
], ids=["upgrade", "two upgrades", "upgrade and restart", "restart without upgrades"])
def test_an_upgrade_is_no_restart(started, upgrades, expected, tmp_path):
    given = series("process_start_time_seconds", started) + series("mosq_upgrades_total", upgrades)
    fires(tmp_path, "MosqRestarted", given, "5m", expected)



class Prometheus:
    """Debian's Prometheus, which scrapes one broker each second. Alerts fire without their waits."""

    def __init__(self, folder, web):
        self.port, self.folder = free_port(), folder
        config = (CONF / "prometheus.yml").read_text().replace("15s", "1s").replace("127.0.0.1:8080", f"127.0.0.1:{web}")
        (folder / "prometheus.yml").write_text(config)
        (folder / "mosq-rules.yml").write_text(re.sub(r"for: \w+", "for: 0s", (CONF / "mosq-rules.yml").read_text()))

    def __enter__(self):
        self.log = (self.folder / "log").open("w")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *exception):
        self.process.terminate()
        self.process.wait(WAIT_S)
        self.log.close()

    def get(self, path, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=WAIT_S) as answer:
            return json.load(answer)["data"]

    def query(self, text):
        return self.get("query", query=text)["result"]

    def wait_for(self, text):
        """Wait until a query has a result, and return it."""
        end = time.monotonic() + WAIT_S
        while True:
            try:
                found = self.query(text)
            except (OSError, urllib.error.URLError):
                found = []
            if found:
                return found
            assert self.process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < end, (text, (self.folder / "log").read_text()[-2000:])
            time.sleep(0.1)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    web, folder = free_port(), tmp_path_factory.mktemp("prometheus")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nowhere = taken.getsockname()[1]
    with Broker(CONFIG.replace("{web}", str(web)).replace("{nowhere}", str(nowhere))) as broker, Prometheus(folder, web) as prometheus:
        yield broker, prometheus


def names_of(text):
    return set(WORD.findall(re.sub(r'"[^"]*"|\$__?\w+|\[[^]]*\]', " ", text)))


def expressions():
    panels = json.loads((CONF / "grafana-mosq.json").read_text())["panels"]
    for panel in panels:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
    yield from re.findall(r"alert: (\w+)\n +expr: (.*)", (CONF / "mosq-rules.yml").read_text())


def test_prometheus_scrapes_the_broker_and_alerts_fire(pair):
    broker, prometheus = pair
    prometheus.wait_for('up{job="mosq"} == 1')
    prometheus.wait_for("mosq_publish_received_total")
    assert [one["metric"]["stream"] for one in prometheus.wait_for("mosq_stream_records_total")] == ["all"]
    [fired] = prometheus.wait_for('ALERTS{alertname="MosqBridgeDown",alertstate="firing"}')
    assert fired["metric"]["bridge"] == "away"
    for where, text in expressions():
        assert isinstance(prometheus.query(text), list), where
    broker.stop()
    prometheus.wait_for('ALERTS{alertname="MosqDown",alertstate="firing"}')


def test_dashboard_and_rules_name_only_metrics_that_exist():
    known = OTHERS | {f"mosq_{DROPS[0]}_total"}
    for table in (PLAIN, STORE):
        known |= {f"mosq_{row[2]}" + ("_total" if row[1] == "counter" else "") for row in table}
    known |= {f"mosq_{row[0]}" + ("_total" if row[1] == "counter" else "") for row in LABELLED}
    known |= {f"mosq_{name}_total" for _, name, _ in REASONS}
    known |= {f"mosq_{row[0]}_bucket" for row in HISTOGRAMS}
    known |= {f"mosq_{row[2]}" + ("_total" if row[1] == "counter" else "") for row in STREAMS}
    known |= {f"mosq_{name}" for _, name, _ in (*CLUSTER, *QUEUES, *SLOWEST)}
    used = [(where, name) for where, text in expressions() for name in names_of(text)]
    assert len(used) > 40
    assert [one for one in used if one[1] not in known] == []
