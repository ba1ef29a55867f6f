"""Test `mosq cluster`: the values of a cluster, its overview, and the removal of a dead node."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mosq.cli.commands import main
from mosq.cluster.address import Address
from mosq.cluster.entries import Announcement
from mosq.cluster.figures import COUNTS, Ends, text_of, text_of_ends
from mosq.cluster.registry import Facts, Registry
from mosq.cluster.requests import DONE, Beat, Change, Join, Note
from mosq.cluster.scripts import keys_of_store, store_name
from mosq.cluster.terms import Terms
from mosq.tools.cluster.command import Place
from tests.cluster.servers import Redis
from tests.harness.broker import ROOT, free_port
from tests.harness.faults import until

pytestmark = pytest.mark.part("redis")

TERMS = Terms(0.5, 0.25)
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def run(redis: Redis, capsys: pytest.CaptureFixture[str]) -> Command:
    """Provide run("status", "--json"), which returns the exit status, the output and the errors."""

    def run_command(name: str, *more: str) -> tuple[int, str, str]:
        status = main(["cluster", name, f"redis://127.0.0.1:{redis.port}", *more])
        return status, *capsys.readouterr()

    return run_command


def node_of(redis: Redis, name: str, secret: bytes = b"", lease_s: float = TERMS.lease_s) -> Registry:
    """Return a node that has joined and beats when the test asks for it."""
    registry = Registry(Address((("127.0.0.1", redis.port),)), "mosq", name, f"run{name}", Terms(lease_s, lease_s / 2), secret=secret)
    registry.open(2)
    registry.ask(Join("", Announcement(3, address="host 1885", version="0.2.0").text))
    return registry


def serve(node: Registry, links: dict[int, dict[int, bool]], up_s: int = 100) -> None:
    """Note that workers of the token 17 serve clients. `links`: by worker and other worker, whether the link is open."""
    stats = dict.fromkeys(COUNTS.values(), 0)
    for worker, to in links.items():
        made = [{"place": other, "connected": int(up), "routes": 0, "routes_digest": 0, "own_routes": 0, "own_digest": 0} for other, up in to.items()]
        node.ask(Note(((worker, text_of(17, made, 0, stats, up_s)),)))


def make_stores(redis: Redis) -> None:
    """Make stores of two workers that have written nothing."""
    for worker in (1, 2):
        redis.client.hset(keys_of_store(store_name("mosq", redis.client.hget("mosq:{mosq}:cluster", "id"), worker))[0], "number", 0)


@pytest.fixture
def beating(run: Command, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A node that has both workers, and beats whenever a command waits."""
    run("create", "--workers", "2", "--lease", "0.5")
    make_stores(redis)
    node = node_of(redis, "a")
    for worker in (0, 1):
        node.ask(Change(worker, "", "17 a runa"))
    numbers = iter(range(1, 100_000))
    monkeypatch.setattr("mosq.cluster.overview.time.sleep", lambda _: node.ask(Beat(next(numbers), "")))
    yield node
    node.close()


def test_workers_that_do_not_serve_and_links_that_are_down_are_trouble(run: Command, beating: Registry) -> None:
    status, out, err = run("status", "--json")
    assert (status, json.loads(out)["trouble"]) == (1, [f"Worker {worker} does not serve clients yet on the node a." for worker in (1, 2)])
    assert err.splitlines()[1] == "Waiting for nodes, workers and links for up to 0.75 seconds."
    serve(beating, {0: {1: False}, 1: {0: True}})
    status, out, _ = run("status", "--json")
    assert (status, json.loads(out)["trouble"]) == (1, ["1 link between workers is down: 1 to 2. The logs of their nodes have the reason."])


def test_a_link_that_opens_while_status_waits_is_no_trouble(run: Command, beating: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    serve(beating, {0: {1: False}, 1: {0: True}})
    plain, reads = Registry.noted, []

    def noted(registry: Registry) -> dict[str, str]:
        found = plain(registry)
        if not reads:
            serve(beating, {0: {1: True}})
        reads.append(found)
        return found

    monkeypatch.setattr(Registry, "noted", noted)
    assert run("status")[0] == 0
    assert len(reads) == 2


@pytest.mark.parametrize(("first", "trouble"), [(7, [
    "The node b has just joined, and does not start workers yet: it watches the other nodes for 0.75 seconds first."]), (9, [])])
def test_a_node_that_does_not_start_workers_yet_is_trouble(run: Command, beating: Registry, redis: Redis, monkeypatch: pytest.MonkeyPatch,
                                                           first: int, trouble: list[str]) -> None:
    serve(beating, {0: {1: True}, 1: {0: True}})
    other, numbers = node_of(redis, "b"), iter(range(first, 1000))

    def beat(_: float) -> None:
        number = next(numbers)
        beating.ask(Beat(number, ""))
        other.ask(Beat(number, ""))

    monkeypatch.setattr("mosq.cluster.overview.time.sleep", beat)
    monkeypatch.setattr("mosq.cluster.overview.PAUSE_LEASES", 0)        # so the nodes are seen twice, with a beat each time
    assert json.loads(run("status", "--json")[1])["trouble"] == trouble
    other.close()


def test_a_worker_that_ends_again_and_again_is_trouble_until_it_has_served_for_a_minute(run: Command, beating: Registry) -> None:
    def end(count: int, run: str = "runa") -> None:
        beating.ask(Note((("ends 2", text_of_ends(Ends(run, "a", count, "Worker 2 (process 7) was ended by signal 11"))),)))

    serve(beating, {0: {1: True}, 1: {0: True}}, up_s=59)
    end(1)
    assert run("status")[0] == 0
    end(3)
    status, out, _ = run("status", "--json")
    assert (status, json.loads(out)["trouble"]) == (1, [
        "Worker 2 has ended 3 times on the node a, and has not served for 60 seconds since: Worker 2 (process 7) was ended by signal 11. "
        "The log of the node has the reasons."])
    end(3, "an earlier run")
    assert run("status")[0] == 0
    end(3)
    serve(beating, {0: {1: True}, 1: {0: True}}, up_s=60)
    assert run("status")[0] == 0


def test_a_redis_that_may_remove_data_is_trouble(run: Command, beating: Registry, redis: Redis) -> None:
    serve(beating, {0: {1: True}, 1: {0: True}})
    redis.client.config_set("maxmemory-policy", "allkeys-lru")
    status, out, _ = run("status", "--json")
    assert status == 1 and len(json.loads(out)["trouble"]) == 1 and "maxmemory-policy is allkeys-lru" in json.loads(out)["trouble"][0]


def test_a_cluster_is_created_once_and_shows_what_it_lacks(run: Command) -> None:
    create = ("create", "--workers", "2", "--lease", "0.5")
    assert run(*create) == (0, "The cluster mosq has 2 workers and a lease of 0.5 s, and no replica of Redis confirms a message.\n",
                            "Warning: The cluster has no secret, and cannot get one later. Nodes with cluster_listener need one: remove the cluster and "
                            "create it again with --secret-file FILE.\n")
    assert run(*create)[0] == 0
    status, _, err = run("create", "--workers", "3", "--lease", "0.5")
    assert status == 3 and "has 2 workers, and the command asks for 3" in err and "Try" not in err
    status, out, _ = run("status", "--json")
    assert status == 1
    assert json.loads(out) == {"cluster": "mosq", "workers": 2, "lease_s": 0.5, "margin_s": 0.25, "replicas": 0, "servers": 1, "nodes": [],
                               "table": [None, None], "trouble": ["Workers 1, 2: no living node runs them."]}


def test_the_replicas_are_compared_with_those_of_the_cluster(run: Command, redis: Redis) -> None:
    with Redis(f"replicaof 127.0.0.1 {redis.port}") as replica:
        until(lambda: replica.client.info("replication")["master_link_status"] == "up")
        assert run("create", "--workers", "2", "--lease", "40", "--replicas", "1")[0] == 0
        found = json.loads(run("status", "--json")[1])
        assert (found["replicas"], found["trouble"]) == (1, ["Workers 1, 2: no living node runs them."])


def test_a_node_that_died_while_it_left_is_silent(run: Command, redis: Redis) -> None:
    run("create", "--workers", "2", "--lease", "0.5")
    node = node_of(redis, "a")
    node.ask(Beat(1, Announcement(3, leaving=True).text))
    assert run("status")[1].splitlines()[2].split()[:2] == ["a", "silent"]
    node.close()


def test_a_silent_node_is_shown_and_forgotten(run: Command, redis: Redis) -> None:
    run("create", "--workers", "2", "--lease", "0.5")
    node = node_of(redis, "a")
    node.ask(Change(1, "", "17 a runa"))
    status, out, _ = run("status", "--json")
    found = json.loads(out)
    assert status == 1
    assert found["nodes"] == [{"name": "a", "alive": False, "leaving": False, "away": False, "capacity": 3, "version": "0.2.0",
                               "address": "host 1885", "workers": [2], "unable": [], "dynsec_version": ""}]
    assert found["trouble"] == ["The node a gives no sign of life.", "Workers 1, 2: no living node runs them."]
    status, out, _ = run("status")
    assert out.splitlines()[2].split() == ["a", "silent", "3", "2", "0.2.0", "-", "host", "1885"]
    status, out, err = run("forget", "b")
    assert status == 3 and "has no node b" in err
    assert run("forget", "a") == (0, "The node a is forgotten.\n", "Watching the node a for 0.75 seconds.\n")
    assert json.loads(run("status", "--json")[1])["nodes"] == []
    node.close()


def test_a_worker_that_could_not_start_on_a_node_is_shown(run: Command, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    run("create", "--workers", "2", "--lease", "0.5")
    node = node_of(redis, "a")
    numbers = iter(range(1, 1000))
    monkeypatch.setattr("mosq.cluster.overview.time.sleep", lambda _: node.ask(Beat(next(numbers), Announcement(3, unable=(1,)).text)))
    found = json.loads(run("status", "--json")[1])
    assert found["nodes"][0]["unable"] == [2]
    assert found["trouble"][0] == "Worker 2 could not start on the node a; its log has the reason."
    node.close()


def test_a_node_that_lives_is_not_forgotten(run: Command, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    run("create", "--workers", "2", "--lease", "0.5")
    node = node_of(redis, "a")
    numbers = iter(range(1, 1000))
    monkeypatch.setattr("mosq.tools.cluster.command.time.sleep", lambda _: node.ask(Beat(next(numbers), "")))
    status, _, err = run("forget", "a")
    assert status == 3 and "The node a lives; SIGTERM lets it leave." in err
    node.ask(Change(0, "", "17 a runa"))
    node.ask(Change(1, "", "17 a runa"))
    make_stores(redis)
    serve(node, {0: {1: True}, 1: {0: True}})
    monkeypatch.setattr("mosq.cluster.overview.time.sleep", lambda _: node.ask(Beat(next(numbers), "")))
    status, out, _ = run("status", "--json")
    assert (status, json.loads(out)["table"], json.loads(out)["trouble"]) == (0, ["a", "a"], [])
    node.close()


def test_a_node_that_comes_back_at_the_last_moment_is_not_forgotten(run: Command, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    run("create", "--workers", "2", "--lease", "0.5")
    node = node_of(redis, "a")
    plain = Place.opened

    def opened(place: Place, facts: Facts, name: str = "operator", run: str = "operator") -> Registry:
        if name == "a":                 # the command has watched the node for long enough
            node.ask(Beat(1, ""))
        return plain(place, facts, name, run)

    monkeypatch.setattr(Place, "opened", opened)
    status, _, err = run("forget", "a")
    assert status == 3 and "The node a has just come back" in err
    assert node.ask(Beat(2, "")).status == DONE
    node.close()


@pytest.mark.parametrize(("command", "line"), [
    (("status",), "Watching the nodes for up to 480 seconds.\n"), (("forget", "a"), "Watching the node a for 900 seconds.\n"),
])
def test_a_long_wait_is_announced(run: Command, redis: Redis, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
                                  command: tuple[str, ...], line: str) -> None:
    run("create", "--workers", "2", "--lease", "600")
    node_of(redis, "a", lease_s=600).close()
    shown: list[str] = []

    def interrupted(seconds: float) -> None:
        shown.append(capsys.readouterr().err)
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    run(*command)
    assert shown == [line]


def test_a_password_in_the_address_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Redis(password="hush") as redis:
        for address, more, warnings in ((f"redis://:hush@127.0.0.1:{redis.port}", [], 1),
                                        (f"redis://127.0.0.1:{redis.port}", ["--password-file", str(tmp_path / "password")], 0)):
            (tmp_path / "password").write_text("hush\n")
            assert main(["cluster", "create", address, "--workers", "2", *more]) == 0
            err = capsys.readouterr().err
            assert err.count("can see the password in ADDRESS") == warnings and "hush" not in err


def test_the_commands_of_the_page_fit_a_cluster_with_a_secret(run: Command, redis: Redis, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 40)
    secret.chmod(0o600)
    run("create", "--workers", "2", "--lease", "0.5", "--secret-file", str(secret))
    node_of(redis, "NODE", b"s" * 40).close()
    for name, status in (("status", 1), ("forget", 0)):
        [line] = set(re.findall(f"`mosq cluster {name} ADDRESS([^`]*)`", (ROOT / "docs/cluster.md").read_text()))
        assert run(name, *line.replace("FILE", str(secret)).split())[0] == status


def test_a_wrong_secret_a_redis_that_is_away_and_a_wrong_address_are_reported(run: Command, tmp_path: Path,
                                                                             capsys: pytest.CaptureFixture[str]) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 40)
    secret.chmod(0o600)
    run("create", "--workers", "2", "--secret-file", str(secret))
    status, _, err = run("status")
    assert status == 3 and "has another secret" in err and "(--secret-file of a command," in err
    secret.chmod(0o604)
    status, _, err = run("status", "--secret-file", str(secret))
    assert status == 3 and "all users may read or write it" in err
    assert main(["cluster", "status", f"redis://127.0.0.1:{free_port()}"]) == 1
    assert "Connection refused" in capsys.readouterr().err
    assert main(["cluster", "status", "http://host"]) == 3
    assert "the address of Redis begins with" in capsys.readouterr().err
