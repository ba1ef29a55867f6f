"""Test the demo of a cluster (`make cluster-demo`)."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.cluster.demo.load import Figures, Load
from tests.harness.broker import ROOT

pytestmark = pytest.mark.part("front")


def test_the_demo_loses_nothing_when_a_node_is_killed() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.cluster.demo", "--seconds", "15", "--kill-every", "6"], cwd=ROOT, capture_output=True, text=True,
                          timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^[12] kills of nodes", done.stdout, re.MULTILINE), done.stdout
    found = re.search(r"([\d,]+) messages acknowledged, ([\d,]+) deliveries to 48 durable sessions, 0 lost, 0 doubled", done.stdout)
    assert found is not None and all(int(number.replace(",", "")) > 0 for number in found.groups()), done.stdout
    assert done.stdout.endswith("Nothing acknowledged was lost.\n")


def test_the_account_of_the_demo_finds_lost_and_doubled_messages() -> None:
    load = Load([("127.0.0.1", 1)], 10, 1)
    audit = load.chaos.audit
    for number, publisher in enumerate(load.publishers):
        assert publisher.qos == number + 1
        audit.asked("session", number)
        audit.subscribed("session", 2, number)
        for seq in (1, 2, 3, 4):
            publisher.sent.sent(seq)
        publisher.sent.acked[:3] = b"\1\1\1"
        audit.delivered("session", number, 1, dup=False)
        audit.delivered("session", number, 1, dup=True)
    assert load.account(1) == Figures(published=4, acknowledged=3, delivered=1, pending=2, again=1)
    assert load.account(2) == Figures(published=4, acknowledged=3, delivered=1, pending=2, doubled=1)
    audit.delivered("session", 1, 3, dup=False)
    assert load.account(2) == Figures(published=4, acknowledged=3, delivered=2, lost=1, doubled=1)
