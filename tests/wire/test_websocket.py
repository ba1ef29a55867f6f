"""Run the tables of the plain flavour over WebSocket; only the boundaries of frames and packets differ [v5 6.0.0]."""

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
    "session": test_session.SESSIONS,
    "will": test_session.WILLS,
    "retained": test_session.RETAINED,
    "disconnect": test_session.DISCONNECT,
}
CASES: list[Case] = [
    replace(case, id=f"{name}-{case.id}", flavour="plain-ws", versions=case.versions[-1:])
    for name, table in TABLES.items()
    for case in table
    if case.flavour == "plain" and not case.timed
]
assert len(CASES) > 100


@plays(CASES, "transports", 10)
def test_over_websocket(play: Play, stage: Stage) -> None:
    stage(play)
