"""Makes the sockets and TLS contexts of HTTP listeners before the broker reports that it runs. Quick to import."""

import errno
import os
import socket
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl

    from mosq.config.model import Listener

BACKLOG = 64


class HttpListener:
    """A bound HTTP listener."""

    def __init__(self, listener: "Listener", before: "list[HttpListener]") -> None:
        """Bind the listener. Sockets of `before` at the same address are reused. Raises OSError for a bad address or
        certificate."""
        self.config = listener
        self.address = (listener.port, listener.host, listener.path, listener.socket_domain)
        self.tls = _tls(listener)
        same = [one for earlier in before if earlier.address == self.address for one in earlier.sockets]
        self.sockets: list[socket.socket] = [one.dup() for one in same] or _bind(listener)
        self.n = 0

    def close(self) -> None:
        for one in self.sockets:
            one.close()


def open_listeners(listeners: "list[Listener]", before: "list[HttpListener]") -> list[HttpListener]:
    """Bind all listeners, or none: raises OSError. `before`: the listeners that these replace."""
    opened: list[HttpListener] = []
    try:
        for listener in listeners:
            opened.append(HttpListener(listener, before))  # noqa: PERF401 - after an error the bound ones must be closed
    except BaseException:
        for one in opened:
            one.close()
        raise
    return opened


def _tls(listener: "Listener") -> "ssl.SSLContext | None":
    if not (listener.certfile and listener.keyfile):
        return None
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if listener.require_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if listener.tls_version == "tlsv1.3" else ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(listener.certfile, listener.keyfile, password=_no_password)
        if listener.require_certificate:
            context.load_verify_locations(listener.cafile, listener.capath)
            if listener.crlfile:
                context.load_verify_locations(listener.crlfile)
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except OSError as error:            # includes ssl.SSLError
        text = f'Unable to load server certificate "{listener.certfile}" and key "{listener.keyfile}": '
        raise OSError(error.errno or 0, f"{text}{error.strerror or error}. Check certfile and keyfile.") from None
    return context


def _no_password() -> str:
    return ""                           # without this, OpenSSL would prompt at the terminal and wait


def _bind(listener: "Listener") -> list[socket.socket]:
    if listener.path is not None:
        return [_bound(socket.AF_UNIX, listener.path)]
    family = {"ipv4": socket.AF_INET, "ipv6": socket.AF_INET6}.get(listener.socket_domain or "", 0)
    try:
        found = socket.getaddrinfo(listener.host, listener.port, family, socket.SOCK_STREAM, 0, socket.AI_PASSIVE)
    except OSError as error:
        raise OSError(error.errno, f"listener {listener.port} {listener.host}: {error.strerror}") from None
    sockets: list[socket.socket] = []
    try:
        for kind, _, _, _, address in found:
            try:
                sockets.append(_bound(kind, address))
            except OSError as error:
                if kind == socket.AF_INET6 and len(found) > 1 and error.errno in (97, 99):
                    continue            # a machine without IPv6
                raise
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return sockets


def _make_way(path: str) -> None:
    """Remove a socket that an earlier broker left behind, but no other file."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise OSError(errno.EEXIST, "there is a file that is not a socket; it is left alone")
    os.unlink(path)


def _bound(family: int, address: "str | tuple[object, ...]") -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_UNIX:
            _make_way(str(address))
        else:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(address)
        one.listen(BACKLOG)
    except OSError as error:
        one.close()
        where = address if isinstance(address, str) else f"{address[0]} port {address[1]}"
        raise OSError(error.errno, f"cannot listen on {where}: {error.strerror}") from None
    return one
