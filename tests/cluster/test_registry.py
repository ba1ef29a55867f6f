"""Test the registry with a real Redis: the cluster's fixed values, errors, failover, and the scripts beside their model (model.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mosq.cluster.address import Address, parse_address
from mosq.cluster.entries import Announcement, announcement_of, strange_text
from mosq.cluster.errors import AwayError, RefusedError
from mosq.cluster.registry import LITTLE_MEMORY, Registry, memory_of
from mosq.cluster.requests import ANOTHER, CHANGED, DONE, MISSING, UNKNOWN, USED, Answer, Beat, Change, Inspect, Join, Leave, Look, Note, Request, Send
from mosq.cluster.scripts import STORE_FOLDER
from mosq.cluster.terms import HOLD_S, Terms
from mosq.server.node.store import StorePlace
from tests.cluster.model import State, apply
from tests.cluster.servers import Redis
from tests.harness.broker import ROOT, free_port
from tests.harness.effort import TIMEOUT_S, tries
from tests.harness.faults import until
from tests.harness.packets import Connack, Connect, Puback, Publish
from tests.harness.plane import Plane
from tests.harness.redis import Sentinel

pytestmark = pytest.mark.part("redis")

TEXT = Announcement().text
PATIENT = Terms(4 * TIMEOUT_S)      # a request has TIMEOUT_S
BRISK = Terms(8.0)                  # 2 s


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as running:
        yield running


@pytest.fixture
def empty(server: Redis) -> Redis:
    server.client.flushall()
    return server


def registry_of(server: Redis, name: str = "a", run: str = "r1", **options) -> Registry:
    address = Address((("127.0.0.1", server.port),), password=server.password)
    return Registry(address, options.pop("cluster", "c"), name, run, options.pop("terms", PATIENT), **options)


def open_registry(server: Redis, name: str = "a", run: str = "r1", **options) -> Registry:
    registry = registry_of(server, name, run, **options)
    registry.create(4)
    registry.open(4)
    return registry


# ---- the cluster

def test_the_values_of_a_cluster_are_the_same_for_all_nodes_and_new_for_a_new_cluster(empty: Redis) -> None:
    open_registry(empty, replicas=0, secret=b"s")
    facts = registry_of(empty, "b", terms=BRISK, secret=b"s").facts()
    assert (facts.workers, facts.replicas, facts.terms, len(facts.key)) == (4, 0, PATIENT, 16)
    with pytest.raises(RefusedError, match="has another secret"):
        registry_of(empty).facts()
    empty.client.delete("mosq:{c}:cluster")
    with pytest.raises(RefusedError, match="create it first"):
        registry_of(empty).facts()
    open_registry(empty)
    later = registry_of(empty).facts()
    assert later.key != facts.key and later.id != facts.id
    empty.client.hdel("mosq:{c}:cluster", "key")
    with pytest.raises(RefusedError, match="is damaged, or of another version"):
        registry_of(empty).facts()


@pytest.mark.parametrize(("field", "value"), [("salt", "x"), ("workers", "0"), ("workers", "99999999"), ("key", "00"), ("protocol", "x"), ("replicas", "-1"),
                                              ("workers", b"\xff"), ("milliseconds of lease", ""), ("servers", "x"), ("servers", "0"), ("servers", "-3")])
def test_damaged_values_of_a_cluster_are_refused(empty: Redis, field: str, value: str | bytes) -> None:
    open_registry(empty)
    empty.client.hset("mosq:{c}:cluster", field, value)
    with pytest.raises(RefusedError, match=r"mosq:\{c\}:cluster in Redis is damaged"):
        registry_of(empty).open(registry_of(empty).facts().workers)


def test_bytes_that_are_no_text_are_read(empty: Redis) -> None:
    registry = open_registry(empty)
    registry.ask(Join("", TEXT))
    for name in ("beats", "announcements", "away"):
        empty.client.hset(f"mosq:{{c}}:{name}", "b", b"\xff")
    view = registry.ask(Look()).view
    assert view is not None
    assert view.beats["b"] == "\\xff"


def test_a_redis_that_may_remove_data_is_refused(empty: Redis) -> None:
    assert registry_of(empty).check_server() == []
    empty.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(RefusedError, match="may remove messages: its maxmemory-policy is allkeys-lru"):
            registry_of(empty).check_server()
    finally:
        empty.client.config_set("maxmemory-policy", "noeviction")


def test_a_redis_without_its_file_or_its_replicas_is_reported(empty: Redis) -> None:
    empty.client.config_set("appendonly", "no")
    try:
        assert [line.split(": ")[0].split("has ")[1] for line in registry_of(empty).check_server()] == ["no append-only file"]
    finally:
        empty.client.config_set("appendonly", "yes")
    with pytest.raises(AwayError, match=r"0 of 1 replicas have confirmed\. This Redis has no replica now; start one first"):
        registry_of(empty, replicas=1, terms=BRISK).check_server()


def test_a_cluster_is_created_once(empty: Redis) -> None:
    registry = open_registry(empty)
    before = empty.client.hgetall("mosq:{c}:cluster")
    registry.create(4)
    assert empty.client.hgetall("mosq:{c}:cluster") == before


def test_a_node_creates_no_cluster(empty: Redis) -> None:
    with pytest.raises(RefusedError, match="no cluster with the name c; create it first"):
        registry_of(empty).open(4)


@pytest.mark.parametrize(("workers", "options", "reason"), [
    (5, {}, "has 4 workers, and {} 5"),
    (4, {"secret": b"other"}, "another secret"),
    (4, {"secret": b""}, "another secret"),
    (4, {"terms": Terms(PATIENT.lease_s + 1)}, "milliseconds of lease, and {} "),
    (4, {"terms": Terms(PATIENT.lease_s, 9.0)}, "has 2000 milliseconds of margin, and {} 9000"),
], ids=["number", "secret", "no secret", "lease", "margin"])
def test_a_node_with_another_configuration_is_refused(empty: Redis, workers: int, options: dict, reason: str) -> None:
    registry_of(empty, secret=b"s").create(4)
    for refused, asks in ((Registry.create, "the command asks for"), (Registry.open, "this node is configured for")):
        with pytest.raises(RefusedError, match=reason.format(asks)):
            refused(registry_of(empty, **{"secret": b"s", **options}), workers)


def test_the_secret_is_not_in_redis(empty: Redis) -> None:
    registry_of(empty, secret=b"top-secret").create(4)
    assert "top-secret" not in repr(empty.client.hgetall("mosq:{c}:cluster"))


def test_a_key_of_another_program_is_refused(empty: Redis) -> None:
    empty.client.hset("mosq:{c}:cluster", "x", "1")
    with pytest.raises(RefusedError, match=r"the key mosq:\{c\}:cluster in Redis is not that of a cluster of mosq"):
        registry_of(empty).open(4)
    empty.client.delete("mosq:{c}:cluster")
    empty.client.set("mosq:{c}:cluster", "1")
    with pytest.raises(AwayError, match="WRONGTYPE"):
        registry_of(empty).open(4)


@pytest.mark.parametrize("workers", [0, 65])
def test_a_cluster_has_1_to_64_workers(empty: Redis, workers: int) -> None:
    with pytest.raises(RefusedError, match="1 to 64 workers"):
        registry_of(empty).create(workers)


@pytest.mark.parametrize(("cluster", "name"), [("", "a"), ("c}", "a"), ("c", "a b"), ("c", "-a"), ("c", "x" * 65)])
def test_names_that_would_break_a_key_or_an_entry_are_refused(cluster: str, name: str) -> None:
    with pytest.raises(ValueError, match="the name of a"):
        Registry(Address((("h", 1),)), cluster, name, "r", PATIENT)


def test_clusters_of_two_names_know_nothing_of_each_other(empty: Redis) -> None:
    one, other = open_registry(empty), open_registry(empty, cluster="d")
    assert one.ask(Join("", TEXT)).status == DONE
    view = other.ask(Look()).view
    assert view is not None
    assert view.beats == {}


def test_redis_that_lost_its_data_or_has_another_cluster_is_noticed(empty: Redis) -> None:
    registry = open_registry(empty)
    assert registry.ask(Join("", TEXT)).status == DONE
    empty.client.flushall()
    assert registry.ask(Beat(1, "")).status == MISSING
    registry_of(empty).create(4)
    for request in (Beat(2, ""), Join("", TEXT), Look(), Change(0, "", "1 a r1"), Leave()):
        assert registry.ask(request).status == ANOTHER


def test_a_cluster_with_a_protocol_that_this_version_does_not_know_is_refused(empty: Redis) -> None:
    registry = open_registry(empty)
    empty.client.hset("mosq:{c}:cluster", "protocol", "2")
    registry.open(4, (1, 2))
    with pytest.raises(RefusedError, match="has protocol 2, and this version of mosq knows 1 to 1"):
        registry.open(4)


# ---- the scripts

RUNS = [("a", "r1"), ("a", "r2"), ("b", "q1")]
ENTRIES = ["", "1", "1 a r1", "2 a r1", "2 a r2", "2", "3 b q1"]
REQUESTS = st.one_of(
    st.builds(Look), st.builds(Leave, st.sampled_from(["", "r1 1", "r2 0", "q1 1"])), st.builds(Send, st.booleans()),
    st.builds(Join, st.sampled_from(["", "r1 0", "r1 1", "r1 2", "r2 0", "q1 1"]), st.just(TEXT)),
    st.builds(Beat, st.integers(1, 4), st.sampled_from(["", Announcement(3).text])),
    st.builds(Change, st.integers(0, 1), st.sampled_from(ENTRIES), st.sampled_from(ENTRIES[1:]), st.just("")))


@settings(max_examples=tries(1000, 60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(st.tuples(st.sampled_from(RUNS), REQUESTS, st.booleans()), max_size=25))
def test_the_scripts_do_what_their_model_does_also_when_sent_twice(server: Redis, requests: list[tuple[tuple[str, str], Request, bool]]) -> None:
    server.client.flushall()
    registries = {(name, run): open_registry_fast(server, name, run) for name, run in RUNS}
    state = State(0, ID)
    for (name, run), request, twice in requests:
        state, expected = apply(state, "s", ID, name, run, request)
        for _ in range(1 + twice):
            assert plain(registries[name, run].ask(request)) == plain(expected)


@pytest.mark.parametrize("beat", ["r1 3", "r1 99999999999", "r1 999999999999999", "r1 1000000000000000", "r1 text", "r1 ", "r1 1e9", "r1 -1",
                                  "r1 1 2"])
def test_a_beat_of_another_program_is_taken_as_in_the_model(server: Redis, beat: str) -> None:
    server.client.flushall()
    registry = open_registry_fast(server, "a", "r1")
    server.client.hset("mosq:{c}:beats", "a", beat)
    state = State(0, ID, beats={"a": beat}, announcements={"a": ""})
    for number in (2, 4):
        state, expected = apply(state, "s", ID, "a", "r1", Beat(number, ""))
        assert plain(registry.ask(Beat(number, ""))) == plain(expected)


ID = "11"


def open_registry_fast(server: Redis, name: str, run: str) -> Registry:
    """Return a registry whose cluster is in Redis, without a proof: computing it takes long."""
    server.client.hset("mosq:{c}:cluster", mapping={"id": ID, "protocol": 1})
    key = name, run
    if key not in KEPT:
        KEPT[key] = registry_of(server, name, run)
        KEPT[key]._id = ID
    return KEPT[key]


KEPT: dict[tuple[str, str], Registry] = {}


def plain(answer: Answer) -> tuple:
    return answer._replace(view=answer.view and answer.view._replace(source=""))


def test_a_request_that_is_sent_again_has_the_same_answer(empty: Redis) -> None:
    registry = open_registry(empty)
    for request in (Join("", TEXT), Beat(1, ""), Change(0, "", "5 a r1"), Change(0, "5 a r1", "5"), Leave()):
        first, state = registry.ask(request), whole(empty)
        again = registry.ask(request)
        assert again == first
        assert whole(empty) == state


def whole(server: Redis) -> list:
    return [server.client.hgetall(f"mosq:{{c}}:{name}") for name in ("beats", "announcements", "workers")]


def test_a_name_is_used_until_its_beat_is_named_as_dead(empty: Redis) -> None:
    first, second = open_registry(empty, run="r1"), open_registry(empty, run="r2")
    assert first.ask(Join("", TEXT)).status == DONE
    assert first.ask(Beat(1, "")).status == DONE
    assert second.ask(Join("", TEXT)) == Answer(USED, None, "r1 1")
    assert first.ask(Beat(2, "")).status == DONE
    assert second.ask(Join("r1 1", TEXT)) == Answer(USED, None, "r1 2")
    assert second.ask(Join("r1 2", TEXT)).status == DONE
    assert first.ask(Beat(3, "")).status == USED
    assert first.ask(Change(0, "", "1 a r1")).status == USED


def test_a_node_that_has_come_back_is_not_removed(empty: Redis) -> None:
    node, operator = open_registry(empty), open_registry(empty)
    node.ask(Join("", TEXT))
    node.ask(Beat(1, ""))
    assert operator.ask(Leave("r1 0")).status == CHANGED
    assert node.ask(Beat(2, "")).status == DONE
    again = open_registry(empty, run="r2")
    again.ask(Join("r1 2", TEXT))
    assert operator.ask(Leave("r1 2")).status == CHANGED
    assert again.ask(Beat(1, "")).status == DONE
    assert open_registry(empty, run="r2").ask(Leave("r2 1")).status == DONE
    assert again.ask(Beat(2, "")).status == UNKNOWN


def test_a_worker_has_one_node(empty: Redis) -> None:
    one, other = open_registry(empty, "a", "r1"), open_registry(empty, "b", "q1")
    assert other.ask(Change(0, "", "1 b q1")).status == UNKNOWN
    one.ask(Join("", TEXT))
    other.ask(Join("", TEXT))
    assert one.ask(Change(0, "", "1 a r1")).status == DONE
    assert other.ask(Change(0, "", "1 b q1")).status == CHANGED
    assert other.ask(Change(0, "1 a r1", "2 b q1")).status == DONE
    assert one.ask(Change(0, "1 a r1", "1")).status == CHANGED
    view = one.ask(Look()).view
    assert view is not None
    assert view.workers == {0: "2 b q1"}


def test_data_that_another_program_has_written_are_refused(empty: Redis) -> None:
    registry = open_registry(empty)
    registry.ask(Join("", TEXT))
    for key, field, value in (("workers", "0", "x y z"), ("workers", "x", "1"), ("workers", "1", "z"), ("workers", "1", "-1"), ("workers", "1", b"\xff"),
                              ("workers", "1", "9" * 20), ("workers", "1", "1 a")):
        before = empty.client.hget(f"mosq:{{c}}:{key}", field)
        empty.client.hset(f"mosq:{{c}}:{key}", field, value)
        with pytest.raises(AwayError, match=f"damaged: '{field}' has .* redis-cli HDEL 'mosq:{{c}}:workers' '{field}'"):
            registry.ask(Look())
        empty.client.hdel(f"mosq:{{c}}:{key}", field)
        if before is not None:
            empty.client.hset(f"mosq:{{c}}:{key}", field, before)
    assert registry.ask(Look()).status == DONE


def test_a_strange_announcement_and_a_missing_one_are_read(empty: Redis) -> None:
    registry = open_registry(empty)
    registry.ask(Join("", TEXT))
    empty.client.hset("mosq:{c}:announcements", mapping={"a": "{", "gone": TEXT})
    empty.client.hset("mosq:{c}:beats", "b", "r 1")
    view = registry.ask(Look()).view
    assert view is not None
    assert view.announcements == {"a": "{", "b": ""}


# ---- faults of Redis

def source_of(registry: Registry) -> str:
    view = registry.ask(Look()).view
    assert view is not None
    return view.source


def test_a_restart_is_another_source_and_flushed_scripts_are_loaded_again() -> None:
    with Redis() as server:
        registry = open_registry(server)
        first = source_of(registry)
        assert source_of(registry) == first
        server.client.script_flush()
        with pytest.raises(AwayError, match="No matching script"):
            registry.ask(Look())
        assert source_of(registry) == first
        server.kill()
        with pytest.raises(AwayError):
            registry.ask(Look())
        server.start()
        assert source_of(registry) != first


def test_a_change_goes_only_to_the_server_of_its_view() -> None:
    with Redis() as server:
        registry = open_registry(server)
        assert registry.ask(Join("", TEXT)).status == DONE
        first = source_of(registry)
        assert registry.ask(Change(0, "", "1 a r1", first)).status == DONE
        server.kill()
        server.start()
        with pytest.raises(AwayError):
            registry.ask(Look())
        with pytest.raises(AwayError, match="another server may answer"):
            registry.ask(Change(0, "1 a r1", "1", first))
        assert source_of(registry) != first
        with pytest.raises(AwayError, match="another server may answer"):
            registry.ask(Change(0, "1 a r1", "1", first))
        assert registry.ask(Change(0, "1 a r1", "1", source_of(registry))).status == DONE


def test_an_address_without_redis_is_away() -> None:
    port = free_port()
    registry = Registry(parse_address(f"redis://:secret@127.0.0.1:{port}"), "c", "a", "r", PATIENT)
    with pytest.raises(AwayError, match=f"Redis at redis://127.0.0.1:{port}/0: .*refused") as caught:
        registry.ask(Look())
    assert "secret" not in str(caught.value) and not str(caught.value).endswith(".")


def test_an_address_without_sentinels_is_away_and_says_so(empty: Redis) -> None:
    for port in (free_port(), empty.port):
        with pytest.raises(AwayError, match=r"/0: no Sentinel there answers and knows a primary with the name mosq\. Check that the Sentinels run"):
            Registry(parse_address(f"redis+sentinel://127.0.0.1:{port}/mosq"), "c", "a", "r", PATIENT).ask(Look())


def test_a_cluster_without_a_secret_is_named(empty: Redis) -> None:
    open_registry(empty, replicas=0)
    with pytest.raises(RefusedError, match="has no secret: it was created without --secret-file"):
        registry_of(empty, "b", secret=b"s").facts()


def test_a_wrong_password_is_not_shown() -> None:
    with Redis(password="right-one") as server:
        open_registry(server)
        for text, reason in ((f"redis://:wrong-one@127.0.0.1:{server.port}", "invalid username-password|WRONGPASS"),
                             (f"redis://127.0.0.1:{server.port}", "uthentication required")):
            with pytest.raises(AwayError, match=f"({reason}).*--password-file of a command, cluster_password_file") as caught:
                Registry(parse_address(text), "c", "a", "r", PATIENT).open(4)
            assert "one" not in str(caught.value).replace("without", "")


def test_a_user_with_the_documented_rights_is_enough_for_a_cluster_and_a_store() -> None:
    rights, select = re.findall(r"The user of a node, .* needs `(~mosq:\* .*)`, and `(\+select)` if", (ROOT / "docs/cluster.md").read_text())[0]
    with Redis() as server:
        server.client.execute_command("ACL", "SETUSER", "node", "on", ">pw", *rights.split())
        server.client.execute_command("ACL", "SETUSER", "other", "on", ">pw", *rights.split(), select)
        for user, behind in (("node", ""), ("other", "/2")):
            address = parse_address(f"redis://{user}:pw@127.0.0.1:{server.port}{behind}")
            registry = Registry(address, "c", "a", "r1", PATIENT)
            registry.create(4)
            registry.check_server()
            registry.open(4)
            for request in (Join("", TEXT), Beat(1, ""), Beat(2, "")):
                assert registry.ask(request).status == DONE
            files = StorePlace(address, "c", registry.facts().id, 0).take(1, 1)
            with Plane(store=STORE_FOLDER, files=files, allow_anonymous=True) as plane:
                client = plane.connect(Connect("a"))
                assert isinstance(client.read_packet(), Connack)
                client.send(Publish("t", b"1", 1, 1, retain=True))
                assert isinstance(client.read_packet(), Puback)
            files.close()
        assert [entry for entry in server.client.acl_log() if "setinfo" not in str(entry)] == []    # redis-py goes on without


def test_an_error_shows_the_name_of_the_user_and_no_password() -> None:
    with Redis() as server:
        server.client.execute_command("ACL", "SETUSER", "m", "on", ">hush", "+info")
        with pytest.raises(AwayError, match="no permissions") as caught:
            Registry(parse_address(f"redis://m:hush@127.0.0.1:{server.port}"), "c", "a", "r", PATIENT).open(4)
        assert "hush" not in str(caught.value)


def test_the_nodes_of_a_full_redis_go_on() -> None:
    with Redis("maxmemory-policy noeviction") as server:
        registry = open_registry(server)
        server.client.config_set("maxmemory", 1)
        assert registry.ask(Join("", TEXT)).status == DONE
        view = registry.ask(Beat(1, TEXT)).view
        assert view is not None and view.beats["a"] == f"{registry.run} 1"
        assert registry.ask(Change(0, "", f"1 a {registry.run}", view.source)).status == DONE
        assert registry.ask(Leave()).status == DONE
        [line] = registry.check_server()[:1]
        assert "is nearly full" in line and "from 80% on nodes refuse new messages" in line
        with pytest.raises(AwayError, match=r"OOM|maxmemory"):
            registry_of(server, cluster="new").create(2)


@pytest.mark.parametrize(("fields", "expected"), [
    ({"used_memory": 80, "maxmemory": 100}, (80, 100)),
    ({"used_memory": 80, "maxmemory": 100, "mem_not_counted_for_evict": 30}, (50, 100)),
    ({"used_memory": 80, "used_memory_rss": 90, "maxmemory": 0, "total_system_memory": 100}, (90, 100)),
    ({"used_memory": 80, "used_memory_rss": 90, "maxmemory": 1000, "total_system_memory": 100}, (90, 100)),
    ({"used_memory": 80, "used_memory_rss": 90, "maxmemory": 100, "total_system_memory": 1000}, (80, 100)),
    ({}, (0, 0)),
])
def test_the_memory_that_redis_may_use(fields: dict[str, int], expected: tuple[int, int]) -> None:
    assert memory_of({name: str(value) for name, value in fields.items()}) == expected


def test_a_redis_that_does_not_answer_is_away_after_the_timeout() -> None:
    with Redis() as server:
        registry = open_registry(server, terms=Terms(2.0))
        server.pause()
        with pytest.raises(AwayError, match=r"[Tt]imeout|timed out"):
            registry.ask(Look())
        server.resume()
        until(lambda: answers(registry))


def answers(registry: Registry) -> bool:
    try:
        return registry.ask(Look()).status == DONE
    except AwayError:
        return False


def test_a_unix_socket_and_another_database() -> None:
    with Redis("unixsocket s") as server:
        registry = Registry(parse_address(f"redis+unix://{server.folder}/s?db=3"), "c", "a", "r1", PATIENT)
        registry.create(4)
        registry.open(4)
        assert registry.ask(Join("", TEXT)).status == DONE
        assert server.client.info("keyspace")["db3"]["keys"] == 3


@pytest.fixture
def replicated() -> Iterator[list[Redis]]:
    """Yield a primary with a replica."""
    with Redis() as one, Redis(f"replicaof 127.0.0.1 {one.port}") as two:
        until(lambda: follows(two))
        yield [one, two]


@pytest.fixture
def three(replicated: list[Redis]) -> Iterator[list[Redis]]:
    """Yield a primary with two replicas."""
    with Redis(f"replicaof 127.0.0.1 {replicated[0].port}") as third:
        until(lambda: follows(third))
        yield [*replicated, third]


def follows(replica: Redis) -> bool:
    return replica.client.info("replication")["master_link_status"] == "up"


def has_joined(replica: Redis) -> bool:
    """Return whether a replica has the first beat of node a. A primary sends its changes later than it answers."""
    return replica.client.hget("mosq:{c}:beats", "a") == "r1 0"


def test_another_number_of_replicas_is_refused(replicated: list[Redis]) -> None:
    open_registry(replicated[0], replicas=1)
    with pytest.raises(RefusedError, match="has 1 replicas, and this node is configured for 0"):
        registry_of(replicated[0]).open(4)


def test_replicas_that_need_not_confirm_are_reported(replicated: list[Redis]) -> None:
    assert registry_of(replicated[0], replicas=1, terms=BRISK).check_server() == []
    assert ["has 1 replicas, and the cluster was created for 0" in line for line in registry_of(replicated[0]).check_server()] == [True]


def test_most_servers_must_confirm_and_their_number_is_fixed(three: list[Redis]) -> None:
    registry = open_registry(three[0], replicas=1, terms=BRISK)
    facts = registry.facts()
    assert (facts.replicas, facts.servers) == (1, 3)
    assert registry.check_server() == []
    with Redis(f"replicaof 127.0.0.1 {three[0].port}") as fourth:
        until(lambda: follows(fourth))
        assert ["has 3 replicas, and the cluster was created for 2" in line for line in registry.check_server()] == [True]
        with pytest.raises(RefusedError, match=r"Redis has 4 servers, and with 1 replicas that confirm, .* give --replicas 2"):
            registry_of(three[0], replicas=1, cluster="other", terms=BRISK).create(4)
    three[2].kill()
    until(lambda: three[0].client.info("replication")["connected_slaves"] == 1)
    assert ["has 1 of 2 replicas: start the others" in line for line in registry.check_server()] == [True]
    assert registry.ask(Join("", TEXT)).status == DONE


def test_a_server_that_is_new_is_noted_when_the_cluster_is_created_again(replicated: list[Redis]) -> None:
    one, _ = replicated
    open_registry(one, replicas=1, terms=BRISK)
    with Redis(f"replicaof 127.0.0.1 {one.port}") as third:
        until(lambda: follows(third))
        registry = open_registry(one, replicas=1, terms=BRISK)
        assert registry.facts().servers == 3
        assert registry.check_server() == []
    until(lambda: one.client.info("replication")["connected_slaves"] == 1)
    assert open_registry(one, replicas=1, terms=BRISK).facts().servers == 3


def test_a_cluster_of_five_servers_needs_two_confirmations_for_a_beat(three: list[Redis]) -> None:
    one, two, third = three
    with Redis(f"replicaof 127.0.0.1 {one.port}") as fourth, Redis(f"replicaof 127.0.0.1 {one.port}") as fifth:
        until(lambda: follows(fourth) and follows(fifth))
        registry = open_registry(one, replicas=2, terms=BRISK)
        assert registry.facts().servers == 5
        for server in (third, fourth):
            server.kill()
        until(lambda: registry_joins(registry))
        two.kill()
        with pytest.raises(AwayError, match="1 of 2 replicas have confirmed"):
            registry.ask(Beat(2, ""))


def registry_joins(registry: Registry) -> bool:
    try:
        return registry.ask(Join("", TEXT)).status == DONE
    except AwayError:
        return False


def test_a_worker_that_starts_waits_for_a_replica_that_has_just_left(three: list[Redis], monkeypatch: pytest.MonkeyPatch) -> None:
    """The replica may be another primary by now: it counts until so much time has passed that the other one would follow it."""
    one, _, third = three
    registry = open_registry(one, replicas=1, terms=BRISK)
    registry.ask(Look())
    assert registry.in_step() == 2
    third.kill()
    until(lambda: one.client.info("replication")["connected_slaves"] == 1)
    registry.ask(Look())
    assert registry.in_step() == 2
    monkeypatch.setattr("mosq.cluster.registry.HOLD_S", 0.0)
    assert registry.in_step() == 1


def test_what_makes_a_failover_unsafe_is_reported(three: list[Redis]) -> None:
    one, two, third = three
    with Sentinel(one, "main", down_after_milliseconds=500) as sentinel:
        until(lambda: sentinel.knows(2))
        address = parse_address(f"redis+sentinel://127.0.0.1:{sentinel.port}/main")
        registry = Registry(address, "c", "a", "r", BRISK, replicas=1)
        [line] = registry.check_server()
        assert "1 Sentinel at" in line and "with fewer than 3" in line
        two.client.config_set("appendonly", "no")
        assert f"The replica of Redis at 127.0.0.1:{two.port} has no append-only file" in registry.check_server()[1]
        two.client.config_set("appendonly", "yes")
        third.client.config_set("replica-priority", 0)
        until(lambda: len(registry.check_server()) == 2)        # a Sentinel asks each 10 seconds
        assert "different values of `replica-priority`, or 0" in registry.check_server()[1]



def test_a_failover_that_begins_after_the_lease_is_reported(empty: Redis) -> None:
    with Sentinel(empty, "main", down_after_milliseconds=30_000) as sentinel:
        address = parse_address(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}/main")
        line = Registry(address, "c", "a", "r", Terms(30.0)).check_server()[0]
        assert "begin a failover when Redis is away for 30 s, and the lease has 30 s" in line
        assert "begin a failover" not in Registry(address, "c", "a", "r", Terms(31.0)).check_server()[0]


@pytest.mark.parametrize("address", ["redis://h,i", "redis+sentinel://h/main"])
def test_a_cluster_whose_primary_may_change_needs_replicas(address: str) -> None:
    with pytest.raises(RefusedError, match=r"give the number of replicas that must confirm a message \(--replicas\)"):
        Registry(parse_address(address), "c", "a", "r", PATIENT).create(4)


def test_a_request_counts_when_a_replica_has_confirmed_it(replicated: list[Redis]) -> None:
    one, two = replicated
    registry = open_registry(one, replicas=1, terms=BRISK)
    assert registry.ask(Join("", TEXT)).status == DONE
    two.pause()
    for number in (1, 2):           # also on the fresh connection after the first one
        with pytest.raises(AwayError, match="0 of 1 replicas have confirmed"):
            registry.ask(Beat(number, ""))
    two.resume()
    until(lambda: registry_confirms(registry))


def registry_confirms(registry: Registry) -> bool:
    try:
        return registry.ask(Beat(3, "")).status == DONE
    except AwayError:
        return False


def test_a_replica_is_not_used_and_of_several_hosts_the_primary_is(replicated: list[Redis]) -> None:
    one, two = replicated
    with pytest.raises(AwayError, match="it is a replica, not the primary"):
        registry_of(two).open(4)
    registry = Registry(parse_address(f"redis://127.0.0.1:{free_port()},127.0.0.1:{two.port},127.0.0.1:{one.port}"), "c", "a", "r1", PATIENT)
    open_registry(one).close()
    registry.open(4)
    assert registry.ask(Join("", TEXT)).status == DONE
    first = source_of(registry)
    until(lambda: has_joined(two))
    one.kill()
    two.client.replicaof("NO", "ONE")
    until(lambda: answers(registry))
    assert source_of(registry) != first


def test_a_primary_that_becomes_a_replica_is_noticed_on_an_open_connection(replicated: list[Redis]) -> None:
    one, two = replicated
    registry = open_registry(one)
    two.client.replicaof("NO", "ONE")
    one.client.replicaof("127.0.0.1", str(two.port))
    with pytest.raises(AwayError):
        registry.ask(Look())


def test_sentinel_names_the_primary_after_a_failover(replicated: list[Redis]) -> None:
    one, two = replicated
    with Sentinel(one, "main", down_after_milliseconds=500, failover_timeout=5000) as sentinel:
        until(sentinel.knows_a_replica)
        address = parse_address(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{sentinel.port}/main")
        open_registry(one, terms=BRISK).close()
        registry = Registry(address, "c", "a", "r1", BRISK)
        registry.open(4)
        assert registry.ask(Join("", TEXT)).status == DONE
        first = source_of(registry)
        until(lambda: has_joined(two))
        one.kill()
        until(lambda: answers(registry))
        assert source_of(registry) != first
        assert registry.ask(Beat(1, "")).status == DONE
        wrong = Registry(parse_address(f"redis+sentinel://127.0.0.1:{sentinel.port}/other"), "c", "a", "r1", BRISK)
        with pytest.raises(AwayError, match="other"):
            wrong.open(4)


def test_the_figures_of_workers_are_noted_and_read(empty: Redis) -> None:
    registry = open_registry(empty)
    assert registry.ask(Note(((0, "x"), (3, "y")))) == Answer(DONE, None, "", {0: "x", 3: "y"}, {})
    empty.client.hset("mosq:{c}:figures", "z", "damaged")
    assert registry.ask(Note()).figures == {0: "x", 3: "y"}
    registry.close()


def test_an_announcement_of_many_bytes_is_not_read_and_its_node_replaces_it(empty: Redis) -> None:
    registry = open_registry(empty)
    own = Announcement(2).text
    registry.ask(Join("", own))
    empty.client.hset("mosq:{c}:announcements", "a", "x" * 30_000_000)
    view = registry.ask(Beat(1, "")).view
    assert view is not None
    assert view.announcements == {"a": "bytes: 30000000"}
    assert strange_text("a", view.announcements["a"]).startswith("The announcement of the node a in Redis has 30000000 bytes, and none has more than 65536")
    assert announcement_of(view.announcements["a"]) == Announcement()
    view = registry.ask(Beat(2, own)).view          # as Member does, because Redis has another one
    assert view is not None and view.announcements == {"a": own}
    registry.close()


def test_a_look_at_redis_finds_an_eviction_policy(empty: Redis) -> None:
    registry = open_registry(empty)
    assert registry.ask(Inspect()).warning == ""
    empty.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        assert "may remove messages: its maxmemory-policy is allkeys-lru; expected noeviction" in registry.ask(Inspect()).warning
        assert [line for line in registry.check_server(refuses=False) if "allkeys-lru" in line]
        with pytest.raises(RefusedError, match="allkeys-lru"):
            registry.check_server()
    finally:
        empty.client.config_set("maxmemory-policy", "noeviction")
    assert registry.ask(Inspect()).warning == ""
    registry.close()


def test_nodes_and_stores_have_the_same_figures() -> None:
    text = (ROOT / "cext/redis/files.pyx").read_text()
    figures = {name: int(value) for name, value in re.findall(r"^    (HOLD_US|LOW_PERCENT) = (\d+) ", text, flags=re.MULTILINE)}
    assert figures == {"HOLD_US": int(HOLD_S * 1e6), "LOW_PERCENT": round(LITTLE_MEMORY * 100)}
