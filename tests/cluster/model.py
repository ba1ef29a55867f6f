"""A model of the cluster's data in Redis: what the scripts of mosq/cluster/scripts.py do, on an immutable state.

test_scripts.py compares it with the real scripts in a real Redis. The simulator (world.py) replicates, delays and loses its states.
"""

from __future__ import annotations

from typing import NamedTuple

from mosq.cluster.entries import number_of
from mosq.cluster.requests import (ANOTHER, CHANGED, DONE, MISSING, UNKNOWN, USED, Answer, Beat, Change, Join, Leave, Look, Request, Send,
                                   View)


NOTHING: dict = {}                          # never changed


class State(NamedTuple):
    """All that Redis has. No dictionary in it changes."""

    number: int                             # of changes before it
    id: str = ""                            # of the cluster; empty: there is none
    beats: dict[str, str] = NOTHING
    announcements: dict[str, str] = NOTHING
    workers: dict[int, str] = NOTHING
    away: dict[str, str] = NOTHING          # node -> run
    heads: dict[int, tuple[int, int]] = NOTHING     # of the stores: worker -> token, and the start that opened it
    written: dict[int, int] = NOTHING       # number of the last write to the store of a worker


def node_state(state: State, name: str, run: str) -> tuple[str, str]:
    beat = state.beats.get(name)
    if beat is None:
        return UNKNOWN, ""
    return (DONE if beat.startswith(run + " ") else USED), beat


def apply(state: State, source: str, id: str, name: str, run: str, request: Request) -> tuple[State, Answer]:
    """Carry out a request; return the next state, which is the same object if nothing changes, and the answer."""
    if not state.id or state.id != id:
        return state, Answer(ANOTHER if state.id else MISSING)
    if isinstance(request, Look):
        return state, whole(state, source)
    status, beat = node_state(state, name, run)
    if isinstance(request, Beat):
        if status != DONE:
            return state, Answer(status)
        last = number_of(beat)
        if last is None or request.number > last:
            announcements = {**state.announcements, name: request.announcement} if request.announcement else state.announcements
            state = state._replace(number=state.number + 1, beats={**state.beats, name: f"{run} {request.number}"}, announcements=announcements)
        return state, whole(state, source)
    if isinstance(request, Change):
        if status != DONE:
            return state, Answer(status)
        entry = state.workers.get(request.worker, "")
        if entry == request.entry:
            return state, Answer(DONE)
        if entry != request.expected:
            return state, Answer(CHANGED)
        return state._replace(number=state.number + 1, workers={**state.workers, request.worker: request.entry}), Answer(DONE)
    if isinstance(request, Join):
        if status == DONE:
            return state, Answer(DONE)
        if status == USED and beat != request.expected:
            return state, Answer(USED, None, beat)
        return state._replace(number=state.number + 1, beats={**state.beats, name: f"{run} 0"},
                              announcements={**state.announcements, name: request.announcement}), Answer(DONE)
    if isinstance(request, Send):
        if status != DONE:
            return state, Answer(status)
        away = {**state.away, name: run} if request.away else without(state.away, name)
        return state._replace(number=state.number + 1, away=away), Answer(DONE)
    assert isinstance(request, Leave)
    if request.expected and status != UNKNOWN and beat != request.expected:
        return state, Answer(CHANGED)
    if status != DONE:
        return state, Answer(DONE)
    return state._replace(number=state.number + 1, beats=without(state.beats, name), announcements=without(state.announcements, name),
                          away=without(state.away, name)), Answer(DONE)


def whole(state: State, source: str) -> Answer:
    return Answer(DONE, View(source, state.beats, state.announcements, state.workers, state.away))


def without(fields: dict[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in fields.items() if key != name}
