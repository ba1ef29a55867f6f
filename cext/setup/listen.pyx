"""Bind the sockets of listeners. This module knows addresses and the errors of the system. It does not know protocols.

Errors: OSError whose text names the address, path or interface. This module never removes a file that is no
socket, or a socket on which a process listens. A unix socket's file has mode 0770 (owner and group), as
Mosquitto's, and is removed when the listener ends.
"""

import _socket
import os
import stat

from libc.errno cimport EADDRINUSE, EADDRNOTAVAIL, EEXIST, ENAMETOOLONG, ENODEV

BACKLOG = 1024
NO_IPV6 = (97, 99)              # EAFNOSUPPORT, EADDRNOTAVAIL: a machine without IPv6
UNIX_PATH_MAX_BYTES = 107
UNIX_MODE = 0o770
SIOCGIFADDR = 0x8915
IPV6_ADDRESSES = "/proc/net/if_inet6"
LINK_LOCAL = "20"               # scope in /proc/net/if_inet6
FAMILIES = {"ipv4": _socket.AF_INET, "ipv6": _socket.AF_INET6}


class Socket(_socket.socket):
    """A listening socket. `file` is the file that it made: (path, device, inode), or None."""

    __slots__ = ("file",)


def sockets_of(spec: dict, nodelay: bool) -> list:
    """Return the bound, listening sockets of a listener. A listener without a host gets two
    sockets, for IPv4 and IPv6, as in Mosquitto. A listener whose host is a name gets
    one socket for each address of it."""
    if spec.get("path"):
        return [bind_unix(spec["path"])]
    made = []
    try:
        _bind_all(spec, nodelay, made)
    except BaseException:
        close(made)             # all or none
        raise
    return made


def close(sockets: list) -> None:
    """Close sockets and remove the files of unix sockets, unless they belong to another process now."""
    for s in sockets:
        s.close()
        if s.file is not None:
            path, device, inode = s.file
            try:
                found = os.lstat(path)
                if (found.st_dev, found.st_ino) == (device, inode):
                    os.unlink(path)
            except OSError:     # it is gone, or the broker has dropped the rights with which it was made
                pass


def twin_of(s: Socket) -> Socket:
    """Return the same socket with a descriptor of its own. Its file belongs to the first one."""
    twin = Socket(s.family, s.type, s.proto, os.dup(s.fileno()))
    twin.file = None
    return twin


def socket_of_fd(int fd) -> Socket:
    """Return the listening socket that another process has handed over. The file of a unix socket comes with it."""
    s = Socket(fileno=fd)
    s.setblocking(False)
    s.file = None
    if s.family == _socket.AF_UNIX:
        path = s.getsockname()
        try:
            found = os.lstat(path)
            s.file = (path, found.st_dev, found.st_ino)
        except OSError:             # its file was removed
            pass
    return s


def shared_socket(int fd) -> Socket:
    """Return a listening socket that several processes share, with a descriptor of its own. Its file belongs to the process that has bound it."""
    s = Socket(fileno=os.dup(fd))
    s.file = None
    return s


# ---------------------------------------------------------------- TCP


def _bind_all(spec: dict, nodelay: bool, made: list) -> None:
    port = int(spec["port"])
    found = _addresses(spec, port)
    bound = 0
    for family, address in found:
        if bound and port == 0:
            address = (address[0], bound, *address[2:])      # port 0: the same free port for all
        try:
            made.append(_bind(family, address, nodelay))
        except OSError as error:
            if family == _socket.AF_INET6 and (made or len(found) > 1) and error.errno in NO_IPV6:
                continue
            raise
        bound = made[len(made) - 1].getsockname()[1]


def _addresses(spec: dict, port: int) -> list:
    """Return the addresses to listen on: [(family, address)], each once."""
    host = spec.get("host") or None
    domain = FAMILIES.get(spec.get("socket_domain") or "", 0)
    # Python converts a str with encodings.idna, whose import takes as long as the rest of this function
    name = host.encode() if host is not None and host.isascii() else host
    try:
        found = _socket.getaddrinfo(name, port, domain, _socket.SOCK_STREAM, 0, _socket.AI_PASSIVE)
    except _socket.gaierror as error:
        raise OSError(error.errno, f"cannot listen on {host or '*'} port {port}: {error.strerror}") from None
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    interface = spec.get("bind_interface")
    return _on_interface(interface, host, addresses, port, domain) if interface else addresses


def _on_interface(interface: str, host, addresses: list, port: int, domain: int) -> list:
    """Return the interface's addresses; with a host, those addresses of the host that belong to the interface.
    As in Mosquitto 2.1, this needs no rights, and clients on this machine may connect to the address too."""
    if interface not in [name for _, name in _socket.if_nameindex()]:
        raise OSError(ENODEV, f"cannot listen on port {port}: interface {interface} does not exist")
    own = [(family, address) for family, address in _interface_addresses(interface, port) if domain in (0, family)]
    if host is not None:
        named = {(family, address[0].partition("%")[0]) for family, address in addresses}
        own = [(family, address) for family, address in own if (family, address[0]) in named]
        if not own:
            raise OSError(EADDRNOTAVAIL, f"cannot listen on {host} port {port}: interface {interface} does not "
                                         f"have it")
    if not own:
        wanted = {_socket.AF_INET: "IPv4 ", _socket.AF_INET6: "IPv6 "}.get(domain, "")
        raise OSError(EADDRNOTAVAIL, f"cannot listen on port {port}: interface {interface} has no "
                                     f"{wanted}address")
    return own


def _interface_addresses(interface: str, port: int) -> list:
    import fcntl  # only if an interface is named

    found = []
    s = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
    try:
        answer = fcntl.ioctl(s.fileno(), SIOCGIFADDR, interface.encode()[:15].ljust(40, b"\0"))
        found.append((_socket.AF_INET, (_socket.inet_ntoa(answer[20:24]), port)))
    except OSError:
        pass                    # the interface has no IPv4 address
    finally:
        s.close()
    try:
        with open(IPV6_ADDRESSES) as file:
            lines = [line.split() for line in file]
    except OSError:
        lines = []
    for digits, index, _, scope, _, name in lines:
        if name == interface:
            address = _socket.inet_ntop(_socket.AF_INET6, bytes.fromhex(digits))
            found.append((_socket.AF_INET6, (address, port, 0, int(index, 16) if scope == LINK_LOCAL else 0)))
    return found


def _bind(family: int, address, nodelay: bool) -> Socket:
    s = _new(family)
    try:
        s.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        if nodelay:
            set_nodelay(s, nodelay)
        if family == _socket.AF_INET6:
            s.setsockopt(_socket.IPPROTO_IPV6, _socket.IPV6_V6ONLY, 1)
        s.bind(address)
        s.listen(BACKLOG)
    except OSError as error:
        s.close()
        raise OSError(error.errno, f"{error.strerror}: cannot listen on {address[0]} port {address[1]}.") from None
    return s


def _new(family: int) -> Socket:
    s = Socket(family, _socket.SOCK_STREAM | _socket.SOCK_NONBLOCK | _socket.SOCK_CLOEXEC, 0)
    s.file = None
    return s


def set_nodelay(s, on: bool) -> None:
    """Set TCP_NODELAY on a listening socket: its connections inherit it without a system call for each."""
    if s.family != _socket.AF_UNIX:
        s.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, int(on))


def port_of(s) -> int:
    """Return the port of a socket; 0 for a unix socket."""
    name = s.getsockname()
    return name[1] if isinstance(name, tuple) else 0


# ---------------------------------------------------------------- unix sockets


def bind_unix(path: str) -> Socket:
    size = len(os.fsencode(path))
    if size > UNIX_PATH_MAX_BYTES:
        raise OSError(ENAMETOOLONG, f"cannot listen on {path}: the path of a unix socket may have "
                                    f"{UNIX_PATH_MAX_BYTES} bytes, this one has {size}")
    s = _new(_socket.AF_UNIX)
    try:
        _make_way(path)
        s.bind(path)
        found = os.lstat(path)
        s.file = (path, found.st_dev, found.st_ino)
        os.chmod(path, UNIX_MODE)       # no process can connect before listen()
        s.listen(BACKLOG)
    except OSError as error:
        close([s])
        raise OSError(error.errno, f"cannot listen on {path}: {error.strerror}") from None
    return s


def _make_way(path: str) -> None:
    """Remove a socket that a killed broker has left."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(EEXIST, "there is a file that is not a socket; it is left alone")
    probe = _new(_socket.AF_UNIX)
    try:
        probe.connect(path)
    except ConnectionRefusedError:
        os.unlink(path)         # no process listens on it
        return
    except FileNotFoundError:
        return
    except BlockingIOError:
        pass                    # a process listens, and is busy
    finally:
        probe.close()
    raise OSError(EADDRINUSE, "another process listens there")
