"""Test the dashboard's files, API and rights over HTTP, with a real broker."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from mosq.config.change import SECRETS
from mosq.server.http.buckets import BUCKETS
from mosq.server.http.dashboard import feed, files, listing, messages
from mosq.server.http.dashboard.answers import RefusedError
from mosq.server.http.dashboard.api import SEARCHES_WAITING_MAX
from mosq.server.http.dashboard.changes import Changes
from mosq.server.http.dashboard.guard import Guard
from mosq.server.http.dashboard.inside import ClosedError, Inside
from mosq.server.http.dashboard.messages import TAILS_OF_USER_MAX
from mosq.server.http.dashboard.turns import Turns
from mosq.server.http.logins import BusyError
from mosq.stat_names import STATS
from tests.harness.broker import Broker, free_port
from tests.http.dashboard import CONFIG, HOSTILE, USERS, WAIT_S, Scene
from tests.http.serving import Server

STATIC = Path(files.FOLDER)


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with Scene() as running:
        yield running


def until(found: Callable[[], Any]) -> Any:
    """Return the first true result."""
    give_up = time.monotonic() + WAIT_S
    while not (result := found()):
        assert time.monotonic() < give_up, "the broker has not done it"
        time.sleep(.02)
    return result


# ---------------------------------------------------------------- the files

def test_every_file_is_served_with_its_headers(scene: Scene) -> None:
    names = sorted(one.name for one in STATIC.iterdir())
    total = 0
    for name in names:
        status, body, headers = scene.request(f"/dashboard/{name}")
        total += len(body)
        assert (status, body) == (200, (STATIC / name).read_bytes())
        assert headers["content-type"] == files.KINDS[Path(name).suffix]
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        again = scene.request(f"/dashboard/{name}", headers={"If-None-Match": f'"other", W/{headers["etag"]}'})
        assert again[:2] == (304, b"")
    assert total < 150_000
    assert scene.request("/dashboard/")[1] == (STATIC / "index.html").read_bytes()
    status, _, headers = scene.request("/dashboard")
    assert (status, headers["location"]) == (308, "/dashboard/")
    for path in ("/dashboard/none", "/dashboard/api/none", "/dashboard/api/", "/dashboard/static/main.js", "/dashboard/__init__.py"):
        assert scene.request(path)[0] == 404, path


def test_the_page_holds_no_inline_code_and_loads_nothing_from_elsewhere() -> None:
    html = (STATIC / "index.html").read_text()
    assert re.findall(r"<script[^>]*>(.*?)</script>", html) == [""]
    assert not re.search(r"\son\w+=|style=|<style", html)
    for one in STATIC.iterdir():
        text = one.read_text()
        assert re.findall(r"(?:https?:)?//[a-z][\w.-]*\.[a-z]{2,}[^\s\"']*", text.replace("http://www.w3.org/2000/svg", "")) == []
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser", text), one.name


def test_a_listener_without_the_option_has_no_dashboard() -> None:
    web, other = free_port(), free_port()
    broker = Broker(f"listener {{port}} 127.0.0.1\nallow_anonymous true\nlistener {web} 127.0.0.1\nprotocol http_api\n"
                    f"listener {other} 127.0.0.1\nprotocol http_api\nhttp_dashboard true\n")
    with_, without = Scene.__new__(Scene), Scene.__new__(Scene)
    with_.web, without.web = other, web
    broker.start()
    try:
        assert until(lambda: with_.request("/dashboard/", None)[0] == 200)
        for path in ("/dashboard/", "/dashboard", "/dashboard/api/session", "/dashboard/api/feed"):
            assert without.request(path, None)[0] == 404
        assert without.request("/dashboard/api/kick", None, "POST", {})[0] == 405
    finally:
        broker.close()


# ---------------------------------------------------------------- readings

def test_the_session_names_the_user_and_its_rights(scene: Scene) -> None:
    status, admin = scene.get("session")
    assert (status, admin["user"], admin["mayChange"], admin["store"]) == (200, "admin", True, True)
    reader = scene.get("session", "reader")[1]
    assert (reader["user"], reader["mayChange"]) == ("reader", False)
    assert reader["token"] != admin["token"]


def test_users_without_the_right_read_nothing(scene: Scene) -> None:
    for path in ("/dashboard/", "/dashboard/main.js", "/dashboard/api/session", "/dashboard/api/clients", "/dashboard/api/feed", "/dashboard/api/config"):
        assert scene.request(path, "stranger")[0] == 403, path
        assert scene.request(path, None)[0] == 401, path


def test_clients_are_searched_and_sorted_by_the_broker(scene: Scene) -> None:
    scene.client("lister-b", "x/1", "x/2")
    scene.client("lister-a", "x/1")
    scene.client("lister-c", "queued/#", clean=False)
    scene.disconnect("lister-c")
    until(lambda: scene.get("client?id=lister-c")[1]["client"]["connected"] is False)
    sender = scene.client("sender")
    for _ in range(5):
        scene.publish(sender, "queued/a", "12345")

    def ids(query: str) -> list[str]:
        status, found = scene.get(f"clients?{query}")
        assert status == 200 and found["complete"]
        return [one["clientid"] for one in found["clients"]]

    assert ids("search=lister") == ["lister-a", "lister-b", "lister-c"]
    assert ids("search=LISTER-&count=1&offset=1") == ["lister-b"]
    assert ids("search=lister&state=connected&sort=subscriptions") == ["lister-b", "lister-a"]
    assert ids("search=lister&state=offline") == ["lister-c"]
    assert ids("sort=queued")[0] == "lister-c"
    assert scene.get("client?id=lister-c")[1]["client"]["pending"] == 5
    subscriptions = scene.get("subscriptions?id=lister-b")[1]
    assert sorted(one["topic"] for one in subscriptions["subscriptions"]) == ["x/1", "x/2"]
    assert scene.get("client?id=none") == (404, {"error": "Client not found"})
    for query in ("sort=none", "state=none", "count=201", "count=-1", "offset=1001", "count=x", f"search={'x' * 201}"):
        assert scene.get(f"clients?{query}")[0] == 400, query


def test_retained_messages_are_shown_level_by_level(scene: Scene) -> None:
    sender = scene.client("keeper")
    for topic, payload in (("site/n/1", b"one"), ("site/n/2", b"\xff\x00"), ("site/n", b"own"), ("site/s", b"south"), ("secret/a", b"s")):
        scene.publish(sender, topic, payload, retain=True)
    found = until(lambda: (one := scene.get("retained?prefix=site")[1])["read"] == 4 and one)
    assert found["levels"] == [{"name": "n", "topics": 3, "bytes": 8, "own": 3}, {"name": "s", "topics": 1, "bytes": 5, "own": 5}]
    assert found["complete"] is True and found["own"] is None
    assert [one["name"] for one in scene.get("retained?prefix=site/n")[1]["levels"]] == ["1", "2"]
    assert scene.get("message?topic=site/n/1") == (200, {"topic": "site/n/1", "size": 3, "retain": True, "text": "one"})
    assert scene.get("message?topic=site/n/2")[1]["hex"] == "ff 00"
    # a reader sees the topics that it may read, and no others
    assert [one["name"] for one in scene.get("retained", "reader")[1]["levels"]] == ["site"]
    # it does not learn how many there are, either
    assert scene.get("retained?prefix=secret", "reader")[1] == {"prefix": "secret", "own": None, "levels": [], "more": 0, "read": 0, "complete": True}
    assert scene.get("message?topic=secret/a", "reader")[0] == 403
    assert scene.get("message?topic=site/none")[0] == 404
    for prefix in ("a/%23", "%2B", "a%00", "a%0a", "x" * 5000):
        assert scene.get(f"retained?prefix={prefix}")[0] in (200, 400), prefix


def test_levels_with_long_names_are_bounded(scene: Scene) -> None:
    sender = scene.client("keeper of long names")
    for n in range(20):
        scene.publish(sender, f"long/{n}{'x' * 60_000}", b"1", retain=True)
    found = until(lambda: (one := scene.get("retained?prefix=long")[1])["read"] == 20 and one)
    assert (len(found["levels"]), found["more"]) == (17, 3)
    for n in range(20):
        scene.publish(sender, f"long/{n}{'x' * 60_000}", b"", retain=True)


def test_slow_checks_of_topics_delay_other_questions_for_seconds_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "RIGHTS_WITHIN_S", .05)

    class Rights:
        async def may_read(self, topic: str) -> bool:
            await asyncio.sleep(.01)
            return True

    class Retained(messages.Messages):
        async def retained(self, filter: str) -> Any:
            return [(f"a/{n}", b"1", 0, True) for n in range(5000)], True

    found = asyncio.run(Retained(lambda fd: None).levels("a", Rights()))       # type: ignore[arg-type]
    assert (1 <= found["read"] <= 5, found["complete"]) == (True, False)


def test_an_explanation_has_the_filters_of_the_topic(scene: Scene) -> None:
    scene.client("explained", "deep/+/x", "$share/g/deep/#")
    found = scene.get("explain?topic=deep/1/x")[1]
    assert [one["filter"] for one in found["filters"]] == ["deep/+/x", "deep/#"] or {one["filter"] for one in found["filters"]} == {"deep/+/x", "deep/#"}
    assert scene.get("explain?topic=deep/%23")[0] == 400
    assert scene.get("explain?topic=")[0] == 400


def test_the_configuration_names_its_lines_and_hides_secrets(scene: Scene) -> None:
    status, found = scene.get("config")
    assert status == 200 and found["file"] == str(scene.broker.config)
    rows = {(option, scope): (value, source, default) for option, scope, value, source, default in found["rows"]}
    lines = scene.broker.config.read_text().splitlines()
    place = lines.index("max_queued_messages 500") + 1
    assert rows["max_queued_messages", "the broker"] == ("500", f"{scene.broker.config}:{place}", False)
    assert rows["http_dashboard", f"listener 127.0.0.1:{scene.web}"][0] == "true"
    assert rows["remote_password", "bridge north"][0] == "(not shown)"
    assert "SECRET" not in json.dumps(found)
    for name in ("config", "system", "log", "statistics", "clients"):
        text = json.dumps(scene.get(name)[1])
        assert "SECRET" not in text and "$7$" not in text and "a secret" not in text, name
    assert set(SECRETS) == {"remote_password", "local_password", "bridge_psk", "tls_engine_kpass_sha1", "cluster"}


@pytest.mark.one_process("with workers, the dashboard's log has the lines of worker 1 only")
def test_the_system_view_and_the_log_show_what_there_is(scene: Scene) -> None:
    found = scene.get("system")[1]
    assert {one["protocol"] for one in found["listeners"]} == {"mqtt", "http_api"}
    assert [one["name"] for one in found["bridges"]] == ["north"]
    assert [one["name"] for one in found["streams"]] == ["readings"]
    assert found["store"]["state"] == "ok"
    lines = until(lambda: scene.get("log")[1]["lines"])
    assert any(text.startswith("mosq version") for _, _, _, text in lines)
    last = lines[-1][0]
    scene.client("logged")
    more = until(lambda: [one for one in scene.get(f"log?after={last}")[1]["lines"] if "logged" in one[3]])
    assert all(one[0] > last for one in more)
    statistics = scene.get("statistics")[1]
    assert {name for name in STATS if name} <= set(statistics)


def test_the_system_view_has_the_sizes_of_streams(scene: Scene) -> None:
    scene.publish(scene.client("streamer"), "site/streamed", "x" * 1000)
    [found] = until(lambda: [one for one in scene.get("system")[1]["streams"] if one["records"] and one["disk_bytes"]])
    assert found.keys() == {"name", "line", "records", "lost", "waiting_bytes", "disk_bytes", "retired_records", "retired_unread", "errors"}
    assert (found["name"], found["line"], found["lost"], found["errors"]) == ("readings", "readings site/# retain_bytes 10000000", 0, 0)


def test_drops_have_an_example_and_its_topic_needs_the_right_to_read_it(scene: Scene) -> None:
    scene.client("dropper", "kept/secret", f"kept/{'x' * 1100}", clean=False)
    scene.disconnect("dropper")
    sender = scene.client("drop-sender")

    def example(topic: str, user: str) -> dict[str, Any]:
        for _ in range(501):
            sender.publish(topic, "x", 1)
        scene.publish(sender, topic, "x")
        found = {one["reason"]: one for one in scene.get("drops", user)[1]["drops"]}
        return found.get("queue_messages", {})

    seen = until(lambda: (one := example("kept/secret", "admin")).get("topic") == "kept/secret" and one)
    assert seen["listeners"]["other"] >= 1 and sum(seen["listeners"].values()) == seen["count"]
    assert seen["clientid"] == "dropper" and seen["count"] >= 1 and abs(seen["lastTime"] - time.time()) < WAIT_S
    assert example("kept/secret", "reader")["topic"] is None
    long = f"kept/{'x' * 1100}"
    cut = until(lambda: (one := example(long, "admin")).get("topicCut") and one)
    assert cut["topic"] is None         # the rest of the name may change the right
    assert scene.request("/dashboard/api/drops", "stranger")[0] == 403


def test_hot_topics_are_those_that_the_user_may_read() -> None:
    with Scene(CONFIG.replace("sys_interval 0", "sys_interval 0\nobserve_messages 1")) as scene:
        client = scene.client("hot-publisher", "site/#", "other/#")

        def read() -> Any:
            for topic in ("site/hot/a", "site/hot/b", "other/hot/a"):
                scene.publish(client, topic, "x" * 100)
            found = scene.get("hot?limit=50")[1]
            return {"site/hot/a", "other/hot/a"} <= {one["topic"] for one in found["topics"]} and found

        found = until(read)
        assert found["sampled"] == 1
        assert {"site", "site/hot", "other", "other/hot"} <= {one["prefix"] for one in found["prefixes"]}
        assert [one["client_id"] for one in found["publishers"]] == ["hot-publisher"]
        mine = scene.get("hot", "reader")[1]
        assert {one["topic"] for one in mine["topics"]} == {"site/hot/a", "site/hot/b"}
        assert {one["prefix"] for one in mine["prefixes"]} == {"site", "site/hot"}
        assert [len(scene.get("hot?limit=1")[1][name]) for name in ("topics", "prefixes", "publishers")] == [1, 1, 1]
        assert scene.get("hot?limit=101")[0] == 400 and scene.request("/dashboard/api/hot", "stranger")[0] == 403


def test_the_histograms_of_a_broker_that_measures_nothing_are_missing(scene: Scene) -> None:
    status, found = scene.get("latency")
    assert (status, found["period"], found["histograms"]) == (200, 0, {})


def test_the_histograms_have_the_measured_times() -> None:
    with Scene(CONFIG.replace("sys_interval 0", "sys_interval 0\nobserve_messages 1")) as scene:
        client = scene.client("measured", "site/#")

        def read() -> Any:
            scene.publish(client, "site/a", "x")
            found = scene.get("latency")[1]
            return found["histograms"]["flush_qos1"]["count"] >= 5 and found

        found = until(read)
        assert found["period"] == 1 and len(found["untilS"]) == BUCKETS - 1
        assert found["histograms"].keys() == {"flush_qos0", "flush_qos1", "flush_qos2", "commit", "turn", "handshake", "match"}
        for one in found["histograms"].values():
            assert sum(one["numbers"]) == one["count"] and one["first"] + len(one["numbers"]) <= BUCKETS
            assert not one["numbers"] or (one["numbers"][0] and one["numbers"][-1])
        match = found["histograms"]["match"]
        assert 0 < match["sumS"] <= sum(number * found["untilS"][match["first"] + i] for i, number in enumerate(match["numbers"]))


def test_readings_of_another_site_are_refused(scene: Scene) -> None:
    for site in ("cross-site", "same-site"):
        for name in ("clients", "feed", "drops", "latency", "hot", "system"):
            assert scene.get(name, Sec_Fetch_Site=site)[0] == 403, name
    assert scene.get("clients", Sec_Fetch_Site="none")[0] == 200


def test_questions_with_too_many_levels_are_refused_at_once(scene: Scene) -> None:
    """The broker does not answer such a question, and every other one waited for the answer."""
    topic = "a" + "/" * 300
    for name in (f"explain?topic={topic}", f"message?topic={topic}", f"retained?prefix={topic}"):
        assert scene.get(name, "reader") == (400, {"error": "The topic has too many levels."})


def test_a_page_that_reads_joins_no_shared_group(scene: Scene) -> None:
    """As a member of a group, the page would take the messages of the others, and any reader may ask."""
    for name in ("retained?prefix=$share/group", "retained?prefix=$share", "retained?prefix=$stream/readings",
                 "message?topic=$share/group/site/a", "message?topic=$stream/readings/site/a"):
        assert scene.get(name) == (400, {"error": "A page follows no shared subscription and no stream."}), name


def test_a_reading_without_a_free_descriptor_is_refused() -> None:
    def none_left() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async def opened() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket, "socketpair", none_left)
            await Inside().open(lambda fd: None)

    with pytest.raises(ClosedError, match="No connection to the broker: Too many open files"):
        asyncio.run(opened())


class Asker:
    """Stand for a request; `gone`: its client has left."""

    def __init__(self, gone: bool = False) -> None:
        self.gone = gone
        self.scope = {"state": {"connection": self}}

    def wait_for_login(self, place: asyncio.Future[bool]) -> None:
        """Stand for a connection that stays open."""

    async def is_disconnected(self) -> bool:
        return self.gone


def test_users_get_their_turns_and_have_a_bound_and_none_is_asked_for_a_client_that_left() -> None:
    async def scene() -> list[str]:
        turns, go, asked = Turns(3), asyncio.Event(), []

        async def ask(user: str, gone: bool = False) -> None:
            try:
                async with turns.of(Asker(gone), user.encode()):         # type: ignore[arg-type]
                    asked.append(user)
                    await go.wait()
            except RefusedError as refusal:
                asked.append(f"{user} {refusal.status}")

        tasks = [asyncio.create_task(ask("ann", gone)) for gone in (False, False, True, True)]
        tasks += [asyncio.create_task(ask(user)) for user in ("ann", "ben")]
        await asyncio.sleep(0)
        assert asked == ["ann", "ann 429"]
        go.set()
        await asyncio.gather(*tasks)
        await ask("ann")
        return asked

    assert asyncio.run(scene()) == ["ann", "ann 429", "ann", "ben", "ann 503", "ann 503", "ann"]


class SlowEngine:
    """Stand for an engine whose sessions are read slowly."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.adopt = self.observed = self.streams = None

    def sessions(self, cursor: int, most: int) -> Any:
        """Return no session, when `go` is set."""
        assert self.go.wait(WAIT_S)
        return SimpleNamespace(cursor=0, sessions=[])


def test_many_searches_of_one_network_leave_places_for_other_pages(tmp_path: Path) -> None:
    """They held all places of requests at work: each other page, also /metrics, got 503."""
    engine = SlowEngine()
    server = Server(tmp_path, engine=engine, http_dashboard=True)
    try:
        with ThreadPoolExecutor(40) as threads:
            paths = [f"/dashboard/api/clients?search={i}" for i in range(40)]
            searches = [threads.submit(server.status, path) for path in paths]
            try:
                until(lambda: sum(one.done() for one in searches) == 39 - SEARCHES_WAITING_MAX)
                assert server.status("/dashboard/api/statistics") == 200
            finally:
                engine.go.set()
            assert sorted(one.result() for one in searches) == [200] * (1 + SEARCHES_WAITING_MAX) + [429] * (39 - SEARCHES_WAITING_MAX)
    finally:
        server.api.stop()


# ---------------------------------------------------------------- changes

def test_a_user_with_the_right_kicks_a_client_and_the_second_kick_fails(scene: Scene) -> None:
    for name in ("kicked", *HOSTILE):
        client = scene.client(name)
        client.on_disconnect = lambda client, *what: client.loop_stop()
        client.reconnect_delay_set(3600, 3600)
        assert scene.get(f"client?id={quote(name, safe='')}")[1]["client"]["clientid"] == name
        assert scene.change("kick", {"clientid": name}) == (200, {})
        assert scene.change("kick", {"clientid": name}) == (409, {"error": "Client not connected"})
    assert until(lambda: "Dashboard: admin kicks kicked." in scene.broker.log())


def test_a_published_message_arrives_and_a_retained_one_is_cleared(scene: Scene) -> None:
    came: list[tuple[str, bytes]] = []
    reader = scene.client("arrivals", "site/published")
    reader.on_message = lambda client, data, message: came.append((message.topic, message.payload))
    assert scene.change("publish", {"topic": "site/published", "payload": "é<b>", "qos": 1, "retain": True}) == (200, {})
    assert until(lambda: came) == [("site/published", "é<b>".encode())]
    assert until(lambda: scene.get("message?topic=site/published")[0] == 200)
    assert scene.change("clear", {"topic": "site/published"}) == (200, {})
    assert until(lambda: scene.get("message?topic=site/published")[0] == 404)


@pytest.mark.parametrize(("name", "body"), [
    ("kick", {"clientid": "victim"}), ("publish", {"topic": "site/x", "payload": "x"}), ("clear", {"topic": "site/x"}), ("reload", {})])
def test_a_reader_changes_nothing(scene: Scene, name: str, body: object) -> None:
    scene.client("victim")
    assert scene.change(name, body, "reader")[0] == 403
    assert scene.get("client?id=victim")[1]["client"]["connected"] is True
    assert until(lambda: f"Dashboard: reader may not {name}." in scene.broker.log())


def test_refused_changes_do_not_fill_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, lines = [100.0], []
    monkeypatch.setattr("mosq.server.http.dashboard.changes.time", SimpleNamespace(monotonic=lambda: now_s[0]))
    broker: Any = SimpleNamespace(report=lambda kind, line: lines.append(line))
    refused: Any = Changes(broker, *[None] * 4)._log_refused        # type: ignore[arg-type]
    for _ in range(1000):
        refused(SimpleNamespace(user="reader"), "kick")
    assert lines == ["Dashboard: reader may not kick."] * 10
    now_s[0] += 10
    for _ in range(2):
        refused(SimpleNamespace(user="reader"), "kick")
    assert lines[10:] == ["Dashboard: reader may not kick; 990 more refused changes before have no line.", "Dashboard: reader may not kick."]


@pytest.mark.parametrize(("change", "status"), [
    ({"Sec_Fetch_Site": "cross-site"}, 403), ({"Sec_Fetch_Site": "same-site"}, 403), ({"Sec_Fetch_Site": "none"}, 403),
    ({"Origin": ""}, 403), ({"Origin": "http://evil.example"}, 403), ({"Origin": "null"}, 403), ({"Origin": "http://127.0.0.1:1"}, 403),
    ({"x_mosq_token": ""}, 403), ({"x_mosq_token": "0" * 64}, 403), ({"Content_Type": "text/plain"}, 415),
    ({"Content_Type": "application/x-www-form-urlencoded"}, 415)])
def test_a_request_that_our_page_did_not_send_is_refused(scene: Scene, change: dict[str, str], status: int) -> None:
    scene.client("forged")
    sent = {name.replace("_", "-"): value for name, value in change.items()}
    assert scene.change("kick", {"clientid": "forged"}, **sent)[0] == status
    assert scene.get("client?id=forged")[1]["client"]["connected"] is True


def test_the_token_of_one_user_is_none_of_another(scene: Scene) -> None:
    token = scene.get("session", "reader")[1]["token"]
    assert scene.change("kick", {"clientid": "x"}, **{"x-mosq-token": token}) == (403, {"error": "token"})


def test_without_a_user_name_a_name_of_another_site_is_refused() -> None:
    class Request:
        def __init__(self, host: str) -> None:
            self.headers = {"host": host, "origin": f"http://{host}", "content-type": "application/json",
                            "x-mosq-token": guard.token(None)}

    guard = Guard()
    for host in ("127.0.0.1:80", "[::1]:80", "localhost", "localhost:1", "192.0.2.1"):
        assert guard.changing_refused(Request(host), None) == (0, ""), host      # type: ignore[arg-type]
        assert guard.reading_refused(Request(host), None) == "", host            # type: ignore[arg-type]
    for host in ("evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "[::1"):
        assert guard.changing_refused(Request(host), None)[0] == 403, host      # type: ignore[arg-type]
        assert "another name" in guard.reading_refused(Request(host), None), host       # type: ignore[arg-type]
        assert guard.reading_refused(Request(host), "ann") == "", host          # type: ignore[arg-type]


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"1", b"[" * 40_000, {"clientid": 1}, {}, {"clientid": ""}, {"clientid": "\ud800"}])
def test_a_body_that_is_no_request_is_refused(scene: Scene, body: Any) -> None:
    assert scene.change("kick", body)[0] in (400, 409)


@pytest.mark.parametrize(("body", "status"), [
    ({"topic": "a/#"}, 400), ({"topic": ""}, 400), ({"topic": "a\0"}, 400), ({"topic": "$SYS/x"}, 403), ({"topic": 1}, 400),
    ({"topic": "$CONTROL/mosq/broker/v1"}, 403), ({"topic": "a", "qos": 3}, 400), ({"topic": "a", "qos": True}, 400),
    ({"topic": "a", "retain": 1}, 400), ({"topic": "a", "payload": 1}, 400), ({"topic": "a/" * 300}, 400), ({"topic": "x" * 65536}, 413)])
def test_a_message_that_cannot_be_published_is_refused(scene: Scene, body: Any, status: int) -> None:
    assert scene.change("publish", body)[0] == status


def test_a_body_has_a_bound_and_only_changes_take_one(scene: Scene) -> None:
    assert scene.change("publish", {"topic": "site/big", "payload": "x" * 65_000}) == (200, {})
    assert scene.change("publish", {"topic": "site/big", "payload": "x" * 70_000})[0] == 413
    for path in ("/dashboard/", "/dashboard/index.html", "/api/v1/version"):
        assert scene.request(path, "admin", "POST", b"x")[0] == 405
    assert scene.request("/dashboard/api/clients", "admin", "POST", b"{}")[0] == 405
    assert scene.request("/dashboard/api/kick")[0] == 404
    assert scene.request("/dashboard/api/kick", "admin", "PUT", b"{}")[0] == 405


def test_a_reload_is_begun_and_the_new_server_answers(scene: Scene) -> None:
    token = scene.get("session")[1]["token"]
    assert scene.change("reload", {}) == (200, {})
    until(lambda: scene.broker.log().count("Reloading config.") == 1)

    def renewed() -> bool:
        try:
            status, found = scene.get("session")
        except OSError:
            return False
        return status == 200 and found["token"] != token

    assert until(renewed)
    assert scene.change("kick", {"clientid": "x"}, **{"x-mosq-token": token}) == (403, {"error": "token"})


# ---------------------------------------------------------------- feeds

def test_an_open_page_ends_when_its_user_loses_the_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "CHECK_EVERY_S", 0.0)
    monkeypatch.setattr(messages, "CHECK_EVERY_S", 0.0)

    async def denied() -> bool:
        return False

    async def stats() -> dict[str, int]:
        return dict.fromkeys(feed.NAMES, 0)

    async def nothing() -> dict[str, Any]:
        return await asyncio.Future[dict[str, Any]]()

    async def scene() -> None:
        sent: list[bytes] = []

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        async def put(encoded: bytes) -> None:
            sent.append(encoded)

        scope = {"method": "GET", "state": {"connection": SimpleNamespace(endless=False)}}
        await asyncio.wait_for(feed.Feed(feed.Hub(stats), {}, denied)(scope, nothing, send), WAIT_S)      # type: ignore[arg-type]
        assert sent[-2:] == [b"event: refused\ndata: null\n\n", b""]
        tail = messages.Tail(SimpleNamespace(), None, "a", SimpleNamespace(still_allowed=denied), {})      # type: ignore[arg-type]
        await asyncio.wait_for(tail._follow(SimpleNamespace(closed=False), asyncio.create_task(nothing()), put), WAIT_S)    # type: ignore[arg-type]
        assert sent[-1].startswith(b"event: refused")

    asyncio.run(scene())


@pytest.fixture
def follow(scene: Scene) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def begin(path: str, user: str = "admin", receive_bytes: int | None = None) -> Page:
        pages.append(Page(scene, path, user, receive_bytes))
        return pages[-1]

    yield begin
    for page in pages:
        page.close()
    # the broker has noticed the end of each: nothing else holds connections to this listener
    until(lambda: len(connections(scene).split()) == 0)


def begun(follow: Callable[..., Page], path: str, **options: Any) -> Page:
    """Return a page that reads a stream. Its place may still belong to an earlier page that has just ended."""
    give_up = time.monotonic() + WAIT_S
    while not (page := follow(path, **options)).began():
        assert time.monotonic() < give_up, page.data + page.sock.recv(65536)
        time.sleep(.1)
    return page


def connections(scene: Scene) -> str:
    """Return the addresses of the clients that are connected to the dashboard's listener."""
    found = subprocess.run(["ss", "-tnH", "state", "established", "state", "close-wait", f"sport = :{scene.web}"], capture_output=True, text=True, check=True)
    return " ".join(line.split()[-1] for line in found.stdout.splitlines())


class Page:
    """A page that reads a stream."""

    def __init__(self, scene: Scene, path: str, user: str = "admin", receive_bytes: int | None = None) -> None:
        self.sock = socket.socket()
        if receive_bytes is not None:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.sock.settimeout(WAIT_S)
        self.sock.connect(("127.0.0.1", scene.web))
        login = base64.b64encode(f"{user}:{USERS[user]}".encode()).decode()
        self.sock.sendall(f"GET /dashboard/api/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic {login}\r\n\r\n".encode())
        self.data = b""

    def began(self) -> bool:
        """Return whether the answer has begun with status 200."""
        while len(self.data) < 12:
            self.data += self.sock.recv(65536)
        return self.data[:12].endswith(b"200")

    def event(self, name: str) -> Any:
        """Return the next event with this name."""
        give_up = time.monotonic() + WAIT_S
        while time.monotonic() < give_up:       # comments between events keep the socket from its timeout
            found = re.search(rb"event: %s\ndata: (.*?)\n\n" % name.encode(), self.data)
            if found:
                self.data = self.data[found.end():]
                return json.loads(found[1])
            more = self.sock.recv(65536)
            assert more, self.data[-200:]
            self.data += more
        raise TimeoutError(self.data[-200:])

    def close(self) -> None:
        self.sock.close()


def test_the_feed_has_the_statistics_of_each_second(follow: Callable[..., Page]) -> None:
    pages = [follow("feed") for _ in range(3)]
    names = [page.event("hello")["names"] for page in pages].pop()
    firsts = [page.event("stats") for page in pages]
    assert len(firsts[0]) == len(names) + 1
    later = dict(zip(["time", *names], pages[0].event("stats"), strict=True))
    assert later["time"] > firsts[0][0] and later["sockets"] >= 0
    first = dict(zip(["time", *names], firsts[0], strict=True))
    assert later["process_cpu_us"] >= first["process_cpu_us"] > 10_000 and later["process_resident_bytes"] > 1 << 20
    hello = follow("feed").event("hello")
    assert "publish_in" in hello["past"] and len(hello["rows"]) >= 2 and len(hello["rows"][0]) == len(hello["past"]) + 1


def test_the_tail_has_the_messages_that_the_user_may_read(scene: Scene, follow: Callable[..., Page]) -> None:
    page, reader = follow("tail?filter=%23"), follow("tail?filter=%23", "reader")
    page.event("open")
    reader.event("open")
    sender = scene.client("talker")
    scene.publish(sender, "private/a", HOSTILE[0])
    scene.publish(sender, "site/a", b"\xfe")
    assert page.event("messages")["messages"][0]["text"] == HOSTILE[0]
    first = reader.event("messages")
    assert [one["topic"] for one in first["messages"]] == ["site/a"] and first["messages"][0]["hex"] == "fe"


def test_a_fast_filter_is_sampled(scene: Scene, follow: Callable[..., Page]) -> None:
    page = follow("tail?filter=fast/%23")
    page.event("open")
    sender = scene.client("fast")
    give_up, n, found = time.monotonic() + WAIT_S, 0, {"sampled": False}
    while not found["sampled"]:
        assert time.monotonic() < give_up
        for _ in range(2000):
            sender.publish("fast/a", "x" * 100)
        found = page.event("messages")
        n += len(found["messages"])
    over = threading.Event()

    def talk() -> None:
        while not over.wait(0.05):      # the tail misses what comes before its next second
            sender.publish("fast/a", "x")

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        while found["sampled"]:         # the tail goes on in a later second
            assert time.monotonic() < give_up
            found = page.event("messages")
    finally:
        over.set()
        talker.join()


def test_a_tail_of_an_invalid_filter_is_refused_and_so_are_too_many(scene: Scene, follow: Callable[..., Page]) -> None:
    for filter in ("", "a/%23/b", "a%2B", "$share/g/a", "$stream/x/y", "a%00b"):
        assert scene.get(f"tail?filter={filter}")[0] == 400, filter
    pages = [begun(follow, "tail?filter=x") for _ in range(TAILS_OF_USER_MAX)]
    assert scene.get("tail?filter=x")[0] == 503
    pages += [begun(follow, "tail?filter=x", user="reader") for _ in range(TAILS_OF_USER_MAX)]      # another user has its own
    pages[0].close()
    assert begun(follow, "tail?filter=x")


def test_too_many_feeds_are_refused_and_requests_still_have_places(scene: Scene, follow: Callable[..., Page]) -> None:
    for _ in range(feed.PAGES_MAX):
        begun(follow, "feed").event("hello")
    assert scene.get("feed")[0] == 503
    assert scene.get("session")[0] == 200


def test_a_feed_whose_right_cannot_be_checked_ends_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an error in the log: guesses of passwords from the same network take the places of the check."""
    monkeypatch.setattr(feed, "CHECK_EVERY_S", 0.0)
    sent: list[bytes] = []

    async def scene() -> None:
        async def stats() -> dict[str, int]:
            return dict.fromkeys((*feed.NAMES, *feed.PAST), 0)

        async def allowed() -> bool:
            raise BusyError

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))

        scope = {"state": {"connection": SimpleNamespace()}, "method": "GET"}
        await feed.Feed(feed.Hub(stats), {}, allowed)(scope, receive, send)

    asyncio.run(scene())
    assert (b"event: hello" in sent[1], sent[-1]) == (True, b"")


@pytest.mark.part("hostile")        # the deadline of the page is 15 s
def test_a_page_that_stops_reading_holds_a_bounded_buffer_and_ends(follow: Callable[..., Page], scene: Scene) -> None:
    """The tail of large messages fills the buffers of a page that reads nothing."""
    stopped, reading = begun(follow, "tail?filter=stop/%23", receive_bytes=4096), begun(follow, "feed")
    time_of = time.monotonic() + WAIT_S
    sender = scene.client("stopper")
    gone = False
    while not gone:
        assert time.monotonic() < time_of
        for _ in range(50):
            sender.publish("stop/a", "x" * 1000)
        reading.event("stats")
        gone = f":{stopped.sock.getsockname()[1]}" not in connections(scene)


# ---------------------------------------------------------------- searches

class Sessions:
    """An engine with many sessions."""

    def __init__(self, n: int) -> None:
        self.n, self.calls = n, 0

    def sessions(self, cursor: int, most: int) -> Any:
        from mosq.records import SessionSlice

        self.calls += 1
        rows = [{"id": f"c{i:07}", "username": None, "connected": False, "will": False, "subscriptions": i % 7, "pending": i % 1000,
                 "waiting": 0, "inflight": 0, "inbox": 0, "queue_bytes": i, "expiry_s": None} for i in range(cursor, min(cursor + most, self.n))]
        end = cursor + most
        return SessionSlice(rows, end if end < self.n else 0)


def test_a_search_of_many_sessions_keeps_only_the_best() -> None:
    found = listing.scan(Sessions(25_000), ("", "bytes", "all", 5, 10))      # type: ignore[arg-type]
    assert [one["queueBytes"] for one in found["clients"]] == list(range(24_994, 24_984, -1))
    assert (found["matching"], found["examined"], found["complete"]) == (25_000, 25_000, True)
    found = listing.scan(Sessions(25_000), ("c00123", "id", "offline", 0, 50))      # type: ignore[arg-type]
    assert [one["clientid"] for one in found["clients"]][:2] == ["c0012300", "c0012301"] and found["matching"] == 100
    assert listing.scan(Sessions(25_000), ("", "id", "connected", 0, 50))["matching"] == 0      # type: ignore[arg-type]


def test_a_search_keeps_the_beginning_of_long_names_only() -> None:
    class Long(Sessions):
        def sessions(self, cursor: int, most: int) -> Any:
            found = super().sessions(cursor, most)
            for one in found.sessions:
                one.update(id=one["id"] + "x" * 60_000, username="u" * 60_000)
            return found

    rows = listing.scan(Long(50), ("", "id", "all", 0, 50))["clients"]      # type: ignore[arg-type]
    assert {(len(one["clientid"]), one["clientidCut"], len(one["username"])) for one in rows} == {(1024, True, 1024)}


def test_a_search_ends_after_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "EXAMINED_MAX", 3000)
    found = listing.scan(Sessions(25_000), ("", "queued", "all", 0, 10))      # type: ignore[arg-type]
    assert (found["examined"], found["complete"]) == (3000, False)
