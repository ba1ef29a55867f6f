"""Test the scripts for the document of dynamic security with a real Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mosq.cluster.address import Address
from mosq.cluster.entries import Announcement
from mosq.cluster.errors import AwayError
from mosq.cluster.registry import Found, Registry
from mosq.cluster.requests import CHANGED, DONE, Beat, Join, Leave, Look, Note
from mosq.cluster.scripts import USES, keys_of, of_nodes, uses_field
from mosq.cluster.terms import Terms
from tests.cluster.servers import Redis
from tests.harness.broker import free_port
from tests.harness.effort import TIMEOUT_S

pytestmark = pytest.mark.part("dynsec")

KEY = keys_of("c")[6]
BYTES = b'{"text": "\xff\x00"}'


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as running:
        yield running


@pytest.fixture
def registry(server: Redis) -> Iterator[Registry]:
    server.client.flushall()
    made = registry_of(server.port)
    made.create(2)
    made.open(2)
    yield made
    made.close()


def registry_of(port: int, lease_s: float = 4 * TIMEOUT_S, **options: int) -> Registry:
    return Registry(Address((("127.0.0.1", port),)), "c", "a", "r", Terms(lease_s), **options)


def test_a_document_is_replaced_only_by_the_expected_version(server: Redis, registry: Registry) -> None:
    other = registry.twin()
    assert registry.document() == Found("", b"", False)
    assert registry.replace_document("", "1.a", BYTES) == (DONE, "1.a")
    assert other.replace_document("", "1.b", b"x") == (CHANGED, "1.a")
    assert other.document() == Found("1.a", BYTES, True)
    assert other.document("1.a") == Found("1.a", b"", True)
    assert other.replace_document("1.a", "2.b", b"2") == (DONE, "2.b")
    assert registry.replace_document("1.a", "2.a", b"x") == (CHANGED, "2.b")
    assert registry.document("1.a") == Found("2.b", b"2", True)
    other.close()


def test_a_request_that_is_sent_again_is_done_once(registry: Registry) -> None:
    registry.replace_document("", "1.a", b"1")
    assert registry.replace_document("", "1.a", b"1") == (DONE, "1.a")
    registry.replace_document("1.a", "2.a", b"2")
    assert registry.replace_document("", "1.a", b"1") == (DONE, "2.a")
    for version in range(2, 400):           # the memory of earlier stamps has a limit
        assert registry.replace_document(f"{version}.a", f"{version + 1}.a", b"x") == (DONE, f"{version + 1}.a")
    assert registry.replace_document("397.a", "398.a", b"x") == (DONE, "400.a")
    assert registry.replace_document("1.a", "2.a", b"x") == (CHANGED, "400.a")


def test_a_deleted_document_is_not_made_again(server: Redis, registry: Registry) -> None:
    registry.replace_document("", "1.a", b"1")
    server.client.delete(KEY)
    assert registry.document("1.a") == Found("", b"", True)
    assert registry.replace_document("", "1.b", b"1") == (CHANGED, "")
    assert registry.replace_document("1.a", "2.b", b"1") == (CHANGED, "")


def test_beats_have_the_stamp_also_if_the_key_is_damaged(server: Redis, registry: Registry) -> None:
    registry.ask(Join("", Announcement().text))
    registry.replace_document("", "1.a", b"1")
    for request in (Beat(1, ""), Look()):
        view = registry.ask(request).view
        assert view is not None
        assert view.document == "1.a"
    assert registry.raw().document == "1.a"
    server.client.delete(KEY)
    server.client.set(KEY, "a string")
    view = registry.ask(Beat(2, "")).view
    assert view is not None
    assert view.document == ""
    assert registry.document() == ("", b"", True)           # it is damaged, and no node makes another one
    with pytest.raises(AwayError, match="WRONGTYPE") as raised:
        registry.replace_document("", "2.a", b"2")
    assert raised.value.refused


def test_a_change_counts_only_when_the_replicas_confirm_it(server: Redis) -> None:
    server.client.flushall()
    made = registry_of(server.port)
    made.create(2)
    made.open(2)
    made.replace_document("", "1.a", b"1")
    server.client.hset(keys_of("c")[0], "servers", 3)       # one of two replicas must confirm, and there is none
    alone = registry_of(server.port, 2.0)
    alone._id, alone._servers = made._id, 3
    with pytest.raises(AwayError, match="0 of 1 replicas have confirmed") as raised:
        alone.replace_document("1.a", "2.a", b"2")
    assert raised.value.sent and not raised.value.refused
    with pytest.raises(AwayError, match="0 of 1 replicas have confirmed"):
        alone.document("2.a")           # nor does a reading
    made.close()


def test_errors_show_whether_a_change_may_have_been_made(server: Redis, registry: Registry) -> None:
    nothing = registry_of(free_port())
    with pytest.raises(AwayError) as raised:
        nothing.replace_document("", "1.a", b"1")
    assert not raised.value.sent
    server.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(AwayError, match=r"OOM|maxmemory") as raised:
            registry.replace_document("", "1.a", b"1")
        assert raised.value.refused
        assert registry.document() == Found("", b"", False)     # reading goes on
    finally:
        server.client.config_set("maxmemory", 0)


def test_a_node_that_leaves_takes_its_version_along(registry: Registry) -> None:
    registry.ask(Join("", Announcement().text))
    registry.ask(Note(((uses_field("a"), "7"), (uses_field("b"), "8"))))
    assert of_nodes(registry.noted(), USES) == {"a": "7", "b": "8"}
    registry.ask(Leave())
    assert of_nodes(registry.noted(), USES) == {"b": "8"}
