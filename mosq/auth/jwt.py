"""A plugin that accepts JSON Web Tokens [RFC 7519] as passwords. Needs PyJWT, the extra `jwt` (docs/install.md).

  plugin python:mosq.auth.jwt:Jwt                 JwtAcl: the token also grants rights on topics
  plugin_opt_algorithms ES256,RS256               required; HS256, HS384, HS512 with a secret, others with a key
  plugin_opt_public_key_file /etc/mosq/jwt.pem    or plugin_opt_secret_file FILE, or plugin_opt_secret SECRET
  plugin_opt_audience mqtt                        optional: value that `aud` must contain
  plugin_opt_issuer https://login.example         optional: value that `iss` must have
  plugin_opt_username_claim sub                   claim that must equal the user name
  plugin_opt_leeway 0                             seconds by which clocks may differ

A token must have `exp`; `nbf` and `iat` are checked if present. A password without the form of a token is left to the
next plugin or the password_file; an invalid token is refused. JwtAcl: the claims `publ` and `subs` are lists of
filters. The client may publish to the first, and subscribe to and read the second; a missing list allows nothing. `%u`
and `%c` in the filters, as whole levels, are replaced by user name and client id. A name that begins with `$` in the
place of the first level gives no right.

A token that expires while its client is connected does not end the connection.

JwtAcl keeps the rights of connected clients, also over a reload, and those of disconnected clients for their wills and
sessions. The tables are bounded in bytes. The user with most clients makes room. From then on a client of this user
whose rights are not known is denied, and is never left to the next plugin or the acl_file.
"""

import os
import threading
from hashlib import blake2b
from typing import Any

import jwt

from mosq.auth.plugin import (
    ALLOW,
    DEFER,
    DENY,
    UNSUBSCRIBE,
    WRITE,
    AclRequest,
    ClientEvent,
    ConnectRequest,
    Plugin,
    Verdict,
)
from mosq.auth.rights import DIGEST_BYTES, Claims, Client, Known, Removed, Rights
from mosq.auth.runner import matches

OPTIONS = ("algorithms", "public_key_file", "secret_file", "secret", "audience", "issuer", "username_claim", "leeway")
SECRET_BYTES_MIN = {"HS256": 32, "HS384": 48, "HS512": 64}      # [RFC 7518 3.2]
PUBLIC = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "ES256K", "EdDSA"))
RSA_BITS_MIN = 2048
LEEWAY_MAX_S = 3600
CONNECTED_BYTES_MAX = 1 << 30           # rights of connected clients
OTHERS_BYTES_MAX = 64 << 20             # the same, for clients that are not connected yet or no longer, and for HTTP
FILTERS_MAX = 1000                      # filters of one token that are used


class Jwt(Plugin):
    """Checks the token of a login."""
    def __init__(self, options: dict[str, str]) -> None:
        unknown = next((key for key in options if key not in OPTIONS), None)
        if unknown is not None:
            raise ValueError(f"unknown option '{unknown[:40]}'; expected one of {', '.join(OPTIONS)}")
        self._algorithms = [word.strip() for word in options.get("algorithms", "").split(",") if word.strip()]
        self._key = _key(options, self._algorithms)
        self._audience, self._issuer = options.get("audience"), options.get("issuer")
        self._claim = options.get("username_claim", "sub")
        leeway = options.get("leeway", "0")
        if not leeway.isascii() or not leeway.isdigit() or len(leeway) > 6 or int(leeway) > LEEWAY_MAX_S:
            raise ValueError(f"leeway is no number of seconds from 0 to {LEEWAY_MAX_S}")
        self._leeway_s = int(leeway)

    def authenticate(self, request: ConnectRequest) -> Verdict:
        if request.username is None or request.password is None or request.password.count(b".") != 2:
            return DEFER
        claims = self._claims(request.password)
        if claims is None or claims.get(self._claim) != request.username:
            return DENY
        self.let_in(request, claims)
        return ALLOW

    def let_in(self, request: ConnectRequest, claims: dict[str, Any]) -> None:
        """Handle an accepted token; subclasses use its claims."""

    def _claims(self, token: bytes) -> dict[str, Any] | None:
        try:
            return jwt.decode(token, self._key, algorithms=self._algorithms, audience=self._audience,
                              issuer=self._issuer, leeway=self._leeway_s,
                              options={"require": ["exp"], "verify_aud": self._audience is not None})
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None                 # the client does not learn the reason


class JwtAcl(Jwt):
    """Also grants the topic rights in the token's claims."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._lock = threading.Lock()
        self._hash_key = os.urandom(DIGEST_BYTES)
        self._removed = Removed()
        self._connected = Known(CONNECTED_BYTES_MAX, self._removed)
        self._others = Known(OTHERS_BYTES_MAX, self._removed)

    def reload(self, options: dict[str, str]) -> None:
        """Continue with the rights of connected clients. Options that are no longer valid do not come into force."""
        try:
            super().__init__(options)
        except ValueError as error:
            self.broker.log(f"The options that were read again are not valid, so the old ones stay in force: {error}")

    def let_in(self, request: ConnectRequest, claims: dict[str, Any]) -> None:
        filters = Claims(_filters(claims.get("publ")), _filters(claims.get("subs")))
        client = self._client(request)
        with self._lock:
            for known in (self._connected, self._others):
                rights = known.get(client)
                if rights is not None:
                    known.change(rights, filters)
                    return
            self._others.add(client, Rights(filters))

    def connected(self, event: ClientEvent) -> None:
        client = self._client(event)
        with self._lock:
            rights = self._connected.get(client)
            if rights is None and (rights := self._others.pop(client)) is not None:
                self._connected.add(client, rights)
            if rights is not None:
                rights.connections += 1

    def disconnected(self, event: ClientEvent) -> None:
        """Keep the rights in the smaller table: a will and messages for an offline session still need them."""
        client = self._client(event)
        with self._lock:
            rights = self._connected.get(client)
            if rights is not None:
                rights.connections -= 1
                if not rights.connections:
                    self._connected.pop(client)
                    self._others.add(client, rights)

    def authorize(self, request: AclRequest) -> Verdict:
        if request.access == UNSUBSCRIBE:
            return ALLOW
        client = self._client(request)
        with self._lock:
            rights = self._connected.get(client) or self._others.get(client)
            if rights is None:          # another plugin accepted this client, or its rights were removed
                return DENY if client.user in self._removed else DEFER
            claims = rights.claims
        return ALLOW if _allows(claims.publ if request.access == WRITE else claims.subs, request) else DENY

    def _client(self, request: ConnectRequest | ClientEvent | AclRequest) -> Client:
        user = self._digest(b"", request.username or "")
        return Client(user, self._digest(user, request.client_id))

    def _digest(self, before: bytes, text: str) -> bytes:
        data = before + text.encode(errors="surrogatepass")
        return blake2b(data, digest_size=DIGEST_BYTES, key=self._hash_key).digest()


def covers(filter: tuple[str, ...], topic: str) -> bool:
    """Return whether `filter` matches all topics that `topic`, a topic or a filter, can stand for."""
    if topic.startswith("$share/"):
        _, _, topic = topic.removeprefix("$share/").partition("/")
    levels = topic.split("/")
    if "+" not in levels and levels[-1] != "#":
        return matches(filter, topic)
    if topic.startswith("$") and filter[0] in ("+", "#"):
        return False
    for i, level in enumerate(filter):
        if level == "#":
            return True
        if i == len(levels) or levels[i] == "#" or (level not in ("+", levels[i])):
            return False
    return len(filter) == len(levels)


def _filters(claim: object) -> bytes:
    if not isinstance(claim, list):
        return b""
    return b"\0".join(filter.encode(errors="surrogatepass") for filter in claim[:FILTERS_MAX]
                      if isinstance(filter, str) and filter and "\0" not in filter)


def _allows(filters: bytes, request: AclRequest) -> bool:
    names = {"%u": request.username or "", "%c": request.client_id}
    if not {"+", "#", "/"}.isdisjoint("".join(names.values())):
        names = {}                      # they could act as a part of the filter, so they are not replaced
    texts = filters.decode(errors="surrogatepass").split("\0") if filters else []
    return any((levels := _levels(text, names)) is not None and covers(levels, request.topic) for text in texts)


def _levels(filter: str, names: dict[str, str]) -> tuple[str, ...] | None:
    """Return the levels of a filter, with `%u` and `%c` replaced. None: a name begins with `$` in the place of the
    first level, where it must not give rights to `$` topics. The text is not joined: it could have many names."""
    levels = tuple(names.get(level, level) for level in filter.split("/"))
    return levels if levels[0].startswith("$") == filter.startswith("$") else None


def _key(options: dict[str, str], algorithms: list[str]) -> Any:
    given = [name for name in ("public_key_file", "secret_file", "secret") if options.get(name)]
    if len(given) != 1:
        raise ValueError("expected one of plugin_opt_public_key_file, plugin_opt_secret_file and plugin_opt_secret")
    known = PUBLIC if given[0] == "public_key_file" else SECRET_BYTES_MIN.keys()
    if not algorithms or not known >= set(algorithms):
        raise ValueError(f"expected plugin_opt_algorithms, a list of {', '.join(sorted(known))}")
    if given[0] == "public_key_file":
        return _public_key(options["public_key_file"], algorithms)
    secret = options["secret"].encode() if given[0] == "secret" else _read(options["secret_file"]).rstrip(b"\r\n")
    needed = max(SECRET_BYTES_MIN[name] for name in algorithms)
    if len(secret) < needed:
        raise ValueError(f"the secret has {len(secret)} bytes; expected at least {needed} for {', '.join(algorithms)}")
    return secret


def _public_key(path: str, algorithms: list[str]) -> Any:
    try:
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        from mosq.tools.extras import install_advice

        raise ValueError(f"public keys need the package cryptography, which is not installed: {install_advice('jwt')}"
                         ) from None
    try:
        key = load_pem_public_key(_read(path))
        for name in algorithms:
            jwt.get_algorithm_by_name(name).prepare_key(key)
    except Exception as error:          # the library raises various errors for a wrong file
        if isinstance(error, ValueError) and str(error).startswith("unable to read"):
            raise
        raise ValueError(f"{path} is no public key in PEM for {', '.join(algorithms)}") from None
    if getattr(key, "key_size", RSA_BITS_MIN) < RSA_BITS_MIN and any(name[:2] in ("RS", "PS") for name in algorithms):
        raise ValueError(f"{path} has fewer than {RSA_BITS_MIN} bits")
    return key


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(1 << 20)
    except OSError as error:
        raise ValueError(f"unable to read {path}: {error.strerror}") from None
