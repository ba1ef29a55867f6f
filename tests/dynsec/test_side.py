"""Test the same commands with mosq and with Mosquitto and its plugin: the answers are equal, byte by byte.

The other broker is Debian's, and the one that MOSQ_DYNSEC_PEER and MOSQ_DYNSEC_PLUGIN name.
"""

from __future__ import annotations

import json

import pytest

from tests.dynsec import script
from tests.dynsec.admin import Object, Ruled, state, their_version

pytestmark = pytest.mark.interop


def messages() -> list[bytes]:
    """Return the messages that the other broker knows."""
    newer = their_version() >= (2, 1)
    found = []
    for message in [*script.MESSAGES, *(script.NEWER if newer else ())]:
        if isinstance(message, list):
            commands: list[Object] = [command for command in message if newer or "NEWER" not in command]
            found.append(json.dumps({"commands": commands}).encode())
        elif newer or message not in script.BROKEN_2_1:
            found.append(message)
    return found


def responses_of(real: bool, asked: list[bytes]) -> list[bytes]:
    with Ruled(state(), real) as broker:
        admin = broker.admin()
        return [admin.raw(message) for message in asked]


def test_same_answers() -> None:
    asked = messages()
    newer = their_version() >= (2, 1)
    for message, ours, theirs in zip(asked, responses_of(False, asked), responses_of(True, asked), strict=True):
        if not newer:
            ours = ours.replace(b'"allowwildcardsubs":true,', b"")      # unknown to the other broker
        assert ours.decode() == theirs.decode(), message
