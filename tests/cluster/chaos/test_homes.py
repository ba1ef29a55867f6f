"""Test that a second process of a worker is found, and that a successor is none."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.cluster.chaos.homes import Homes


@contextmanager
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as made:
        try:
            yield made
        finally:
            made.kill()


def test_a_second_process_of_a_worker_is_found_once() -> None:
    homes = Homes()
    with ExitStack() as stack:
        first, second, other = (stack.enter_context(process()) for _ in range(3))
        assert homes.see("a", {first.pid: 1, other.pid: 2}) == []
        assert homes.see("b", {second.pid: 1}) == [
            f"two homes: worker 1 has process {second.pid} at node b, and process {first.pid} at node a"]
        assert homes.see("b", {second.pid: 1}) == []


def test_a_process_after_the_end_of_the_first_is_no_second_home() -> None:
    homes = Homes()
    with process() as first, process() as second:
        homes.see("a", {first.pid: 1})
        first.kill()
        first.wait()
        assert homes.see("b", {second.pid: 1}) == []
