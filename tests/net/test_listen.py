"""Test listeners on addresses, host names, interfaces and unix sockets."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _socket
import pytest

from mosq import _core as listen

IPV6 = Path("/proc/net/if_inet6").exists() and "0" * 31 + "1" in Path("/proc/net/if_inet6").read_text()


@contextlib.contextmanager
def listening(**spec: Any) -> Iterator[list[Any]]:
    sockets = listen.sockets_of({"port": 0, **spec}, True)
    try:
        yield sockets
    finally:
        listen.close(sockets)


def addresses(sockets: list[Any]) -> list[str]:
    return sorted(s.getsockname()[0] for s in sockets)


def resolves_to(monkeypatch: pytest.MonkeyPatch, *found: str) -> None:
    """Make every host name resolve to these addresses."""

    def getaddrinfo(host: str, port: int, *_: int) -> list[Any]:
        return [(socket.AF_INET6 if ":" in a else socket.AF_INET, 1, 6, "", (a, port, 0, 0) if ":" in a else (a, port)) for a in found]

    monkeypatch.setattr(_socket, "getaddrinfo", getaddrinfo)


# ---------------------------------------------------------------- TCP


def test_without_a_host_both_families_get_the_same_port() -> None:
    with listening() as sockets:
        assert addresses(sockets) == (["0.0.0.0", "::"] if IPV6 else ["0.0.0.0"])
        assert len({listen.port_of(s) for s in sockets}) == 1


@pytest.mark.parametrize(("domain", "host"), [("ipv4", "0.0.0.0"), ("ipv6", "::")])
def test_socket_domain(domain: str, host: str) -> None:
    if domain == "ipv6" and not IPV6:
        with pytest.raises(OSError), listening(socket_domain=domain):
            pass
        return
    with listening(socket_domain=domain) as sockets:
        assert addresses(sockets) == [host]


def test_a_name_with_two_addresses_is_listened_to_on_both(monkeypatch: pytest.MonkeyPatch) -> None:
    resolves_to(monkeypatch, "127.0.0.1", "127.0.0.2")
    with listening(host="both.example") as sockets:
        assert addresses(sockets) == ["127.0.0.1", "127.0.0.2"]
        for s in sockets:
            socket.create_connection(s.getsockname()).close()


def test_a_name_with_the_same_address_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    resolves_to(monkeypatch, "127.0.0.1", "127.0.0.1")
    with listening(host="twice.example") as sockets:
        assert addresses(sockets) == ["127.0.0.1"]


def test_a_failed_address_closes_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(host="127.0.0.2") as taken:
        port = listen.port_of(taken[0])
        resolves_to(monkeypatch, "127.0.0.1", "127.0.0.2")
        with pytest.raises(OSError, match=f"Address already in use: cannot listen on 127.0.0.2 port {port}"), listening(host="x", port=port):
            pass
    with listening(host="127.0.0.1", port=port):  # the first address is free again
        pass


def test_an_unknown_host_name() -> None:
    with pytest.raises(OSError, match=r"cannot listen on no-such-host\.invalid port 1883: "), listening(host="no-such-host.invalid", port=1883):
        pass


def test_an_interface_listens_on_its_addresses() -> None:
    with listening(bind_interface="lo") as sockets:
        assert addresses(sockets) == (["127.0.0.1", "::1"] if IPV6 else ["127.0.0.1"])
        socket.create_connection(("127.0.0.1", listen.port_of(sockets[0]))).close()
    with listening(bind_interface="lo", socket_domain="ipv4") as sockets:
        assert addresses(sockets) == ["127.0.0.1"]
    with listening(bind_interface="lo", host="127.0.0.1") as sockets:
        assert addresses(sockets) == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"bind_interface": "nope0"}, "interface nope0 does not exist"),
        ({"bind_interface": "nope0", "host": "127.0.0.1"}, "interface nope0 does not exist"),
        ({"bind_interface": "lo", "host": "192.0.2.1"}, "cannot listen on 192.0.2.1 port 0: interface lo does not have it"),
    ],
)
def test_an_invalid_interface(spec: dict[str, str], text: str) -> None:
    with pytest.raises(OSError, match=re.escape(text)), listening(**spec):
        pass


# ---------------------------------------------------------------- unix sockets


@contextlib.contextmanager
def umask(mask: int) -> Iterator[None]:
    old = os.umask(mask)
    try:
        yield
    finally:
        os.umask(old)


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(path))


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_owner_and_group_may_connect(tmp_path: Path, mask: int) -> None:
    with umask(mask), listening(path=str(tmp_path / "s")):
        found = (tmp_path / "s").stat()
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) == 0o770
        connect(tmp_path / "s")


def test_the_file_is_removed_with_the_listener(tmp_path: Path) -> None:
    with listening(path=str(tmp_path / "s")):
        pass
    assert not (tmp_path / "s").exists()


def test_a_file_that_replaced_the_socket_stays(tmp_path: Path) -> None:
    with listening(path=str(tmp_path / "s")):
        (tmp_path / "s").unlink()
        (tmp_path / "s").write_text("mine")
    assert (tmp_path / "s").read_text() == "mine"


def test_a_socket_that_was_left_behind(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s"))
        left.listen()
    with listening(path=str(tmp_path / "s")):
        connect(tmp_path / "s")


def test_a_socket_that_is_in_use(tmp_path: Path) -> None:
    with listening(path=str(tmp_path / "s")):
        with pytest.raises(OSError, match=f"cannot listen on {tmp_path}/s: another process listens there"), listening(path=str(tmp_path / "s")):
            pass
        connect(tmp_path / "s")


def test_a_socket_that_is_in_use_and_busy(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as other, socket.socket(socket.AF_UNIX) as waiting:
        other.bind(str(tmp_path / "s"))
        other.listen(0)
        waiting.connect(str(tmp_path / "s"))  # the queue is full now
        with pytest.raises(OSError, match="another process listens there"), listening(path=str(tmp_path / "s")):
            pass


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_a_file_that_is_no_socket_stays_unchanged(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "s"
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    before = path.lstat()
    with pytest.raises(OSError, match=f"cannot listen on {path}: there is a file that is not a socket"), listening(path=str(path)):
        pass
    assert path.lstat() == before


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"cannot listen on {tmp_path}/no/s: No such file or directory"), listening(path=f"{tmp_path}/no/s"):
        pass


@pytest.mark.parametrize(("size", "fits"), [(107, True), (108, False)])
def test_the_length_of_a_path(tmp_path: Path, size: int, fits: bool) -> None:
    path = f"{tmp_path}/".ljust(size - 2, "a") + "\u00e4"  # the last letter has two bytes
    assert len(os.fsencode(path)) == size
    if fits:
        with listening(path=path):
            connect(Path(path))
    else:
        with pytest.raises(OSError, match="may have 107 bytes, this one has 108"), listening(path=path):
            pass
