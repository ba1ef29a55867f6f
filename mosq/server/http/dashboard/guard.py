"""Checks that a request comes from the dashboard's own page: browsers send the password of Basic authentication with
every request, also if another site caused it.

  reading    Sec-Fetch-Site, if the browser sends it, names this site; without a user name, the host is no other name
  changing   the same, and: Origin is this host, the body is JSON, the header x-mosq-token has the token of the user

A page of another site can read no answer, because no answer allows other origins, so it cannot learn the token; and it
cannot send that header without a question to the broker (a preflight), which the broker refuses.
"""

import hashlib
import hmac
import ipaddress
import os
from urllib.parse import urlsplit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from starlette.requests import Request

TOKEN_HEADER = "x-mosq-token"


class Guard:
    """The tokens of one start of the server."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def token(self, user: str | None) -> str:
        """Return the token of a user."""
        named = b"-" if user is None else b"+" + user.encode()
        return hmac.new(self._key, named, hashlib.sha256).hexdigest()

    def reading_refused(self, request: "Request", user: str | None) -> str:
        """Return why a request that reads is refused; "": it is not."""
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return "The request comes from another site."
        if user is None and not _is_plain(request.headers.get("host", "")):
            # a name of another site that leads to this machine would make that site the page's own origin
            return "Without a user name, the URL needs an address or localhost, not another name."
        return ""

    def changing_refused(self, request: "Request", user: str | None) -> tuple[int, str]:
        """Return the status and the reason with which a request that changes something is refused; (0, ""): it is
        not."""
        host = request.headers.get("host", "")
        origin = request.headers.get("origin")
        if request.headers.get("sec-fetch-site", "same-origin") != "same-origin":
            return 403, "The request comes from another site."
        if origin is None or not _same(origin, host):
            return 403, "The request comes from another site."
        if user is None and not _is_plain(host):
            return 403, "Without a user name, the URL needs an address or localhost, not another name."
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return 415, "The body must be application/json."
        given = request.headers.get(TOKEN_HEADER, "").encode()
        if not hmac.compare_digest(given, self.token(user).encode()):
            return 403, "token"         # the page asks for a new one, and tries again
        return 0, ""


def _same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower() != ""


def _is_plain(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ipaddress.ip_address(name))
    except ValueError:
        return False
