"""Test the addresses of the workers of a node (mosq/server/node/wires.py)."""

from __future__ import annotations

import socket

import pytest

from mosq.cluster.address import Address
from mosq.cluster.entries import place_in
from mosq.server.node.wires import Wires, address_text, own_host
from tests.harness.broker import free_port

REDIS = Address((("127.0.0.1", 6379),))


def test_each_worker_has_the_port_behind_the_one_before() -> None:
    address = address_text("fe80::1", 7883)
    assert [place_in(address, worker) for worker in range(2)] == [("fe80::1", 7883), ("fe80::1", 7884)]


@pytest.mark.parametrize("address", ["", "host", "host:7883", "host ", " 7883", "host 7883 more", "host x", "host 0", "host 65535", "host ７"])
def test_an_address_of_another_form_is_no_place(address: str) -> None:
    assert place_in(address, 1) is None


def test_a_node_announces_a_number() -> None:
    assert own_host("localhost", REDIS) in ("127.0.0.1", "::1")
    with pytest.raises(socket.gaierror):
        own_host("no such host", REDIS)


@pytest.mark.parametrize(("named", "text"), [("", "reaches Redis from 127.0.0.1, which no other machine can reach"),
                                             ("0.0.0.0", "stands for all of them"), ("::", "stands for all of them")])
def test_an_address_that_other_nodes_cannot_use_is_refused(named: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        own_host(named, REDIS)


def test_each_host_of_redis_is_tried_for_the_own_address() -> None:
    with pytest.raises(ValueError, match=r"127\.0\.0\.1"):
        own_host("", Address((("no such host", 6379), ("127.0.0.1", 6379))))


def test_a_port_in_use_is_an_error_that_names_all_ports() -> None:
    port = free_port()
    text = f"port {port + 1} for other workers .cluster_listener.: Address already in use. .* from {port} to {port + 2}"
    with socket.create_server(("127.0.0.1", port + 1)), pytest.raises(OSError, match=text):
        Wires("id", b"s" * 32, "127.0.0.1", port).wired(1, 1, 3)
