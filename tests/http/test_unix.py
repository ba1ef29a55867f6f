"""Test the place of an HTTP listener's unix socket."""

from __future__ import annotations

import socket

import pytest

from mosq.server.http.listeners import _bound


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "precious"
    path.write_text("keep me")
    with pytest.raises(OSError, match="not a socket"):
        _bound(socket.AF_UNIX, str(path))
    assert path.read_text() == "keep me"


def test_a_socket_that_was_left_behind_is_replaced(tmp_path):
    path = str(tmp_path / "s")
    _bound(socket.AF_UNIX, path).close()
    _bound(socket.AF_UNIX, path).close()
