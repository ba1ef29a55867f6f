"""Test the sockets of a node that has no worker."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from mosq.server.node.doors import Doors


def test_sockets_that_are_shut_end_waiting_clients_and_open_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    with socket.create_server(("127.0.0.1", port)) as server:       # a port that the system chose would be given back
        doors = Doors([server])
        with socket.create_connection(("127.0.0.1", port)) as waiting:
            doors.shut()
            waiting.settimeout(30)
            with pytest.raises(ConnectionResetError):
                waiting.recv(1)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        doors.shut()                # again: nothing happens
        doors.open()
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()


def test_a_unix_socket_stays_open(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(str(tmp_path / "s"))
        server.listen()
        Doors([server]).shut()
        client.connect(str(tmp_path / "s"))
        server.accept()[0].close()
