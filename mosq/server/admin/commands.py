"""Runs the commands of Mosquitto's control API. A payload is JSON with a list of commands; the answer is JSON with a
list of responses in the same order, with Mosquitto's error texts. Knows the envelope, not what a command does.

    {"commands": [{"command": "listPlugins", "correlationData": "1"}]}
 -> {"responses": [{"command": "listPlugins", "data": {...}, "correlationData": "1"}]}    or "error" in place of "data"

As in Mosquitto, the names of commands and keys are case-insensitive, the first of two equal keys counts, and an invalid
command (no object, no name, a correlationData that is no string) ends the list.
Limit: RESPONSES_BYTES_MAX of responses for one payload, plus the last response; then one error. The limit holds for
dynamic security too (`Responses`). Each command is a step (control.py), so other requests are served in between.
"""

import json

from mosq.log_types import DEBUG, INFORMATION
from mosq.server.admin.control import Requester

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from mosq.server.admin.control import Work

    Function = Callable[[Requester, "Fields"], "dict[str, Any] | None"]

RESPONSES_BYTES_MAX = 4 << 20
UNKNOWN = "Unknown command"
TOO_MANY = "Too many commands at once"
TEXT_MAX = 65535                # limit in characters of a client id or topic


class CommandError(Exception):
    """An invalid command; the text is that of the response."""


class Responses:
    """The responses to one payload."""

    def __init__(self, encoded: "Callable[[str], bytes]" = str.encode) -> None:
        self._encoded = encoded
        self._bytes: list[bytes] = []
        self._room = RESPONSES_BYTES_MAX

    def is_full(self) -> bool:
        """Return whether the limit is reached. The next command is then answered with TOO_MANY, and the rest not at
        all."""
        return self._room <= 0

    def add(self, response: "dict[str, Any]") -> None:
        """Append a response."""
        self._bytes.append(self._text(response))
        self._room -= len(self._bytes[-1])

    def __len__(self) -> int:
        return len(self._bytes)

    def __setitem__(self, place: int, response: "dict[str, Any]") -> None:
        self._bytes[place] = self._text(response)

    def payload(self) -> bytes:
        """Return the responses as a JSON payload."""
        return b'{"responses":[%b]}' % b",".join(self._bytes)

    def _text(self, response: "dict[str, Any]") -> bytes:
        return self._encoded(json.dumps(response, ensure_ascii=False, separators=(",", ":")))


class Fields:
    """The fields of a command. The methods raise CommandError for a missing or invalid field."""

    def __init__(self, given: "dict[str, Any]") -> None:
        self.given = given

    def text(self, name: str) -> str:
        """Return a required text."""
        value = self.given.get(name.lower())
        if not isinstance(value, str) or not value or len(value) > TEXT_MAX:
            raise CommandError(f"Invalid/missing {name}")
        return value

    def number(self, name: str, default: int, most: int, least: int = 0) -> int:
        """Return a whole number from `least` to `most`, or the default."""
        value = self.given.get(name.lower(), default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
            raise CommandError(f"Invalid {name}")
        if not least <= value <= most:
            raise CommandError(f"Invalid {name}: expected {least} to {most}")
        return int(value)

    def choice(self, name: str) -> bool | None:
        """Return an optional bool."""
        value = self.given.get(name.lower())
        if value is not None and not isinstance(value, bool):
            raise CommandError(f"Invalid {name}")
        return value

    def optional(self, name: str) -> str | None:
        """Return an optional text."""
        return None if name.lower() not in self.given else self.text(name)


class Commands:
    """The handler of one control topic: a map from command names to functions."""

    def __init__(self, label: str, topic: str, functions: "Mapping[str, Function]",
                 report: "Callable[[int, str], None]", reads: "frozenset[str]" = frozenset()) -> None:
        """`reads`: the functions that only read and that programs repeat; they are logged as debug lines."""
        self._label, self._response_topic, self._report = label, f"{topic}/response", report
        self._reads = reads
        self._functions = {name.lower(): (name, function) for name, function in functions.items()}

    def __call__(self, requester: Requester, payload: bytes) -> "Work":
        responses = Responses()
        for given in _commands(payload):
            wrong = _wrong(given)
            if wrong is None and responses.is_full():
                wrong = {"command": given["command"], "error": TOO_MANY}
            responses.add(self._done(requester, given) if wrong is None else wrong)
            if wrong is not None:
                break
            yield True
        return [(self._response_topic, responses.payload())]

    def _done(self, requester: Requester, given: "dict[str, Any]") -> "dict[str, Any]":
        name, function = self._functions.get(given["command"].lower(), (given["command"], None))
        response: dict[str, Any] = {"command": name}
        if function is None:
            response["error"] = UNKNOWN
        else:
            client = f"{requester.client_id}/{requester.username if requester.username is not None else '(null)'}"
            self._report(DEBUG if name in self._reads else INFORMATION, f"{self._label}: {client} | {name}")
            try:
                data = function(requester, Fields(given))
                if data is not None:
                    response["data"] = data
            except CommandError as error:
                response["error"] = str(error)
        if "correlationdata" in given:
            response["correlationData"] = given["correlationdata"]
        return response


def parsed(payload: bytes) -> "Any":
    """Return the JSON tree with keys in lower case. Text after the tree is ignored, as in Mosquitto. Raises ValueError
    or RecursionError if the payload is no JSON."""
    text = payload.removeprefix(b"\xef\xbb\xbf").decode().partition("\0")[0].lstrip(" \t\r\n")
    tree, _ = _DECODER.raw_decode(text)
    if "\\u" in text:
        json.dumps(tree, ensure_ascii=False).encode()       # raises an error for a lone surrogate
    return tree


def _first_wins(pairs: "list[tuple[str, Any]]") -> "dict[str, Any]":
    return {key.lower(): value for key, value in reversed(pairs)}


def _no_constant(text: str) -> None:
    raise ValueError(text)


_DECODER = json.JSONDecoder(object_pairs_hook=_first_wins, parse_constant=_no_constant, strict=False)


def _commands(payload: bytes) -> "list[Any]":
    """Return the commands of a payload, or a list of one CommandError if the payload has no commands."""
    try:
        tree = parsed(payload)
    except (ValueError, RecursionError):
        return [CommandError("Payload not valid JSON")]
    commands = tree.get("commands") if isinstance(tree, dict) else None
    return commands if isinstance(commands, list) else [CommandError("Invalid/missing commands")]


def _wrong(given: "Any") -> "dict[str, Any] | None":
    if isinstance(given, CommandError):
        return {"command": UNKNOWN, "error": str(given)}
    if not isinstance(given, dict):
        return {"command": UNKNOWN, "error": "Command not an object"}
    if not isinstance(given.get("command"), str):
        return {"command": UNKNOWN, "error": "Missing command"}
    if not isinstance(given.get("correlationdata", ""), str):
        return {"command": given["command"], "error": "Invalid correlationData data type."}
    return None
