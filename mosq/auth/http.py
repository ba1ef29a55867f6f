"""A plugin that sends auth requests to a web service. Needs urllib3, the extra `http` (docs/install.md).

  plugin python:mosq.auth.http:Http               HttpAcl: also for topic access
  plugin_opt_auth_url https://auth.example/mqtt   POST username, password, clientid, address, and common_name of a
                                                  certificate
  plugin_opt_acl_url https://auth.example/acl     HttpAcl: POST username, clientid, topic, acc (1 read, 2 write,
                                                  4 subscribe)
  plugin_opt_format form                          form or json
  plugin_opt_timeout 5                            seconds for an answer
  plugin_opt_connections 8                        open connections, and requests at a time
  plugin_opt_cafile /etc/ssl/own.pem              trusted authorities for https; default: the system's list
  plugin_opt_bearer TOKEN                         sent as `Authorization: Bearer TOKEN`

The status of the answer decides: 200 to 299 allow, 400 to 499 deny. With `plugin_opt_defer_204 true`, status 204 lets
the next plugin or the password_file decide. Any other status, or no answer in time, is a failure: refused and logged.
Redirections are not followed; certificates are always checked; the body of the answer is not used.
"""

import json
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3

from mosq.auth.plugin import ALLOW, DEFER, DENY, UNSUBSCRIBE, AclRequest, ConnectRequest, Plugin, Verdict

OPTIONS = ("auth_url", "acl_url", "format", "timeout", "connections", "cafile", "bearer", "defer_204")
TYPES = {"form": "application/x-www-form-urlencoded", "json": "application/json"}
TIMEOUT_MAX_S = 60
CONNECTIONS_MAX = 64
ANSWER_BYTES_MAX = 1 << 16


class HttpError(Exception):
    """The service gave no valid answer."""


class Http(Plugin):
    """Sends logins to the service."""
    concurrent = True

    def __init__(self, options: dict[str, str]) -> None:
        unknown = next((key for key in options if key not in OPTIONS), None)
        if unknown is not None:
            raise ValueError(f"unknown option '{unknown[:40]}'; expected one of {', '.join(OPTIONS)}")
        self._auth_url = _url(options, "auth_url")
        self._format = options.get("format", "form")
        if self._format not in TYPES:
            raise ValueError("format is neither form nor json")
        if options.get("defer_204", "false") not in ("true", "false"):
            raise ValueError("defer_204 is neither true nor false")
        self._defers = options.get("defer_204") == "true"
        self.threads = _number(options, "connections", 8, CONNECTIONS_MAX)
        self._headers = {"Content-Type": TYPES[self._format], "User-Agent": "mosq"}
        if options.get("bearer"):
            self._headers["Authorization"] = f"Bearer {options['bearer']}"
        timeout_s = _number(options, "timeout", 5, TIMEOUT_MAX_S)
        self._pool = urllib3.PoolManager(num_pools=4, maxsize=self.threads, block=True, retries=False,
                                         timeout=urllib3.Timeout(total=timeout_s), ca_certs=_cafile(options))

    def authenticate(self, request: ConnectRequest) -> Verdict:
        try:
            password = (request.password or b"").decode()
        except UnicodeDecodeError:
            return DENY
        fields = {"username": request.username or "", "password": password, "clientid": request.client_id,
                  "address": request.address}
        if request.identity and request.identity.get("common_name"):
            fields["common_name"] = request.identity["common_name"]
        return self._request(self._auth_url, fields)

    def _request(self, url: str, fields: dict[str, Any]) -> Verdict:
        """Send a request; return the verdict of the status. Raises HttpError."""
        body = urlencode(fields) if self._format == "form" else json.dumps(fields)
        try:
            try:
                answer = self._post(url, body.encode())
            except urllib3.exceptions.ProtocolError:
                # the service may have closed a kept connection: try once more with another one
                answer = self._post(url, body.encode())
        except urllib3.exceptions.HTTPError as error:
            raise HttpError(type(error).__name__) from None
        status = answer.status
        try:
            answer.read(ANSWER_BYTES_MAX, decode_content=False)
            whole = answer.length_remaining == 0
        except urllib3.exceptions.HTTPError:
            whole = False
        if not whole:
            answer.close()              # the rest of the answer is not read
        answer.release_conn()
        if status == 204 and self._defers:
            return DEFER
        if 200 <= status <= 299:
            return ALLOW
        if 400 <= status <= 499:
            return DENY
        raise HttpError(f"status {status}")

    def _post(self, url: str, body: bytes) -> urllib3.BaseHTTPResponse:
        return self._pool.request("POST", url, body=body, headers=self._headers, redirect=False, preload_content=False)

    def close(self) -> None:
        self._pool.clear()


class HttpAcl(Http):
    """Also sends topic access requests to the service."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._acl_url = _url(options, "acl_url")

    def authorize(self, request: AclRequest) -> Verdict:
        if request.access == UNSUBSCRIBE:
            return ALLOW
        return self._request(self._acl_url, {"username": request.username or "", "clientid": request.client_id,
                                             "topic": request.topic, "acc": request.access})


def _url(options: dict[str, str], name: str) -> str:
    url = options.get(name, "")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good:
        raise ValueError(f"expected plugin_opt_{name}, an address with http:// or https://")
    return url


def _number(options: dict[str, str], name: str, default: int, most: int) -> int:
    text = options.get(name, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 4 or not 1 <= int(text) <= most:
        raise ValueError(f"{name} is no number from 1 to {most}")
    return int(text)


def _cafile(options: dict[str, str]) -> str | None:
    path = options.get("cafile")
    if path is None:
        return None
    import ssl

    try:
        ssl.create_default_context(cafile=path)
    except (OSError, ssl.SSLError):
        raise ValueError(f"cafile {path} cannot be read as certificates in PEM") from None
    return path
