"""Binds the sockets of listeners. Knows addresses and the system's errors; not what is spoken there.

Errors: OSError whose text names the address.
"""

import _socket
import os

BACKLOG = 1024
SO_BINDTODEVICE = 25
NO_IPV6 = (97, 99)              # EAFNOSUPPORT, EADDRNOTAVAIL: a machine without IPv6


def sockets_of(spec: dict, nodelay: bool) -> list:
    """The bound, listening sockets of a listener. One without a host gets IPv4 and IPv6 in two sockets, as in
    Mosquitto."""
    if spec.get("path"):
        return [bind(_socket.AF_UNIX, spec["path"], spec, nodelay)]
    made = []
    try:
        _bind_all(spec, nodelay, made)
    except BaseException:
        for s in made:
            s.close()           # all or none
        raise
    return made


def _bind_all(spec: dict, nodelay: bool, made: list) -> None:
    host = spec.get("host") or None
    family = {"ipv4": _socket.AF_INET, "ipv6": _socket.AF_INET6}.get(spec.get("socket_domain") or "", 0)
    try:
        found = _socket.getaddrinfo(host, int(spec["port"]), family, _socket.SOCK_STREAM, 0, _socket.AI_PASSIVE)
    except _socket.gaierror as error:
        raise OSError(error.errno, f"listener {spec['port']} {host}: {error.strerror}") from None
    port = 0
    for family, _, _, _, address in found:
        if port:
            address = (address[0], port, *address[2:])      # port 0: the same free port for both families
        try:
            made.append(bind(family, address, spec, nodelay))
        except OSError as error:
            if family == _socket.AF_INET6 and (made or len(found) > 1) and error.errno in NO_IPV6:
                continue
            raise
        port = made[-1].getsockname()[1]


def bind(family: int, address, spec: dict, nodelay: bool):
    s = _socket.socket(family, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC, 0)
    try:
        if family == _socket.AF_UNIX:
            try:
                os.unlink(address)
            except FileNotFoundError:
                pass
        else:
            s.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            if nodelay:
                set_nodelay(s, nodelay)
            if family == _socket.AF_INET6:
                s.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 1)
            if spec.get("bind_interface"):
                s.setsockopt(_socket.SOL_SOCKET, SO_BINDTODEVICE, spec["bind_interface"].encode())
        s.bind(address)
        s.listen(BACKLOG)
    except OSError as error:
        s.close()
        where = address if family == _socket.AF_UNIX else f"{address[0]} port {address[1]}"
        raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from None
    return s


def set_nodelay(s, on: bool) -> None:
    """What a listening socket has, its connections inherit: no system call per connection."""
    if s.family != _socket.AF_UNIX:
        s.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, int(on))


def port_of(s) -> int:
    """0: a unix socket."""
    name = s.getsockname()
    return name[1] if isinstance(name, tuple) else 0
