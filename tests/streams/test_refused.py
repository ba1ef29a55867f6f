"""A refused subscription to a stream has a line in the log with its reason."""

from __future__ import annotations

import time

import pytest

from mosq.cli.commands import main
from tests.harness.broker import Broker
from tests.harness.effort import TIMEOUT_S

CONFIG = "persistence true\npersistence_location {dir}\nstream all m/#\n"


def await_line(broker: Broker, text: str) -> None:
    """Wait until the log has a text: another thread writes it after the answer was sent."""
    give_up = time.monotonic() + TIMEOUT_S
    while text not in broker.log():
        assert time.monotonic() < give_up, broker.log()
        time.sleep(0.005)


@pytest.mark.parametrize("level", ["311", "5"])
def test_a_stream_that_does_not_exist_is_named_in_the_log(level: str) -> None:
    with Broker(CONFIG) as broker:
        words = ["sub", "-h", "127.0.0.1", "-p", str(broker.port), "-V", level, "-i", "reader", "--quiet", "-W", "30"]
        for name in ("$stream/none/first/#", "$stream/all/nowhere/#", "$stream/all"):
            assert main([*words, "-t", name]) == 0
            await_line(broker, f"Denied SUBSCRIBE from reader (q0, '{name}'): no such stream, or not $stream/NAME/")
        assert main([*words, "-t", "$stream/all/first/#", "-E"]) == 0
        assert "'$stream/all/first/#'" not in broker.log()
