"""The handshake of a connection between two workers of a cluster, without I/O: bytes in, bytes out.

    dialler   HELLO      versions, kind, cluster, both slots, token of its run, nonce
    acceptor  CHALLENGE  the version, its slot, token of its run, nonce
    dialler   PROOF      HMAC-SHA256 over both messages
    acceptor  ACCEPT     HMAC-SHA256 over them, with another label

After ACCEPT the connection carries a link (ADR 23), questions of the dialler (questions/asker.py, since version 2), or
echoes: bytes that the acceptor sends back. Echoes also give both sides a key for the clients that the dialler relays to
the acceptor (cext/net/ticket.pyx): HMAC-SHA256 over both messages with a label of its own. No other pair of processes,
and no other connection, has the same key.
The acceptor answers with REFUSE and a reason otherwise. Both sides prove that they know the secret, for these slots,
these runs and these nonces: an answer of another connection, or of the other direction, is no proof. The dialler proves
it first, so a stranger that connects gets nothing from which it could guess the secret. No clock is used.

The handshake neither encrypts nor signs what follows: the network between the nodes must be trusted, or be a tunnel.
A later version with TLS makes this handshake inside of TLS.

A message is a head of 8 bytes (mark, type, length) and at most LIMIT bytes. A reader ignores bytes behind the fields
that it knows, but proves them, so a later version may add fields. Nothing beyond the message that is due is read: the
bytes behind ACCEPT belong to the engine.
"""

import hashlib
import hmac
import struct

from mosq.cluster.secret import SECRET_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

VERSION_MIN, VERSION_MAX = 1, 2
LINK, ECHO, QUESTIONS = 1, 2, 3     # kinds of a connection
QUESTIONS_FROM = 2              # the first version that knows the last kind
LIMIT = 512                     # bytes of a message behind its head
NONCE_BYTES = CLUSTER_BYTES = 16
PROOF_BYTES = 32
KEY_BYTES = 16

MARK = b"mqwl"
HELLO, CHALLENGE, PROOF, ACCEPT, REFUSE = 1, 2, 3, 4, 5
HEAD = struct.Struct(">4sBxH")
HELLO_FIELDS = struct.Struct(">BBBxHHQ16s16s")          # versions, kind, from and to, token, nonce, cluster
CHALLENGE_FIELDS = struct.Struct(">BxHQ16s")            # version, slot, token, nonce
REFUSE_FIELDS = struct.Struct(">BBB")                   # reason, and the versions of the acceptor
LABELS = (b"mosq wire: dialler", b"mosq wire: acceptor")
KEY_LABEL = b"mosq wire: tickets of the dialler"

# reasons
GARBAGE, VERSION, CLUSTER, SLOT, SECRET, OLD, BUSY, CLOSED, LATE = 1, 2, 3, 4, 5, 6, 7, 8, 9
ADVICE = {
    GARBAGE: "the other side does not speak the protocol of workers. Check that the address is that of a "
             "cluster_listener, and that no other program connects there",
    VERSION: "the versions of mosq have no protocol in common. Upgrade the older node first to a version between them",
    CLUSTER: "the other node belongs to another cluster. Check the addresses of both clusters, and their prefixes",
    SLOT: "the other process has another worker number. The table of workers will correct it; if this line returns, "
          "check that no two nodes have the same address",
    SECRET: "the secrets differ. Give all nodes the same one",
    OLD: "the connection is from, or to, a process that another one has replaced. Nothing must be done unless this "
         "line returns",
    BUSY: "there are too many connections that have not proved the secret. It is tried again; if this line returns, "
          "check which hosts reach the cluster_listener",
    CLOSED: "the connection ended before both sides had proved the secret",
    LATE: "the other side did not answer in time",
}


class WireError(Exception):
    """The handshake failed. `reason`: a key of ADVICE; `reported`: the other side has sent it, which proves nothing."""

    def __init__(self, reason: int, reported: bool = False, detail: str = "") -> None:
        super().__init__(f"{ADVICE.get(reason, 'for a reason that this version does not know')}{detail}")
        self.reason, self.reported = reason, reported


class Own:
    """The identity of this side. `cluster`: the id of the cluster; `token`: rises with each process of the slot;
    `versions`: of the handshake, the lowest and the highest."""

    def __init__(self, cluster: str, secret: bytes, slot: int, token: int,      # parameters: of one process
                 versions: tuple[int, int] = (VERSION_MIN, VERSION_MAX)) -> None:
        if len(secret) < SECRET_BYTES:
            raise ValueError(f"the secret has {len(secret)} bytes; it needs at least {SECRET_BYTES}")
        self.cluster = hashlib.sha256(cluster.encode("utf-8", "surrogateescape")).digest()[:CLUSTER_BYTES]
        self.secret, self.slot, self.token, self.versions = secret, slot, token, versions

    def proof(self, label: bytes, transcript: bytes) -> bytes:
        """Return the proof of one side for both messages."""
        return hmac.digest(self.secret, label + b"\0" + transcript, "sha256")


class _Side:
    """The common part of both sides. `wants`: the bytes that may be read now; 0: the handshake is over."""

    def __init__(self, own: Own, nonce: bytes) -> None:
        assert len(nonce) == NONCE_BYTES
        self.own, self.nonce = own, nonce
        self.wants = HEAD.size
        self.version = self.kind = self.slot = self.token = 0       # of the connection, and of the other side
        self._transcript = b""
        self._head = b""
        self._buffer = bytearray()

    def take(self, data: bytes) -> bytes:
        """Take up to `wants` bytes; return what must be sent. Raises WireError: after that, the connection ends."""
        assert len(data) <= self.wants
        self._buffer += data
        self.wants -= len(data)
        if self.wants:
            return b""
        got, self._buffer = bytes(self._buffer), bytearray()
        if not self._head:
            mark, _, length = HEAD.unpack(got)
            if mark != MARK or length > LIMIT:
                raise WireError(GARBAGE)
            self._head, self.wants = got, length
            if length:
                return b""
            got = b""
        head, self._head = self._head, b""
        self.wants = HEAD.size
        return self._message(head[len(MARK)], got, head + got)

    def key(self) -> bytes:
        """Return the key of the tickets of the side that has dialled. The handshake is over."""
        return self.own.proof(KEY_LABEL, self._transcript)[:KEY_BYTES]

    def _message(self, kind: int, body: bytes, whole: bytes) -> bytes:
        raise NotImplementedError

    def _check(self, label: bytes, body: bytes) -> None:
        if len(body) < PROOF_BYTES:
            raise WireError(GARBAGE)
        if not hmac.compare_digest(body[:PROOF_BYTES], self.own.proof(label, self._transcript)):
            raise WireError(SECRET)


class Dialling(_Side):
    """The side that connects. `least`: the lowest token that the other worker may have."""

    def __init__(self, own: Own, nonce: bytes, kind: int, slot: int, least: int = 0) -> None:
        super().__init__(own, nonce)
        self.kind, self.slot, self._least, self._versions = kind, slot, least, own.versions
        self._due = CHALLENGE

    def begin(self) -> bytes:
        """Return the first message."""
        self._transcript = message(HELLO, HELLO_FIELDS.pack(*self._versions, self.kind, self.own.slot, self.slot,
                                                           self.own.token, self.nonce, self.own.cluster))
        return self._transcript

    def _message(self, kind: int, body: bytes, whole: bytes) -> bytes:
        if kind == REFUSE and len(body) >= REFUSE_FIELDS.size:
            reason, lowest, highest = REFUSE_FIELDS.unpack_from(body)
            raise WireError(reason, reported=True,
                            detail=f" (here {self._versions}, there {lowest, highest})" if reason == VERSION else "")
        if kind != self._due:
            raise WireError(GARBAGE)
        if kind == ACCEPT:
            self._check(LABELS[1], body)
            self.wants = 0
            return b""
        if len(body) < CHALLENGE_FIELDS.size:
            raise WireError(GARBAGE)
        self.version, slot, self.token, _ = CHALLENGE_FIELDS.unpack_from(body)
        if not self._versions[0] <= self.version <= self._versions[1]:
            raise WireError(GARBAGE)
        if slot != self.slot:
            raise WireError(SLOT)
        if self.token < self._least:
            raise WireError(OLD)
        self._transcript += whole
        self._due = ACCEPT
        return message(PROOF, self.own.proof(LABELS[0], self._transcript))


class Accepting(_Side):
    """The side that is connected to. `least(slot)`: the lowest token that this worker may have; None: it is none of
    this cluster. After a WireError, `refusal` is sent before the connection ends."""

    def __init__(self, own: Own, nonce: bytes, least: "Callable[[int], int | None]") -> None:
        super().__init__(own, nonce)
        self._least, self._versions = least, own.versions
        self._due = HELLO

    def refusal(self, error: WireError) -> bytes:
        """Return the message that reports an error to the other side; nothing to one that sends garbage."""
        return b"" if error.reason == GARBAGE else refusal(error.reason, self._versions)

    def _message(self, kind: int, body: bytes, whole: bytes) -> bytes:
        if kind != self._due:
            raise WireError(GARBAGE)
        if kind == PROOF:
            self._check(LABELS[0], body)
            self._judge()               # a newer process may have come while this one proved itself
            self.wants = 0
            return message(ACCEPT, self.own.proof(LABELS[1], self._transcript))
        if len(body) < HELLO_FIELDS.size:
            raise WireError(GARBAGE)
        lowest, highest, self.kind, self.slot, to, self.token, _, cluster = HELLO_FIELDS.unpack_from(body)
        if cluster != self.own.cluster:
            raise WireError(CLUSTER)
        self.version = min(highest, self._versions[1])
        if lowest > highest or self.version < max(lowest, self._versions[0]):
            raise WireError(VERSION, detail=f" (here {self._versions}, there {lowest, highest})")
        if self.kind not in (LINK, ECHO) and (self.kind != QUESTIONS or self.version < QUESTIONS_FROM):
            raise WireError(GARBAGE)
        if to != self.own.slot or self.slot == self.own.slot:
            raise WireError(SLOT)
        self._judge()
        answer = message(CHALLENGE, CHALLENGE_FIELDS.pack(self.version, self.own.slot, self.own.token, self.nonce))
        self._transcript = whole + answer
        self._due = PROOF
        return answer

    def _judge(self) -> None:
        least = self._least(self.slot)
        if least is None:
            raise WireError(SLOT)
        if self.token < least:
            raise WireError(OLD)


def message(kind: int, body: bytes) -> bytes:
    """Return a message with its head."""
    return HEAD.pack(MARK, kind, len(body)) + body


def refusal(reason: int, versions: tuple[int, int] = (VERSION_MIN, VERSION_MAX)) -> bytes:
    """Return the message that refuses a connection."""
    return message(REFUSE, REFUSE_FIELDS.pack(reason, *versions))
