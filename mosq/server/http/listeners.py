"""Makes the sockets and TLS contexts of HTTP listeners before the broker reports that it runs. Quick to import.

The data plane's code binds the sockets, so an HTTP listener has the addresses, errors and unix sockets of any other.
"""

from mosq.engine import bind_sockets, close_sockets

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    import ssl

    from mosq.config.model import Listener

    Address = tuple[int, str | None, str | None, str, str | None]

NO_CHECK_TIME = 0x200000                # X509_V_FLAG_NO_CHECK_TIME of OpenSSL, for which Python has no name
TLS_VERSIONS = {"tlsv1.3": "TLSv1_3"}    # with tlsv1.1, the listener begins with 1.2: Python has deprecated 1.1
OLDEST_TLS = "TLSv1_2"


class Bound:
    """The sockets of one address. A reload passes them to the next configuration; the last holder closes them. The
    parent of several workers is a holder too."""

    def __init__(self, address: "Address", sockets: "list[_socket.socket]", holders: int = 0) -> None:
        self.address, self.sockets, self.holders = address, sockets, holders


class HttpListener:
    """A bound HTTP listener."""

    def __init__(self, listener: "Listener", before: "list[Bound]") -> None:
        """Bind the listener. Sockets of `before` at the same address are reused. Raises OSError for a bad address or
        certificate."""
        self.config = listener
        self.warnings: list[str] = []           # for the log, when the listener starts to serve
        if listener.http_metrics:
            _import_metrics(listener)
        self.tls = self._tls(listener)
        address = address_of_http(listener)
        same = [earlier for earlier in before if earlier.address == address]
        self.bound: Bound = same[0] if same else Bound(address, bind_sockets(*address))
        self.bound.holders += 1
        self.n = 0                              # open connections

    @property
    def sockets(self) -> "list[_socket.socket]":
        return self.bound.sockets

    def close(self) -> None:
        """Close the sockets and remove the file of a unix socket, unless another configuration uses them too."""
        self.bound.holders -= 1
        if not self.bound.holders:
            close_sockets(self.bound.sockets)

    def _tls(self, listener: "Listener") -> "ssl.SSLContext | None":
        if not (listener.certfile and listener.keyfile):
            if listener.psk_hint:
                self.warnings.append(f"Listener {listener.where}: protocol http_api has no TLS-PSK, so psk_hint has no "
                                     "effect and the listener is not encrypted. Expected certfile and keyfile.")
            return None
        if getattr(listener, "ciphers_tls1.3"):
            self.warnings.append(f"Listener {listener.where}: ciphers_tls1.3 has no effect with protocol http_api.")
        return _context(listener, listener.certfile, listener.keyfile)


def _import_metrics(listener: "Listener") -> None:
    """Load the module now: later the process may no longer have the right to read it. Raises OSError."""
    try:
        import mosq.server.http.metrics  # noqa: F401
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        from mosq.tools.extras import without_metrics

        raise OSError(0, without_metrics(listener)) from None


def address_of_http(listener: "Listener") -> "Address":
    """Return what bind_sockets needs."""
    return listener.port, listener.host, listener.path, listener.socket_domain, listener.bind_interface


def open_listeners(listeners: "list[Listener]", before: "list[Bound]") -> list[HttpListener]:
    """Bind all listeners, or none: raises OSError. `before`: the sockets of those that these replace."""
    opened: list[HttpListener] = []
    try:
        for listener in listeners:
            opened.append(HttpListener(listener, before))  # noqa: PERF401 - after an error the bound ones must be closed
    except BaseException:
        for one in opened:
            one.close()
        raise
    return opened


def _context(listener: "Listener", certfile: str, keyfile: str) -> "ssl.SSLContext":
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion[TLS_VERSIONS.get(listener.tls_version or "", OLDEST_TLS)]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0             # a resumed session would not check the client's certificate again
    context.set_alpn_protocols(["http/1.1"])
    if listener.ciphers:
        try:
            context.set_ciphers(listener.ciphers)
        except ssl.SSLError as error:
            text = f'Unable to set TLS ciphers. Check cipher list "{listener.ciphers}": {error.args[-1]}'
            raise OSError(0, text) from None
    try:
        context.load_cert_chain(certfile, keyfile, password=_no_password)
    except OSError as error:            # includes ssl.SSLError
        text = f'Unable to load server certificate "{certfile}" and key "{keyfile}": '
        raise OSError(error.errno or 0, f"{text}{error.strerror or error}. Check certfile and keyfile.") from None
    if listener.require_certificate:
        _require_certificate(context, listener)
    return context


def _require_certificate(context: "ssl.SSLContext", listener: "Listener") -> None:
    import ssl

    context.verify_mode = ssl.CERT_REQUIRED
    if not (listener.cafile or listener.capath):
        raise OSError(0, f"Listener {listener.where}: require_certificate needs cafile or capath: the authorities that "
                         "sign the certificates of clients.")
    try:
        context.load_verify_locations(listener.cafile, listener.capath)
    except OSError as error:
        raise OSError(error.errno or 0, f'Unable to load CA certificates. Check cafile "{listener.cafile or ""}" and '
                                        f'capath "{listener.capath or ""}": {error.strerror or error}.') from None
    if listener.crlfile:
        try:
            context.load_verify_locations(listener.crlfile)
        except OSError as error:
            raise OSError(error.errno or 0, f'Unable to load certificate revocation file "{listener.crlfile}". Check '
                                            f"crlfile: {error.strerror or error}.") from None
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if listener.disable_client_cert_date_checks:
        context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)


def _no_password() -> str:
    return ""                           # without this, OpenSSL would prompt at the terminal and wait
