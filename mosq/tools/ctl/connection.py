"""The address of the broker and the login, combined from the command line, the options file and the shell. Knows TLS
files and addresses, not MQTT."""

import importlib
import sys
from urllib.parse import unquote, urlsplit

from mosq.tools.extras import install_advice

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from typing import Any, Literal

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
LOOPBACK = ("localhost", "127.0.0.1", "::1")
TLS_VERSIONS = {"tlsv1.2": "TLSv1_2", "tlsv1.3": "TLSv1_3"}
LEVELS = {"31": 3, "mqttv31": 3, "311": 4, "mqttv311": 4, "5": 5, "mqttv5": 5}


class ConnectionProblemError(Exception):
    """The connection is impossible; the text says why and what to do."""


class Connection:
    """The parameters of a connection. The shell changes some of them."""

    def __init__(self) -> None:
        self.host = "localhost"
        self.port: int | None = None        # None: the usual port
        self.transport: Literal["tcp", "websockets", "unix"] = "tcp"
        self.path = "/mqtt"                 # URL path of WebSockets
        self.bind = ""
        self.client_id: str | None = None
        self.username: str | None = None
        self.password: str | None = None    # None: the user is prompted for it
        self.level = 5
        self.qos = 1
        self.tls = False                    # requested by a URL or by --tls-use-os-certs
        self.tls_files: dict[str, str] = {}     # cafile, capath, certfile, keyfile
        self.insecure = False
        self.tls_version: str | None = None
        self.ciphers: str | None = None
        self.alpn: str | None = None
        self.psk: str | None = None
        self.psk_identity: str | None = None
        self.proxy: str | None = None
        self.debug = False

    @property
    def is_encrypted(self) -> bool:
        """Return whether the connection uses TLS."""
        return bool(self.tls or self.psk or "cafile" in self.tls_files or "capath" in self.tls_files
                    or (self.port == PORTS["mqtts"] and self.transport == "tcp"))

    @property
    def port_used(self) -> int:
        """Return the given port, or the usual one of the protocol."""
        if self.port is not None:
            return self.port
        scheme = "ws" if self.transport == "websockets" else "mqtt"
        return PORTS[f"{scheme}s" if self.is_encrypted else scheme]

    @property
    def url(self) -> str:
        """The URL for the prompt, without names and passwords."""
        if self.transport == "unix":
            return f"unix://{self.host}"
        scheme = ("ws" if self.transport == "websockets" else "mqtt") + ("s" if self.is_encrypted else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port_used}"

    @property
    def is_readable_by_others(self) -> bool:
        """Return whether passwords would cross a network without encryption."""
        return not self.is_encrypted and self.transport != "unix" and self.host not in LOOPBACK

    def take_url(self, url: str) -> None:
        """Apply `scheme://[user[:password]@]host[:port][/...]`. Raises ConnectionProblemError."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            # a '/' in a password makes the rest of it a part of the port, which the error would show
            if "@" in url:
                raise ConnectionProblemError("The URL is invalid: in a user name or password, write '/', '?', '#' "
                                             "and '@' as %2F, %3F, %23 and %40.") from None
            raise ConnectionProblemError(f"{url!r} is not a URL: {error}.") from None
        if parts.scheme not in PORTS:
            raise ConnectionProblemError(f"Unsupported URL scheme {parts.scheme!r}; expected "
                                         f"{', '.join(f'{scheme}://' for scheme in PORTS)}.")
        if not parts.hostname:
            raise ConnectionProblemError("The URL names no host; expected mqtt://HOST[:PORT].")
        self.host, self.port = parts.hostname, port
        self.transport = "websockets" if parts.scheme.startswith("ws") else "tcp"
        self.tls = parts.scheme.endswith("s") and parts.scheme != "ws"
        if self.transport == "websockets" and parts.path:
            self.path = parts.path
        if parts.username is not None:
            if not parts.username:
                raise ConnectionProblemError("Empty username in URL.")
            self.username = unquote(parts.username)
            self.password = None if parts.password is None else unquote(parts.password)

    def check(self) -> None:
        """Raise ConnectionProblemError for options that exclude each other."""
        if ("certfile" in self.tls_files) != ("keyfile" in self.tls_files):
            raise ConnectionProblemError("Both certfile and keyfile must be provided if one of them is set.")
        if self.psk is not None and ("cafile" in self.tls_files or "capath" in self.tls_files):
            raise ConnectionProblemError("Only one of --psk or --cafile/--capath may be used at once.")
        if self.psk is not None and not self.psk_identity:
            raise ConnectionProblemError("--psk-identity required if --psk used.")

    def tls_context(self) -> "ssl.SSLContext | None":
        """Return the TLS context; None without encryption. Raises ConnectionProblemError."""
        if not self.is_encrypted:
            return None
        import ssl

        try:
            return self._psk_context() if self.psk is not None else self._certificate_context()
        except (OSError, ssl.SSLError, ValueError) as error:
            reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
            raise ConnectionProblemError(f"Problem setting TLS options: {reason}.") from None

    def _certificate_context(self) -> "ssl.SSLContext":
        import ssl

        files = self.tls_files
        own = "cafile" in files or "capath" in files
        context = ssl.create_default_context(cafile=files.get("cafile"), capath=files.get("capath"))
        if own and self.tls:
            context.load_default_certs()
        if "certfile" in files:
            context.load_cert_chain(files["certfile"], files["keyfile"])
        self._tune(context)
        context.check_hostname = not self.insecure
        return context

    def _psk_context(self) -> "ssl.SSLContext":
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if sys.version_info < (3, 13):
            raise ConnectionProblemError("--psk needs Python 3.13 or newer here; expected --cafile, or --unix.")
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE     # both sides prove that they have the key
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("PSK")
        identity, key = self.psk_identity, bytes.fromhex(self.psk or "")
        context.set_psk_client_callback(lambda hint: (identity, key))
        self._tune(context)
        return context

    def _tune(self, context: "ssl.SSLContext") -> None:
        import ssl

        if self.tls_version is not None:
            if self.tls_version not in TLS_VERSIONS:
                raise ConnectionProblemError(f"Unknown TLS version {self.tls_version!r}; expected "
                                             f"{' or '.join(TLS_VERSIONS)}.")
            context.minimum_version = context.maximum_version = ssl.TLSVersion[TLS_VERSIONS[self.tls_version]]
        if self.ciphers is not None:
            context.set_ciphers(self.ciphers)
        if self.alpn is not None:
            context.set_alpn_protocols([self.alpn])

    def proxy_arguments(self) -> "dict[str, Any] | None":
        """Return paho's arguments for a SOCKS proxy; None without a proxy. Raises ConnectionProblemError."""
        if self.proxy is None:
            return None
        parts = urlsplit(self.proxy)
        if parts.scheme != "socks5h" or not parts.hostname:
            raise ConnectionProblemError(f"Unsupported proxy {self.proxy!r}; expected "
                                         "socks5h://[USER[:PASSWORD]@]HOST[:PORT].")
        try:
            socks = importlib.import_module("socks")
        except ImportError:
            raise ConnectionProblemError(f"--proxy needs PySocks, which is not installed: {install_advice('socks')}"
                                         ) from None
        return {"proxy_type": socks.SOCKS5, "proxy_addr": parts.hostname, "proxy_port": parts.port or 1080,
                "proxy_rdns": True, "proxy_username": parts.username and unquote(parts.username),
                "proxy_password": parts.password and unquote(parts.password)}
