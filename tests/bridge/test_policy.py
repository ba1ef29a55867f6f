"""Test when a bridge connects, where to, and when again: the policy alone, with a simulated clock and data plane."""

from __future__ import annotations

import errno
import socket
import threading
from typing import Any

import pytest

from mosq.server.bridge.backoff import Backoff
from mosq.server.bridge.bridges import FIRST_WITHIN_S, Bridges
from mosq.server.bridge.lookup import THREADS_MAX, Lookups
from mosq.server.bridge.spec import bridge_specs
from mosq.config.parser import load_config
from mosq.records import BridgeEvent

NAMES = {"main": ["10.0.0.1"], "second": ["10.0.0.2", "10.0.0.3"], "third": ["10.0.0.4"], "six": ["fe80::1"]}


class Plane:
    """Simulate engine, clock and name servers; everything happens in the test's thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
        self.path = tmp_path / "mosq.conf"
        self.at_s = 1000.0
        self.did: list[tuple[Any, ...]] = []
        self.lines: list[str] = []
        self.bridges = Bridges(self, self.report, lambda: None, clock=lambda: self.at_s)   # type: ignore[arg-type]
        self.bridges.waiting = lambda name: self.pending      # type: ignore[method-assign]
        self.pending = 0                    # messages for the other side
        self.broken: OSError | None = None  # connects cannot even begin
        self.silent: set[str] = set()       # names without an answer
        self.listens: set[str] = set()      # addresses that accept connections
        self.asked: list[tuple[str, str, Any]] = []
        self.bridges.find = self._find        # type: ignore[method-assign]
        self.bridges.try_one = self._try_one  # type: ignore[method-assign]
        self.factor = 1.0                   # factor of the jitter, in 0..1
        self.bridges.backoff = self._backoff  # type: ignore[method-assign]

    def report(self, level: int, text: str) -> None:
        self.lines.append(text)

    def bridge(self, name: str, action: str, address: Any = None, host: str = "", try_private: bool = True) -> None:
        if action == "connect" and self.broken is not None:
            raise self.broken
        self.did.append((action, address[1], address[2], host, try_private) if action == "connect" else (action,))

    def _backoff(self, bridge: Any) -> Backoff:
        return Backoff(bridge.restart_base_s, bridge.restart_cap_s, bridge.restart_stable_s,
                       lambda low, high: low + (high - low) * self.factor)

    def _find(self, name: str, host: str, port: int, family: int, on_answer: Any) -> None:
        self.asked.append(("find", host, on_answer))
        if host in self.silent:
            return
        if host not in NAMES:
            on_answer(OSError(socket.EAI_NONAME, "Name or service not known"))
        else:
            on_answer([(socket.AF_INET6 if ":" in one else socket.AF_INET, one, port) for one in NAMES[host]])

    def _try_one(self, name: str, host: str, port: int, family: int, on_answer: Any) -> None:
        self.asked.append(("try", host, on_answer))
        on_answer([(socket.AF_INET, host, port)] if host in self.listens else OSError(errno.ECONNREFUSED, "refused"))

    def hold_connects(self, held: bool) -> None:
        self.did.append(("hold", held))

    # ---- actions of tests

    def config(self, *lines: str, name: str = "b") -> None:
        text = "\n".join([f"connection {name}", "topic # both", *lines])
        self.path.write_text(text + "\n")
        self.bridges.reload(load_config(str(self.path)))

    def event(self, event: str, detail: str = "", name: str = "b") -> None:
        self.bridges.take([BridgeEvent(name, event, detail)])

    def fail(self, detail: str = "Connection refused") -> None:
        self.event("down", detail)
        self.bridges.serve()

    def wait(self, seconds: float) -> None:
        self.at_s += seconds
        self.bridges.serve()

    def tried(self) -> list[str]:
        """Return the numeric addresses of the connects since the last call."""
        found = [one[1] for one in self.did if one[0] == "connect"]
        self.did.clear()
        return found

    @property
    def state(self) -> str:
        return self.bridges.policies["b"].state

    def pause_s(self) -> float:
        found = self.bridges.due_in_s()
        assert found is not None
        assert self.state == "pause"
        return found


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Plane:
    return Plane(monkeypatch, tmp_path)


def test_automatic_connects_at_once_and_again_after_a_pause(plane: Plane) -> None:
    plane.config("address main:1884")
    assert plane.did == [("connect", "10.0.0.1", 1884, "main", True)]
    plane.event("up")
    assert plane.bridges.due_in_s() is None       # no action is due while the bridge is up
    plane.did.clear()
    plane.event("down", "connection closed")
    assert plane.pause_s() == 5                 # a successful connection resets the pause
    plane.wait(4.9)
    assert plane.tried() == []
    plane.wait(0.2)
    assert plane.tried() == ["10.0.0.1"]


ADMITTED = ("hold", False)


def test_clients_wait_for_the_first_attempts(plane: Plane) -> None:
    plane.bridges.hold_clients()
    plane.config("address main second")
    plane.bridges.admit_clients()
    assert ADMITTED not in plane.did
    plane.event("down", "Connection refused")
    plane.bridges.admit_clients()               # the next address is due at once
    assert ADMITTED not in plane.did
    plane.bridges.serve()
    plane.event("up")
    assert plane.bridges.due_in_s() == 0
    for _ in range(2):
        plane.bridges.admit_clients()
    assert plane.did.count(ADMITTED) == 1


@pytest.mark.parametrize("address", ["main", "silent"])
def test_clients_do_not_wait_long_for_the_first_attempts(plane: Plane, address: str) -> None:
    plane.silent.add("silent")
    plane.bridges.hold_clients()
    plane.config(f"address {address}")
    assert plane.bridges.due_in_s() == FIRST_WITHIN_S
    plane.wait(FIRST_WITHIN_S)
    plane.bridges.admit_clients()
    assert plane.did[-1] == ADMITTED


def test_clients_do_not_wait_for_a_bridge_that_does_not_begin(plane: Plane) -> None:
    plane.bridges.hold_clients()
    plane.config("address main", "start_type lazy")
    plane.bridges.admit_clients()
    assert plane.did == [ADMITTED]


def test_numeric_addresses_need_no_lookup(plane: Plane) -> None:
    plane.config("address 192.0.2.1 [2001:db8::1]:1884")
    assert plane.asked == []
    assert plane.did == [("connect", "192.0.2.1", 1883, "192.0.2.1", True)]
    plane.fail()
    assert plane.did[1:] == [("connect", "2001:db8::1", 1884, "2001:db8::1", True)]


def test_the_pause_grows_with_jitter_up_to_its_limit(plane: Plane) -> None:
    plane.config("address main", "restart_timeout 2 30")
    pauses = []
    for plane.factor in (0.5, 1.0, 1.0, 1.0, 0.0):
        plane.fail()
        pauses.append(plane.pause_s())
        plane.wait(plane.pause_s())
    assert pauses == [2 + 0.5 * 4, 12, 30, 30, 2]
    assert "Bridge b next backoff will be 12000 ms" in plane.lines


@pytest.mark.parametrize(("lines", "pauses"), [
    (("restart_timeout 7",), [7, 7, 7]), (("restart_timeout 3 8",), [8, 8, 8]), ((), [15, 30, 30])])
def test_restart_timeout(plane: Plane, lines: tuple[str, ...], pauses: list[float]) -> None:
    plane.config("address main", *lines)
    seen = []
    for _ in range(3):
        plane.fail()
        seen.append(plane.pause_s())
        plane.wait(plane.pause_s())
    assert seen == pauses


@pytest.mark.parametrize(("lasted_s", "pause_s"), [(59, 10), (60, 2)])
def test_only_a_stable_connection_resets_the_pause(plane: Plane, lasted_s: float, pause_s: float) -> None:
    plane.config("address main", "restart_timeout 2 10 60")
    plane.fail()
    plane.wait(plane.pause_s())
    plane.event("up")
    plane.wait(lasted_s)
    plane.event("down")
    assert plane.pause_s() == pause_s
    assert ("Bridge b connection was stable enough, resetting backoff" in plane.lines) == (pause_s == 2)


def test_each_address_is_tried_before_the_pause(plane: Plane) -> None:
    plane.config("address main second third")
    for _ in range(4):
        plane.fail()
    assert plane.tried() == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]
    assert plane.pause_s() > 0
    plane.wait(plane.pause_s())
    assert plane.tried() == ["10.0.0.1"]


def test_a_lost_connection_selects_the_next_address(plane: Plane) -> None:
    plane.config("address main third", "restart_timeout 3", "round_robin true")
    plane.event("up")
    plane.event("down")
    plane.wait(3)
    plane.event("up")
    plane.event("down")
    plane.wait(3)
    assert plane.tried() == ["10.0.0.1", "10.0.0.4", "10.0.0.1"]


def test_round_robin_keeps_the_current_address(plane: Plane) -> None:
    plane.config("address main third", "round_robin true")
    plane.listens.add("main")
    plane.fail()
    plane.event("up")
    assert plane.bridges.due_in_s() is None
    plane.wait(1000)
    assert [kind for kind, _, _ in plane.asked] == ["find", "find"]
    assert plane.state == "up"


def test_without_round_robin_the_first_address_is_preferred(plane: Plane) -> None:
    plane.config("address main third")
    plane.fail()
    plane.event("up")
    assert plane.tried() == ["10.0.0.1", "10.0.0.4"]
    for _ in range(3):
        plane.wait(5)
        assert plane.did == []
    assert [host for kind, host, _ in plane.asked if kind == "try"] == ["main"] * 3
    plane.listens.add("main")
    plane.wait(5)
    assert plane.did == [("close",)]
    plane.event("down", "closed")
    assert plane.tried() == ["10.0.0.1"]
    plane.event("up")
    assert plane.bridges.due_in_s() is None


def test_a_first_address_that_refuses_is_tried_less_often(plane: Plane) -> None:
    plane.config("address main third")
    plane.listens.add("main")
    plane.fail()
    waits = []
    for _ in range(4):
        plane.event("up")
        wait_s = plane.bridges.due_in_s()
        assert wait_s is not None
        waits.append(wait_s)
        plane.wait(wait_s)                                  # the address accepted connections: connect to the first one again
        plane.event("down")
        plane.event("refused", "not authorised")            # the first one refuses: connect to the other
        plane.bridges.serve()
    assert waits == [5, 10, 20, 40]


def test_a_lazy_bridge_connects_for_messages_and_rests_when_idle(plane: Plane) -> None:
    plane.config("address main", "start_type lazy", "restart_timeout 3")
    assert (plane.did, plane.state) == ([], "rest")
    plane.event("wanted")
    assert plane.tried() == ["10.0.0.1"]
    plane.fail()                                            # waiting messages still wait
    plane.wait(3)
    assert plane.tried() == ["10.0.0.1"]
    plane.event("up")
    plane.event("idle")
    assert plane.did == [("close",)]
    plane.event("down")
    assert (plane.state, plane.bridges.due_in_s()) == ("rest", None)
    plane.event("wanted")
    plane.event("up")
    plane.event("down", "connection closed")
    assert (plane.state, plane.bridges.due_in_s()) == ("rest", None)


def test_a_lazy_bridge_reconnects_for_queued_messages(plane: Plane) -> None:
    plane.config("address main", "start_type lazy", "threshold 5", "restart_timeout 3")
    plane.event("wanted")
    plane.event("up")
    plane.pending = 5
    plane.event("down", "connection closed")
    plane.wait(3)
    assert plane.tried() == ["10.0.0.1", "10.0.0.1"]


def test_a_connect_that_fails_at_once_causes_a_pause(plane: Plane) -> None:
    plane.broken = OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
    plane.config("address main")
    assert plane.bridges.due_in_s() == 0
    plane.bridges.serve()
    assert plane.state == "pause"
    assert any("Cannot assign requested address" in line for line in plane.lines)


def test_refusals_marked_will_retry_are_retried_at_once(plane: Plane) -> None:
    plane.config("address main")
    for _ in range(4):
        plane.event("refused", "155 QoS not supported (will retry)")
    assert len(plane.tried()) == 5
    plane.event("refused", "155 QoS not supported (will retry)")        # the number of attempts is limited
    assert plane.state == "pause"


def test_start_type_once_connects_once(plane: Plane) -> None:
    plane.config("address main third", "start_type once")
    plane.fail()
    plane.event("up")
    assert plane.tried() == ["10.0.0.1", "10.0.0.4"]
    plane.event("down")
    assert (plane.state, plane.bridges.due_in_s()) == ("rest", None)
    plane.event("wanted")
    assert plane.tried() == []


def test_start_type_once_with_an_unknown_host_rests(plane: Plane) -> None:
    plane.config("address nowhere", "start_type once")
    assert (plane.state, plane.bridges.due_in_s()) == ("rest", None)
    assert "Error creating bridge b: nowhere: Name or service not known." in plane.lines


def test_a_refused_version_is_retried_without_try_private(plane: Plane) -> None:
    plane.config("address main")
    plane.event("refused", "unacceptable protocol version")
    assert [one[-1] for one in plane.did] == [True, False]
    plane.event("refused", "unacceptable protocol version")
    assert plane.state == "pause"
    plane.wait(plane.pause_s())
    assert plane.did[-1][-1] is False           # known from the refusal
    plane.config("address main", "try_private false")
    assert plane.did[-1] == ("close",)


def test_other_refusals_are_failures(plane: Plane) -> None:
    plane.config("address main")
    plane.event("refused", "not authorised")
    assert plane.state == "pause"
    assert any("not authorised" in line for line in plane.lines)


def test_a_lookup_that_is_never_answered(plane: Plane) -> None:
    plane.silent.add("main")
    plane.config("address main third")
    assert plane.state == "finding"
    plane.wait(14.9)
    assert plane.tried() == []
    plane.wait(0.2)
    plane.bridges.serve()
    assert plane.tried() == ["10.0.0.4"]
    plane.asked[0][2]([(socket.AF_INET, "10.0.0.1", 1883)])         # an answer that is no longer needed
    assert plane.tried() == []


def test_addresses_of_another_family_than_bind_address_are_skipped(plane: Plane) -> None:
    plane.config("address six second", "bridge_bind_address 127.0.0.1")
    plane.bridges.serve()
    assert plane.tried() == ["10.0.0.2"]


def test_lazy_reload_waits_for_the_connection_to_break(plane: Plane) -> None:
    plane.config("address main")
    plane.event("up")
    plane.config("address third")
    assert plane.state == "up"
    assert plane.tried() == ["10.0.0.1"]
    plane.event("down")
    assert plane.tried() == ["10.0.0.4"]


def test_immediate_reload(plane: Plane) -> None:
    plane.config("address main")
    plane.event("up")
    plane.config("address third", "bridge_reload_type immediate")
    assert plane.did[-1] == ("close",)
    plane.event("down")
    assert plane.tried() == ["10.0.0.1", "10.0.0.4"]


@pytest.mark.parametrize("when", ["opening", "pause", "rest", "finding"])
def test_a_reload_of_an_unconnected_bridge_applies_at_once(plane: Plane, when: str) -> None:
    plane.silent.add("main") if when == "finding" else None
    plane.config("address main", *(["start_type lazy"] if when == "rest" else []))
    if when == "pause":
        plane.fail()
    assert plane.state == when
    plane.tried()
    plane.config("address third")
    if when == "opening":
        plane.event("down")
    assert plane.tried() == ["10.0.0.4"]


@pytest.mark.parametrize("start_type", ["automatic", "once"])
def test_a_lazy_bridge_with_a_new_start_type_does_not_rest(plane: Plane, start_type: str) -> None:
    plane.config("address main", "start_type lazy")
    plane.event("wanted")
    plane.event("up")
    plane.config("address second", f"start_type {start_type}")
    plane.event("idle")
    plane.tried()
    plane.event("down")
    assert plane.tried() == ["10.0.0.2"]


def test_a_reload_during_the_return_to_the_first_address(plane: Plane) -> None:
    plane.config("address main second")
    plane.fail()
    plane.event("up")
    plane.config("address third", "start_type lazy")        # when this connection has ended
    plane.listens.add("main")
    plane.wait(5)
    plane.tried()
    plane.event("down")
    assert (plane.did, plane.state) == ([], "rest")


def test_a_reload_without_changes_changes_nothing(plane: Plane) -> None:
    plane.config("address main")
    plane.event("up")
    plane.did.clear()
    plane.config("address main")
    assert (plane.did, plane.state) == ([], "up")


def test_events_of_a_removed_bridge_are_ignored(plane: Plane) -> None:
    plane.config("address main")
    plane.event("up")
    plane.config("address third", name="other")
    assert plane.tried() == ["10.0.0.1", "10.0.0.4"]
    plane.event("down")
    plane.wait(100)
    assert plane.tried() == []


def test_a_lookup_of_a_removed_bridge_does_not_reach_its_successor(plane: Plane) -> None:
    plane.silent |= {"main", "second"}
    plane.config("address main")
    plane.config("address third", name="other")
    plane.config("address second")                          # a bridge of the same name, whose look-up has not ended
    plane.did.clear()
    plane.asked[0][2]([(socket.AF_INET, "10.0.0.1", 1883)])
    assert plane.did == []


def test_the_first_address_of_a_removed_bridge_is_ignored(plane: Plane, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(plane.bridges, "try_one", lambda *given: asked.append(given[-1]))
    plane.config("address main second")
    plane.fail()
    plane.event("up")
    plane.wait(5)                                           # main is tried
    plane.config("address third", name="other")
    plane.config("address main")
    plane.event("up")
    plane.did.clear()
    asked[0]([(socket.AF_INET, "10.0.0.1", 1883)])
    assert plane.did == []


def test_a_bridge_without_an_event_is_closed_after_a_minute(plane: Plane) -> None:
    plane.config("address main")
    plane.wait(61)
    assert plane.did[-1] == ("close",)
    plane.wait(11)
    assert plane.state == "pause"


# ---------------------------------------------------------------- names

def test_a_hanging_lookup_delays_no_other_lookup() -> None:
    release, woken, hanging = threading.Event(), threading.Event(), threading.Semaphore(0)

    def finder(host: str, port: int, family: int, kind: int) -> list[tuple[Any, ...]]:
        if host.startswith("silent"):
            hanging.release()
            release.wait(30)
        return [(socket.AF_INET, kind, 6, "", ("10.0.0.9", port))]

    lookups = Lookups(woken.set, finder)
    answers: list[Any] = []
    for i in range(THREADS_MAX - 1):
        for who in ("one", "two", "one"):                           # repeated requests are one look-up
            lookups.find(who, f"silent{i}", 1883, 0, answers.append)
    for _ in range(THREADS_MAX - 1):
        assert hanging.acquire(timeout=10)
    lookups.find("b", "main", 1883, 0, answers.append)
    assert woken.wait(10)
    lookups.take()
    assert answers == [[(socket.AF_INET, "10.0.0.9", 1883)]]
    assert sum(thread.name == "mosq-names" for thread in threading.enumerate()) <= THREADS_MAX
    answers.clear()
    release.set()
    while len(answers) < 2 * (THREADS_MAX - 1):                     # one answer for each of the two callers
        woken.wait(10)
        woken.clear()
        lookups.take()
    assert lookups.waiting == {}


def test_a_failed_thread_start_answers_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Test that each request gets the error as its answer, none waits for ever, and later all threads exist again."""
    woken, release = threading.Event(), threading.Event()

    def finder(host: str, port: int, family: int, kind: int) -> list[tuple[Any, ...]]:
        release.wait(10)
        return [(socket.AF_INET, kind, 6, "", ("10.0.0.9", port))]

    def no_more(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lookups, answers = Lookups(woken.set, finder), list[Any]()
    with monkeypatch.context() as m:
        m.setattr(threading.Thread, "start", no_more)
        for i in range(THREADS_MAX + 1):
            lookups.find("b", f"h{i}", 1883, 0, answers.append)
            assert woken.is_set()
            lookups.take()
        assert [str(answer) for answer in answers] == ["[Errno None] the lookup could not start: can't start new thread"] * (THREADS_MAX + 1)
    answers.clear()
    lookups.find("b", "first", 1883, 0, answers.append)
    with monkeypatch.context() as m:
        m.setattr(threading.Thread, "start", no_more)
        lookups.find("b", "second", 1883, 0, answers.append)    # the thread of the first look-up handles it
    release.set()
    while len(answers) < 2:
        assert woken.wait(10)
        woken.clear()
        lookups.take()
    assert answers == [[(socket.AF_INET, "10.0.0.9", 1883)]] * 2
    assert lookups.waiting == {}


def test_try_one_reports_whether_a_port_listens() -> None:
    woken = threading.Event()
    lookups = Lookups(woken.set)
    answers: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        lookups.try_one("b", "127.0.0.1", port, 0, answers.append)
        assert woken.wait(10)
        lookups.take()
    assert answers == [[(socket.AF_INET, "127.0.0.1", port)]]
    woken.clear()
    lookups.try_one("b", "127.0.0.1", port, 0, answers.append)
    assert woken.wait(10)
    lookups.take()
    assert isinstance(answers[1], OSError)


# ---------------------------------------------------------------- settings for the data plane

def spec(tmp_path: Any, *lines: str) -> dict[str, Any]:
    path = tmp_path / "mosq.conf"
    path.write_text("\n".join(["connection b", "address h", *lines, *([] if any(x.split()[0] == "topic" for x in lines) else ["topic #"])]) + "\n")
    return bridge_specs(load_config(str(path)), "host")[0]


def test_a_spec_by_default(tmp_path: Any) -> None:
    found = spec(tmp_path, "topic a/# both 1 l/ r/")
    assert found == {
        "name": "b", "local_clientid": "local.host.b", "local_username": None, "remote_clientid": "host.b", "remote_username": None,
        "remote_password": None, "version": 4, "clean_start": False, "local_clean": False, "keepalive_s": 60, "try_private": True,
        "topics": [{"direction": "both", "qos": 1, "local": "l/a/#", "remote": "r/a/#", "local_prefix": "l/", "remote_prefix": "r/", "whole": False}],
        "notifications": True, "notifications_local_only": False, "notification_topic": "$SYS/broker/connection/host.b/state",
        "attempt_unsubscribe": True, "outgoing_retain": True, "receive_maximum": 20, "topic_alias_max": 10, "session_expiry_s": 0,
        "packet_max": 0, "packet_max_in": 0, "threshold": 0, "idle_ms": 0, "tls": None, "user_timeout_ms": 0, "tcp_keepalive": None, "bind": None, "loop_guard": False, "reload_lazy": True}


@pytest.mark.parametrize(("lines", "name", "value"), [
    (["bridge_protocol_version mqttv31"], "version", 3),
    (["bridge_protocol_version mqttv50"], "version", 5),
    (["cleansession true"], "clean_start", True),
    (["cleansession true"], "local_clean", True),
    (["cleansession true", "local_cleansession false"], "local_clean", False),
    (["remote_password päss"], "remote_password", "päss".encode()),
    (["local_username u"], "local_username", "u"),
    (["notification_topic n"], "notification_topic", "n"),
    (["remote_clientid r"], "notification_topic", "$SYS/broker/connection/r/state"),
    (["start_type lazy", "threshold 3"], "threshold", 3),
    (["start_type lazy", "idle_timeout 4"], "idle_ms", 4000),
    (["bridge_receive_maximum 7"], "receive_maximum", 7),
    (["bridge_tcp_user_timeout 700"], "user_timeout_ms", 700),
    (["bridge_tcp_keepalive 1 2 3"], "tcp_keepalive", (1, 2, 3)),
    (["bridge_bind_address ::1"], "bind", "::1"),
    (["bridge_loop_guard true"], "loop_guard", True),
    (["bridge_reload_type immediate"], "reload_lazy", False),
    (['topic "" in 2 here there'], "topics", [{"direction": "in", "qos": 2, "local": "here", "remote": "there", "local_prefix": "here",
                                               "remote_prefix": "there", "whole": True}]),
])
def test_options_in_a_spec(tmp_path: Any, lines: list[str], name: str, value: object) -> None:
    assert spec(tmp_path, *lines)[name] == value


def test_tls_in_a_spec(tmp_path: Any) -> None:
    assert spec(tmp_path, "bridge_certfile /c", "bridge_keyfile /k")["tls"] is None
    found = spec(tmp_path, "bridge_cafile /ca", "bridge_ciphers_tls1.3 X", "bridge_insecure true")["tls"]
    assert (found["cafile"], found["ciphers_tls1.3"], found["insecure"]) == ("/ca", "X", True)
    found = spec(tmp_path, "bridge_identity i", "bridge_psk 00")["tls"]
    assert (found["identity"], found["psk"], found["cafile"]) == ("i", "00", None)


def test_the_page_names_each_option_and_existing_tests() -> None:
    import re
    from pathlib import Path

    from mosq.config.options.rows_bridge import BRIDGES

    root = Path(__file__).parents[2]
    rows = [line for line in (root / "docs/bridges.md").read_text().splitlines() if line.startswith("| `")]
    named = {option for row in rows for option in re.findall("`([a-z0-9_.]+)`", row.split("|")[1])}
    assert {name for row in BRIDGES for name in (row.name, *row.aliases)} <= named
    for row in rows:
        where = ""
        for path, test in re.findall(r"([a-z]+/test_[a-z]+\.py)|`(test_[a-z0-9_]+)(?:\.\.\.)?`", row):
            where = path or where
            assert (root / "tests" / where).exists(), row
            if test:
                assert f"def {test}" in (root / "tests" / where).read_text(), (where, test)
