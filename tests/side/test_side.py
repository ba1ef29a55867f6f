"""Run the same configuration and clients with Mosquitto and with mosq; compare bytes, log and exit status.

differences.py lists the allowed differences. The tests run with Debian's Mosquitto and with the 2.1 that MOSQ_PEER_21 names."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tests.harness.broker import ROOT
from tests.side import differences, ends
from tests.side.peer import MOSQ, Peer
from tests.side.scenes import FAILING, PLAYED

DEBIANS = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
PEERS = {"2.0": DEBIANS or "mosquitto", **({"2.1": os.environ["MOSQ_PEER_21"]} if os.environ.get("MOSQ_PEER_21") else {})}

pytestmark = pytest.mark.interop


def playable(peer: str):
    return [scene for scene in PLAYED if peer != "2.0" or scene.needs != "2.1"]


@pytest.mark.parametrize(("peer", "scene"), [pytest.param(peer, scene, id=f"{peer} {scene.name}")
                                             for peer in PEERS for scene in playable(peer)])
def test_same_bytes_and_lines(peer, scene):
    differ = differences.of_scene(scene.name, peer)
    ours = Peer(MOSQ, scene).run()
    for _ in range(2):          # Mosquitto may log a connection that ends at once twice, mosq logs it once
        theirs = Peer([PEERS[peer]], scene).run()
        found = set()
        if masked(theirs.bytes) != masked(ours.bytes):
            found.add("bytes")
        if theirs.status != ours.status:
            found.add("status")
        lines = differences.comparable(theirs.lines, peer, ours=False), differences.comparable(ours.lines, peer, ours=True)
        if lines[0] != lines[1]:
            found.add("lines")
        if found == differ:
            break
    if found != differ:         # pytest reports the difference
        assert theirs.bytes == ours.bytes
        assert lines[0] == lines[1]
    assert found == differ


def masked(heard):
    """Mask the client ids that each broker generates."""
    return [(step, who, re.sub("6175746f2d(3[0-9]|4[1-6]|2d){36}", "auto-", came)) for step, who, came in heard]


@pytest.mark.parametrize("scene", FAILING, ids=[scene.name for scene in FAILING])
def test_same_exit_status_and_first_words_of_the_error(scene):
    row = ends.ROWS[scene.name]
    ours = Peer(MOSQ, scene).run()
    assert ours.status == scene.status
    assert row.ours in ours.stderr
    for peer, command in PEERS.items():
        if peer in row.not_on.split():
            continue
        theirs = Peer([command], scene).run()
        assert theirs.status == row.status.get(peer, scene.status)
        assert row.theirs.get(peer, row.ours) in theirs.stderr


def test_each_difference_has_its_row_in_the_documentation():
    text = Path(ROOT / "docs/differences.md").read_text()
    reasons = [row.why for row in differences.SCENES] + [why for _, why in differences.LEFT_OUT] + [
        why for *_, why in differences.OTHER_WORDS] + [row.why for row in ends.ROWS.values()]
    for why in reasons:
        if why.startswith("row:"):
            assert f"| {why.removeprefix('row:')} |" in text, why
    assert {row.scene for row in differences.SCENES} <= {scene.name for scene in PLAYED}
    assert set(ends.ROWS) == {scene.name for scene in FAILING}
