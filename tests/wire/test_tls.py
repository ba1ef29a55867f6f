"""Run the tables of test_websocket.py over TLS, where records and packets begin at different bytes; some also with WebSocket."""

from __future__ import annotations

from dataclasses import replace

from tests.wire.case import Play, Stage, plays
from tests.wire.test_websocket import CASES


@plays([replace(case, flavour="plain-tls") for case in CASES], "transports", 10)
def test_over_tls(play: Play, stage: Stage) -> None:
    stage(play)


@plays([replace(case, flavour="compact-tls") for case in CASES], "transports", 10)
def test_over_tls_with_compact_records(play: Play, stage: Stage) -> None:
    stage(play)


@plays([replace(case, flavour="plain-wss") for case in CASES if case.id.startswith(("flow-", "publish-"))], "transports", 10)
def test_over_websocket_over_tls(play: Play, stage: Stage) -> None:
    stage(play)


@plays([replace(case, flavour="compact-wss") for case in CASES if case.id.startswith(("flow-", "publish-"))], "transports", 10)
def test_over_websocket_over_tls_with_compact_records(play: Play, stage: Stage) -> None:
    stage(play)
