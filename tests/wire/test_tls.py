"""The tables that run over WebSocket again, over TLS: records and packets do not keep step there; some of them over WebSocket over TLS."""

from __future__ import annotations

from dataclasses import replace

from tests.wire.case import Play, Stage, plays
from tests.wire.test_websocket import CASES


@plays([replace(case, flavour="plain-tls") for case in CASES], "transports", 10)
def test_over_tls(play: Play, stage: Stage) -> None:
    stage(play)


@plays([replace(case, flavour="plain-wss") for case in CASES if case.id.startswith(("flow-", "publish-"))], "transports", 10)
def test_over_websocket_over_tls(play: Play, stage: Stage) -> None:
    stage(play)
