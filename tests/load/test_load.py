"""Test `make load` with correct brokers, with faulty ones, and with brokers that go away."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.parse
import urllib.request

import pytest

from mosq.cli.passwd import Hashing
from perf.load.options import OptionError, Target, without_login
from tests.bench.fake import Fake
from tests.harness.broker import Broker, free_port
from tests.harness.certificates import TLS_LINES, server_files
from tests.harness.effort import TIMEOUT_S
from tests.harness.faults import until

pytestmark = pytest.mark.interop

TELEMETRY, CHAT, OFFLINE, COMMANDS, STORM = "telemetry fan-in", "chat pairs", "offline devices", "command fan-out", "connect storm"


def test_two_workers_and_all_scenarios_add_up(load) -> None:
    """Test that the sums of locust's master equal those of the workers' ledgers."""
    run = load("--workers", "2", "--users", "20", "--spawn-rate", "20", "--seconds", "4", "--rate", "10", "--size", "200")
    assert run.wait() == 0, run.log_text
    result = run.result
    assert result["complete"] and result["errors"] == [] and result["users"] == 20
    for name in (TELEMETRY, CHAT, OFFLINE):
        sums = run.sums(name)
        assert sums["deliver QoS 1"] == sums["publish QoS 1"] > 0
    commands = run.sums(COMMANDS)
    assert commands["deliver QoS 1"] > commands["publish QoS 1"] > 0 and run.sums(STORM)["connect"] > 0
    first, second = result["generator"]["processes"]
    assert first["delivered"] > 0 < second["delivered"]
    messages = result["messages"]
    assert first["sent"] + second["sent"] == messages["sent"] == sum(
        entry["requests"] for entry in result["entries"] if entry["type"] == "publish QoS 1")
    # commands may also arrive before SUBACK
    assert messages["delivered"] <= sum(entry["requests"] for entry in result["entries"] if entry["type"] == "deliver QoS 1")
    assert messages["lost"] == messages["duplicates"] == messages["out_of_order"] == messages["foreign"] == 0
    for entry in result["entries"]:
        assert 0 <= entry["p50_ms"] <= entry["p95_ms"] <= entry["p99_ms"] <= entry["max_ms"] and entry["rate"] > 0
    folder = next(run.out.glob("*/locust.json")).parent
    assert (folder / "locust.html").stat().st_size and "telemetry fan-in" in (folder / "locust_stats.csv").read_text()


class Eager(Fake):
    """Send the last message with SUBACK, in one segment."""

    last = b""
    glued = 0

    def forward(self, topic: str, frame: bytes) -> None:
        self.last = frame
        super().forward(topic, frame)

    def send(self, door: socket.socket, data: bytes) -> None:
        glued = self.last if data[0] == 0x90 else b""
        self.glued += bool(glued)
        super().send(door, data + glued)


def test_brokers_that_lose_messages_and_sessions(load) -> None:
    """Test until Ctrl-C. One broker then reads nothing for a while: the test waits for messages on their way."""
    with (Fake(drop=7, double=5, swap=11, after=60, then="stall", stall_s=1.2) as fake, Fake() as forgetful,
          Eager() as eager):
        run = load("--broker", f"mqtt://127.0.0.1:{fake.port}", "--users", "2", "--seconds", "60", "--scenario", "telemetry",
                   "--rate", "50", "--timeout", "5")
        other = load("--broker", f"mqtt://127.0.0.1:{forgetful.port}", "--users", "1", "--seconds", "60", "--scenario",
                     "offline", "--rate", "50", "--backlog", "3")
        right = load("--broker", f"mqtt://127.0.0.1:{eager.port}", "--users", "20", "--spawn-rate", "2", "--seconds", "60",
                     "--scenario", "commands", "--rate", "50")
        for one, enough in ((run, lambda: run.result.get("messages", {}).get("sent", 0) > 60),
                            (other, lambda: other.failures().get("lost")), (right, lambda: eager.glued)):
            until(enough)
            os.kill(one.process.pid, signal.SIGINT)
        assert (run.wait(), other.wait(), right.wait()) == (1, 1, 1)
    assert right.result["why"] == "interrupted" and right.failures() == {} and right.sums(COMMANDS)["deliver QoS 0"]
    failures, result = run.failures(), run.result
    assert failures["duplicate"] == fake.doubled and f"{fake.doubled:,} x deliver QoS 0, telemetry fan-in: duplicate" in run.log_text
    # the fake broker may hold back one at the end
    assert fake.dropped <= failures["lost"] <= fake.dropped + 1 and failures["lost"] == result["messages"]["lost"]
    assert failures.keys() == {"lost", "duplicate", "out of order"}
    assert result["messages"]["sent"] == result["messages"]["delivered"] + failures["lost"]
    assert not result["complete"] and result["why"] == "interrupted" and "not complete: interrupted" in run.log_text
    failures = other.failures()
    assert failures["lost"] == 3 * failures["the broker has not kept the session"] == other.result["messages"]["sent"]
    assert failures["lost"] == other.sums(OFFLINE)["publish QoS 1"] > 0


class Restarted(Fake):
    """Break all connections once; messages that arrived just before are lost."""

    swallowed = 0

    def forward(self, topic: str, frame: bytes) -> None:
        if 40 <= self.published < 60:
            self.swallowed += 1
        else:
            super().forward(topic, frame)
        if self.published == 60:
            for door in list(self.buffers):
                self.end(door)


def test_messages_in_transit_at_a_break_are_lost(load) -> None:
    """Test that a run in which the broker was away is not complete, however short the break was."""
    with Restarted() as fake:
        run = load("--broker", f"mqtt://127.0.0.1:{fake.port}", "--users", "2", "--seconds", "5", "--scenario", "telemetry",
                   "--rate", "50", "--qos", "0", "--timeout", "3")
        assert run.wait() == 1
    result, failures = run.result, run.failures()
    messages = result["messages"]
    assert failures["lost with the connection"] >= fake.swallowed == 20
    assert messages["lost"] == failures["lost with the connection"] + failures.get("lost", 0)
    assert messages["sent"] == messages["delivered"] + messages["lost"] and messages["delivered"] > 39
    assert not result["complete"] and "went away" in result["why"] and result["why"] in run.log_text


def test_refused_logins_over_tls_and_a_killed_broker(load) -> None:
    users = b"".join(Hashing(iterations=1).line(f"u{number}", b"secret") for number in (0, 1, 2))
    config = "listener {port} 127.0.0.1\n" + TLS_LINES + "allow_anonymous false\npassword_file {dir}/users\n"
    with Broker(config, {"users": users.decode(), **server_files()}) as broker:
        run = load("--broker", f"mqtts://localhost:{broker.port}", "--users", "4", "--seconds", "60", "--scenario", "telemetry",
                   "--rate", "0", "--qos", "0", "--username", "u%i", "--cafile", str(broker.dir / "ca.crt"),
                   MOSQ_LOAD_PASSWORD="secret")
        until(lambda: run.sums(TELEMETRY).get("deliver QoS 0") and run.failures())
        assert broker.process is not None
        broker.process.kill()
        assert run.wait() == 1
    result = run.result
    assert not result["complete"] and result["why"].endswith("went away during the test") and result["why"] in run.log_text
    assert run.sums(TELEMETRY)["deliver QoS 0"] > 0
    assert run.failures()["refused: Not authorized"] > 0
    assert "secret" not in run.log_text and "secret" not in json.dumps(result)


def test_no_broker_and_a_refused_login(load) -> None:
    """Test before locust is started."""
    nobody = load("--broker", f"mqtt://127.0.0.1:{free_port()}")
    with Broker("listener {port} 127.0.0.1\nallow_anonymous false\n") as broker:
        refused = load("--broker", f"mqtt://127.0.0.1:{broker.port}", "--mqtt", "5")
        assert (nobody.wait(), refused.wait()) == (1, 1)
    assert nobody.result["why"].startswith("no broker at mqtt://127.0.0.1:") and nobody.result["why"].endswith("Connection refused")
    assert refused.result["why"].endswith("refused the login: Not authorized") and refused.result["why"] in refused.log_text
    assert refused.result["complete"] is nobody.result["complete"] is False


def test_a_cafile_that_cannot_be_read(load) -> None:
    run = load("--broker", f"mqtts://localhost:{free_port()}", "--cafile", "/nope")
    assert run.wait() == 1
    assert run.result["why"] == "--cafile /nope: No such file or directory" and "Traceback" not in run.log_text


def test_interrupted_while_the_broker_does_not_answer(load) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(TIMEOUT_S)
        run = load("--broker", f"mqtt://127.0.0.1:{silent.getsockname()[1]}")
        with silent.accept()[0] as door:
            door.settimeout(TIMEOUT_S)
            assert door.recv(1) == b"\x10"
            os.kill(run.process.pid, signal.SIGINT)
            assert run.wait() == 1
    assert run.result["why"] == "interrupted" and not run.result["complete"] and "Traceback" not in run.log_text


@pytest.mark.parametrize("url", [
    "http://there", "mqtt://", "mqtt://there:99999", "there:1883", "mqtt://ann:pw@there", "mqtt://ann:pw@there:99999",
    "mqtt://ann:pw/1@there", "mqtt://ann:1/pw@there", "mqtt://ann:1@pw@[there", "ann:pw@there:1883", "ann:pw://1@there"])
def test_invalid_addresses(url: str) -> None:
    with pytest.raises(OptionError) as caught:
        Target.of(url)
    assert "pw" not in str(caught.value) and "pw" not in without_login(url)


def test_a_password_in_the_address_is_not_shown(load) -> None:
    """Test the file and the output, because users show both to others."""
    runs = [load("--broker", f"mqtt://joe:s3cretpw@there{port}") for port in ("", ":99999")]
    assert [run.wait() for run in runs] == [1, 1]
    for run in runs:
        assert "s3cretpw" not in run.log_text + json.dumps(run.result) and run.result["why"] in run.log_text
        assert not run.result["complete"] and run.result["broker"].startswith("mqtt://***@there")


def test_the_page_has_options_and_statistics(load) -> None:
    """Test that its form has our options and its statistics the messages, here over WebSockets."""
    port = free_port()
    with Broker("listener {port} 127.0.0.1\nprotocol websockets\nallow_anonymous true\n") as broker:
        run = load("--ui", "--port", str(port), "--broker", f"ws://127.0.0.1:{broker.port}")
        page = f"http://127.0.0.1:{port}"
        until(lambda: "locust's page" in run.log_text)

        def get(path: str, form: dict[str, str | list[str]] | None = None) -> str:
            data = None if form is None else urllib.parse.urlencode(form, doseq=True).encode()
            with urllib.request.urlopen(page + path, data, 20) as answer:
                return answer.read().decode()

        def shown(kind: str) -> set[str]:
            """Return the statistics of a kind, at most two seconds old."""
            return {row["name"] for row in json.loads(get("/stats/requests"))["stats"] if row["method"] == kind}

        form = get("/")
        assert all(f"mqtt_{name}" in form for name in ("qos", "rate", "size", "username", "backlog")) and "mqtt_result" not in form
        answer = get("/swarm", {"user_count": "4", "spawn_rate": "4", "user_classes": ["Telemetry", "Offline"],
                                "mqtt_rate": "50", "mqtt_qos": "2", "mqtt_version": "5"})
        assert json.loads(answer)["success"]
        until(lambda: all(run.sums(name).get("deliver QoS 2") for name in (TELEMETRY, OFFLINE)))
        assert shown("deliver QoS 2") == {TELEMETRY, OFFLINE}
        get("/swarm", {"user_count": "2", "spawn_rate": "4", "user_classes": ["Telemetry", "Offline"]})
        until(lambda: json.loads(get("/stats/requests"))["user_count"] == 2)
        get("/stop", {})
        os.kill(run.process.pid, signal.SIGINT)
        assert run.wait() == 0, run.log_text
    assert run.result["complete"] and run.result["errors"] == []
    sums = run.sums(TELEMETRY)          # messages of users that left in between were waited for
    assert sums["deliver QoS 2"] == sums["publish QoS 2"] > 0
    assert 0 < run.sums(OFFLINE)["deliver QoS 2"] <= run.sums(OFFLINE)["publish QoS 2"]
