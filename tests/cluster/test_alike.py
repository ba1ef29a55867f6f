"""Test the options that nodes should have alike: what a node notes, and which differences are reported."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from mosq.cluster.alike import Likeness, likeness_of, unlike
from mosq.config.parser import load_config
from mosq.server.node.likeness import OPTIONS, values_of
from tests.cluster.test_two_nodes import Linked, run_status
from tests.cluster.test_two_nodes import linked as linked
from tests.cluster.test_serving import WORKERS
from tests.workers.case import until

RUNS = {"a": "ra", "b": "rb", "c": "rc"}


def noted(**values: dict[str, str]) -> dict[str, str]:
    return {name: Likeness(f"r{name}", of).text for name, of in values.items()}


def test_options_are_read_as_they_were_written() -> None:
    one = Likeness("r", {"x": "1"})
    assert likeness_of(one.text) == one
    assert [likeness_of(text) for text in ("", "7", "[]", "{}", '{"run": "r", "values": 7}', "[" * 50_000)] == [None] * 6


def test_nodes_that_are_alike_have_no_difference() -> None:
    assert list(unlike(noted(a={"x": "1"}, b={"x": "1"}), RUNS)) == []
    assert list(unlike(noted(a={"x": "1"}, b={"y": "1"}), RUNS)) == []         # an older version does not note it
    assert list(unlike({**noted(a={"x": "1"}), "b": "{"}, RUNS)) == []


def test_each_option_that_differs_is_named_with_its_nodes() -> None:
    found = list(unlike(noted(a={"x": "1", "y": ""}, b={"x": "2", "y": "k"}, c={"x": "1", "y": "k"}), RUNS))
    assert found == ["Nodes have different values of x: 1 (a, c); 2 (b). Clients meet one or the other; make them the same.",
                     "Nodes have different values of y: nothing (a); k (b, c). Clients meet one or the other; make them the same."]


def test_a_node_that_is_dead_or_was_started_again_is_not_compared() -> None:
    both = noted(a={"x": "1"}, b={"x": "2"})
    assert list(unlike(both, {"a": "ra"})) == []
    assert list(unlike(both, {"a": "ra", "b": "later"})) == []


def values(folder: Path, text: str) -> dict[str, str]:
    (folder / "mosq.conf").write_text(text)
    return values_of(load_config(str(folder / "mosq.conf")))


@pytest.mark.parametrize(("one", "other", "option"), [
    ("listener 1883 127.0.0.1", "listener 1884 127.0.0.1", "listeners"),
    ("listener 1883 127.0.0.1", "listener 1883 127.0.0.1\nprotocol websockets", "listeners"),
    ("max_queued_messages 7", "max_queued_messages 8", "max_queued_messages"),
    ("max_packet_size 100", "", "max_packet_size"),
    ("retain_available false", "", "retain_available"),
    ("durability strict", "durability group", "durability"),
])
def test_what_clients_meet_is_compared(tmp_path: Path, one: str, other: str, option: str) -> None:
    first, second = values(tmp_path, one + "\n"), values(tmp_path, other + "\n")
    assert [name for name in first if first[name] != second[name]] == [option]
    assert first.keys() >= set(OPTIONS)


@pytest.mark.parametrize("other", ["listener 1883 127.0.0.2", "listener 1883 127.0.0.1\nlog_type all", "listener 1883 127.0.0.1\nmemory_limit 1000000"])
def test_addresses_logs_and_the_memory_of_a_machine_may_differ(tmp_path: Path, other: str) -> None:
    assert values(tmp_path, "listener 1883 127.0.0.1\n") == values(tmp_path, other + "\n")


def test_the_rules_of_a_file_are_compared(tmp_path: Path) -> None:
    found = []
    for rules in ("topic read #", "topic read x"):
        (tmp_path / "acl").write_text(f"{rules}\n")
        found.append(values(tmp_path, f"acl_file {tmp_path}/acl\n")["the content of acl_file"])
    assert found[0] != found[1] and found[0].startswith("sha256 ")


@pytest.mark.part("redis")
def test_a_difference_is_in_the_log_and_in_the_status_until_a_reload_ends_it(linked: Linked) -> None:
    first, second = linked.node("a"), linked.node("b", "max_queued_messages 77\n")
    first.spawn()
    until(lambda: len(linked.tokens()) == WORKERS, first.log)
    second.spawn()
    line = "Nodes have different values of max_queued_messages: 1000 (a); 77 (b)."
    for node in (first, second):
        node.wait_log(f"Warning: {line}")
    assert [one for one in run_status(linked)["trouble"] if one.startswith(line)]
    second.config.write_text(second.config.read_text().replace("max_queued_messages 77", "max_queued_messages 1000"))
    second.send_signal(signal.SIGHUP)
    until(lambda: not [one for one in run_status(linked)["trouble"] if line[:20] in one], second.log)
