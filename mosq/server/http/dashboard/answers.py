"""Answers of the dashboard's API as JSON, and the checks of what a request contains."""

import json

from starlette.responses import Response

from mosq.server.http.dashboard.files import SECURITY

HEADERS = {**SECURITY, "cache-control": "no-store"}
TOPIC_BYTES_MAX = 65535


class RefusedError(Exception):
    """A request that the dashboard does not answer: a status and a text for people."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def encoded(status: int, value: object) -> Response:
    """Return a JSON answer."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Response(text.encode("utf-8", "replace"), status, {**HEADERS, "content-type": "application/json"})


def error(status: int, text: str) -> Response:
    """Return an error for people."""
    return encoded(status, {"error": text})


def number(text: str, most: int) -> int:
    """Return a number from 0 to `most` of a query. Raises RefusedError."""
    if not text.isascii() or not text.isdigit() or len(text) > 16 or int(text) > most:
        raise RefusedError(400, f"Expected a number from 0 to {most}.")
    return int(text)


def valid_topic(topic: str, levels: int) -> str:
    """Return the topic. Raises RefusedError if it is none, or if it has more than so many levels."""
    _no_share(topic)
    if topic.count("/") >= levels:
        raise RefusedError(400, "The topic has too many levels.")
    return _valid(topic, "#+")


def valid_filter(filter: str) -> str:
    """Return the filter. Raises RefusedError if it is none. The broker checks its wildcards."""
    _no_share(filter)
    levels = filter.split("/")
    if "#" in "".join(levels[:-1]) or any(len(one) > 1 and ("#" in one or "+" in one) for one in levels):
        raise RefusedError(400, "A wildcard must be a whole level, and # the last one.")
    return _valid(filter, "")


def _no_share(text: str) -> None:
    """Raise RefusedError for names that are no topics in a SUBSCRIBE: as a member of a shared group, a page would take
    the messages of the others."""
    if text.partition("/")[0] in ("$share", "$stream"):
        raise RefusedError(400, "A page follows no shared subscription and no stream.")


def _valid(text: str, without: str) -> str:
    if not text or len(text.encode("utf-8", "replace")) > TOPIC_BYTES_MAX or not {*without, "\0"}.isdisjoint(text):
        raise RefusedError(400, "Expected a topic without wildcards." if without else "Expected a topic filter.")
    if any(ord(one) < 32 or 127 <= ord(one) < 160 or 0xD800 <= ord(one) < 0xE000 for one in text):
        raise RefusedError(400, "A topic has no control characters.")
    return text
