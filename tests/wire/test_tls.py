"""The tables of the plain flavour again, over TLS: records and packets do not keep step there; and some of them over WebSocket over TLS."""

from __future__ import annotations

from dataclasses import replace

from tests.wire import test_connect, test_flow, test_publish, test_resume, test_session, test_subscribe
from tests.wire.case import Case, Play, Stage, plays

TABLES = {
    "connect": test_connect.CASES,
    "publish": test_publish.CASES,
    "subscribe": test_subscribe.CASES,
    "flow": test_flow.CASES,
    "resume": test_resume.CASES,
    "session": test_session.SESSIONS + test_session.WILLS + test_session.RETAINED + test_session.DISCONNECT,
}
CASES: list[Case] = [
    replace(case, id=f"{name}-{case.id}", flavour="plain-tls", versions=case.versions[-1:])
    for name, table in TABLES.items()
    for case in table
    if case.flavour == "plain" and not case.timed
]
assert len(CASES) > 100


@plays(CASES)
def test_over_tls(play: Play, stage: Stage) -> None:
    stage(play)


@plays([replace(case, flavour="plain-wss") for case in CASES if case.id.startswith(("flow-", "publish-"))])
def test_over_websocket_over_tls(play: Play, stage: Stage) -> None:
    stage(play)
