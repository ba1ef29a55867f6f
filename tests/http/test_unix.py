"""Test the place of an HTTP listener's unix socket."""

from __future__ import annotations

import http.client
import socket
import stat

import pytest

from mosq.config.model import Listener
from mosq.server.http.listeners import open_listeners
from tests.harness.broker import Broker
from tests.harness.effort import TIMEOUT_S


def opened(path, before=()):
    return open_listeners([Listener(0, path=str(path))], [one.bound for one in before])


def reach(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "precious"
    path.write_text("keep me")
    with pytest.raises(OSError, match="not a socket"):
        opened(path)
    assert path.read_text() == "keep me"


def test_a_socket_that_was_left_behind_is_replaced(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    for one in opened(path):
        reach(path)
        one.close()
    assert not path.exists()


def test_the_socket_of_another_process_is_left_alone(tmp_path):
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        with pytest.raises(OSError, match=f"cannot listen on {path}: another process listens there"):
            opened(path)
        reach(path)


def test_a_reload_keeps_the_socket_until_its_last_holder_ends(tmp_path):
    path = tmp_path / "s"
    before = opened(path)
    after = opened(path, before)
    before[0].close()
    reach(path)
    after[0].close()
    assert not path.exists()


def test_pages_by_a_unix_socket():
    with Broker("listener {port} 127.0.0.1\nallow_anonymous true\nlistener 0 {dir}/s\nprotocol http_api\n") as broker:
        path = broker.dir / "s"
        assert stat.S_IMODE(path.stat().st_mode) == 0o770
        connection = http.client.HTTPConnection("localhost")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(TIMEOUT_S)
        connection.sock.connect(str(path))
        connection.request("GET", "/api/v1/health")
        assert connection.getresponse().status == 200
        connection.close()
        assert broker.stop() == 0
