"""A plugin that accepts JSON Web Tokens [RFC 7519] as passwords. Needs PyJWT: `pip install 'mosq[jwt]'`.

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

JwtAcl keeps the rights of connected clients, also over a reload. The table is bounded: a client whose rights were
removed from it is denied, and is never left to the next plugin or the acl_file.
"""

import os
import threading
from hashlib import blake2b
from typing import Any

import jwt
from cachetools import LRUCache

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
from mosq.auth.runner import filled, matches

OPTIONS = ("algorithms", "public_key_file", "secret_file", "secret", "audience", "issuer", "username_claim", "leeway")
SECRET_BYTES_MIN = {"HS256": 32, "HS384": 48, "HS512": 64}      # [RFC 7518 3.2]
PUBLIC = frozenset(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "ES256K", "EdDSA"))
RSA_BITS_MIN = 2048
LEEWAY_MAX_S = 3600
CLIENTS_MAX = 1_000_000                 # connected clients whose rights are remembered
OTHERS_MAX = 100_000                    # the same, for clients that are not connected yet or no longer, and for HTTP
REMOVED_BITS = 1 << 26                  # 8 MiB, and nothing before the first removal
FILTERS_MAX = 1000                      # filters of one token that are used

Client = tuple[str, str]                # client id, user name


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


class Removed:
    """Remembers clients whose rights were removed: a bit of a keyed hash each. It never forgets one; `in` may be true
    for another client too."""

    def __init__(self) -> None:
        self._bits = bytearray()        # empty until the first client
        self._key = os.urandom(16)

    def add(self, client: Client) -> None:
        self._bits = self._bits or bytearray(REMOVED_BITS // 8)
        place, bit = self._place(client)
        self._bits[place] |= bit

    def __contains__(self, client: Client) -> bool:
        place, bit = self._place(client)
        return bool(self._bits) and bool(self._bits[place] & bit)

    def _place(self, client: Client) -> tuple[int, int]:
        name = b"%d:%b%b" % (len(client[0].encode()), client[0].encode(), client[1].encode())
        n = int.from_bytes(blake2b(name, digest_size=8, key=self._key).digest()) % REMOVED_BITS
        return n >> 3, 1 << (n & 7)


class Known(LRUCache[Client, "Rights"]):
    """The rights of some clients. The one that was used least recently makes room."""

    def __init__(self, most: int, removed: Removed) -> None:
        super().__init__(most)
        self._removed = removed

    def popitem(self) -> "tuple[Client, Rights]":
        client, rights = super().popitem()
        if rights.connections or not rights.was_connected:      # otherwise it is known to be disconnected
            self._removed.add(client)
        return client, rights


class Rights:
    """The filters of a client's token, and the number of its open connections: two during a take-over."""

    __slots__ = ("filters", "connections", "was_connected")

    def __init__(self, filters: dict[str, list[tuple[str, ...]]]) -> None:
        self.filters, self.connections, self.was_connected = filters, 0, False


class JwtAcl(Jwt):
    """Also grants the topic rights in the token's claims."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._lock = threading.Lock()
        self._removed = Removed()
        self._connected = Known(CLIENTS_MAX, self._removed)
        self._others = Known(OTHERS_MAX, self._removed)

    def reload(self, options: dict[str, str]) -> None:
        """Continue with the rights of connected clients. Options that are no longer valid do not come into force."""
        try:
            super().__init__(options)
        except ValueError as error:
            self.broker.log(f"The options that were read again are not valid, so the old ones stay in force: {error}")

    def let_in(self, request: ConnectRequest, claims: dict[str, Any]) -> None:
        user = request.username or ""
        filters = {name: _filters(claims.get(name), user, request.client_id) for name in ("publ", "subs")}
        client = request.client_id, user
        with self._lock:
            known = self._known(client)
            if known is None:
                self._others[client] = Rights(filters)
            else:
                known.filters = filters

    def connected(self, event: ClientEvent) -> None:
        client = event.client_id, event.username or ""
        with self._lock:
            known = self._others.pop(client, None) or self._connected.get(client)
            if known is not None:
                known.connections += 1
                known.was_connected = True
                self._connected[client] = known

    def disconnected(self, event: ClientEvent) -> None:
        client = event.client_id, event.username or ""
        with self._lock:
            known = self._connected.get(client)
            if known is not None:
                known.connections -= 1
                if not known.connections:
                    self._others[client] = self._connected.pop(client)

    def _known(self, client: Client) -> "Rights | None":
        return self._connected.get(client) or self._others.get(client)

    def authorize(self, request: AclRequest) -> Verdict:
        if request.access == UNSUBSCRIBE:
            return ALLOW
        client = request.client_id, request.username or ""
        with self._lock:
            known = self._known(client)
            if known is None:           # another plugin accepted this client, or its rights were removed
                return DENY if client in self._removed else DEFER
            filters = known.filters["publ" if request.access == WRITE else "subs"]
        allowed = any(covers(filter, request.topic) for filter in filters)
        return ALLOW if allowed else DENY


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


def _filters(claim: object, user: str, client_id: str) -> list[tuple[str, ...]]:
    if not isinstance(claim, list):
        return []
    stands_for = {"%u": user, "%c": client_id}
    if not {"+", "#", "/"}.isdisjoint(user + client_id):
        stands_for = {}                 # they could act as a part of the filter, so they are not replaced
    return [levels for filter in claim[:FILTERS_MAX] if isinstance(filter, str)
            and (levels := filled(filter, stands_for)) is not None]


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
        raise ValueError("public keys need a package that is not installed: `pip install cryptography`"
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
