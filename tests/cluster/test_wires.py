"""Test the handshake of connections between workers: bytes in, bytes out."""

from __future__ import annotations

import hashlib
import hmac
import random

import pytest

from mosq.cluster import wires
from mosq.cluster.wires import Accepting, Dialling, Own, WireError

SECRET = b"a secret of all nodes, long enough"
NONCES = bytes(range(16)), bytes(range(16, 32))
CLUSTER = hashlib.sha256(b"one").digest()[:16].hex()


def own(slot: int = 0, token: int = 7, cluster: str = "one", secret: bytes = SECRET, versions: tuple[int, int] = (1, 1)) -> Own:
    return Own(cluster, secret, slot, token, versions)


def dialling(kind: int = wires.LINK, to: int = 1, least: int = 0, **how: object) -> Dialling:
    return Dialling(own(**how), NONCES[0], kind, to, least)      # type: ignore[arg-type]


def accepting(least: int | None = 0, slot: int = 1, **how: object) -> Accepting:
    return Accepting(own(slot, **how), NONCES[1], lambda _: least)      # type: ignore[arg-type]


def feed(side: Dialling | Accepting, data: bytes) -> bytes:
    """Give all bytes to a side, as much as it wants each time; return what it sends."""
    sent = b""
    while data:
        n = side.wants
        assert n, "the side reads beyond its message"
        sent += side.take(data[:n])
        data = data[n:]
    return sent


def shake(one: Dialling, other: Accepting) -> None:
    """Run a handshake to its end."""
    data = one.begin()
    while one.wants or other.wants:
        data = feed(one, feed(other, data))


def proof(label: bytes, transcript: bytes) -> bytes:
    return hmac.new(SECRET, label + b"\0" + transcript, hashlib.sha256).digest()


def test_the_bytes_of_a_handshake() -> None:
    one, other = dialling(), accepting(token=9)
    hello = bytes.fromhex("6d71776c" "01" "00" "0030" "01" "01" "01" "00" "0000" "0001" "0000000000000007" + NONCES[0].hex() + CLUSTER)
    assert one.begin() == hello
    challenge = bytes.fromhex("6d71776c" "02" "00" "001c" "01" "00" "0001" "0000000000000009" + NONCES[1].hex())
    assert feed(other, hello) == challenge
    proved = bytes.fromhex("6d71776c" "03" "00" "0020") + proof(b"mosq wire: dialler", hello + challenge)
    assert feed(one, challenge) == proved
    accepted = bytes.fromhex("6d71776c" "04" "00" "0020") + proof(b"mosq wire: acceptor", hello + challenge)
    assert feed(other, proved) == accepted
    assert feed(one, accepted) == b""
    assert (one.wants, other.wants) == (0, 0)
    assert (other.kind, other.slot, other.token, one.token) == (wires.LINK, 0, 7, 9)


@pytest.mark.parametrize(("kind", "versions"), [(wires.LINK, (1, 1)), (wires.ECHO, (1, 1)), (wires.QUESTIONS, (1, 2))])
def test_both_sides_know_the_kind(kind: int, versions: tuple[int, int]) -> None:
    one, other = dialling(kind, versions=versions), accepting(versions=versions)
    shake(one, other)
    assert (one.kind, other.kind) == (kind, kind)


@pytest.mark.parametrize(("kind", "version"), [(wires.QUESTIONS, 1), (0, 2), (4, 2)])
def test_a_kind_that_the_version_does_not_have_is_refused(kind: int, version: int) -> None:
    one, other = dialling(kind, versions=(1, version)), accepting(versions=(1, 2))
    with pytest.raises(WireError) as error:
        feed(other, one.begin())
    assert error.value.reason == wires.GARBAGE


def test_both_sides_have_the_same_key_which_no_other_connection_has() -> None:
    keys = set()
    for one, other in ((dialling(), accepting()), (dialling(token=8), accepting()), (dialling(), accepting(token=8)), (dialling(kind=wires.ECHO), accepting()),
                       (dialling(slot=2), accepting()), (dialling(slot=1, to=0), accepting(slot=0))):
        shake(one, other)
        assert one.key() == other.key()
        keys.add(one.key())
    assert len(keys) == 6
    one, other = dialling(), Accepting(own(1), b"another nonce...", lambda _: 0)
    shake(one, other)
    assert one.key() not in keys
    assert one.key() == proof(b"mosq wire: tickets of the dialler", one._transcript)[:16]


@pytest.mark.parametrize(("here", "there", "version"), [((1, 1), (1, 3), 1), ((1, 3), (2, 5), 3), ((2, 4), (1, 2), 2)])
def test_versions_that_overlap_agree_on_the_highest(here: tuple[int, int], there: tuple[int, int], version: int) -> None:
    one, other = dialling(versions=here), accepting(versions=there)
    shake(one, other)
    assert (one.version, other.version) == (version, version)


@pytest.mark.parametrize(("one", "other", "reason"), [
    (dialling(versions=(1, 1)), accepting(versions=(2, 3)), wires.VERSION),
    (dialling(versions=(4, 5)), accepting(versions=(2, 3)), wires.VERSION),
    (dialling(cluster="other"), accepting(), wires.CLUSTER),
    (dialling(secret=b"the secret of others, long enough"), accepting(), wires.SECRET),
    (dialling(to=2), accepting(), wires.SLOT),
    (dialling(slot=1), accepting(), wires.SLOT),
    (dialling(), accepting(least=None), wires.SLOT),
    (dialling(token=7), accepting(least=8), wires.OLD),
])
def test_an_acceptor_refuses_and_both_know_why(one: Dialling, other: Accepting, reason: int) -> None:
    with pytest.raises(WireError) as refused:
        shake(one, other)
    assert refused.value.reason == reason and not refused.value.reported
    with pytest.raises(WireError) as reported:
        feed(one, other.refusal(refused.value))
    assert (reported.value.reason, reported.value.reported) == (reason, True)


@pytest.mark.parametrize(("one", "other", "reason"), [
    (dialling(least=10), accepting(token=9), wires.OLD),
    (dialling(to=1), accepting(slot=2), wires.SLOT),
])
def test_a_dialler_refuses_an_acceptor_that_is_another(one: Dialling, other: Accepting, reason: int) -> None:
    one.begin()
    answer = wires.message(wires.CHALLENGE, wires.CHALLENGE_FIELDS.pack(1, other.own.slot, other.own.token, NONCES[1]))
    with pytest.raises(WireError) as refused:
        feed(one, answer)
    assert refused.value.reason == reason


def test_a_dialler_refuses_an_acceptor_without_the_secret() -> None:
    one, other = dialling(), accepting()
    answer = feed(one, feed(other, one.begin()))
    assert answer
    with pytest.raises(WireError) as refused:
        feed(one, wires.message(wires.ACCEPT, answer[wires.HEAD.size:]))        # its own proof, sent back
    assert refused.value.reason == wires.SECRET and not refused.value.reported


def test_a_process_that_was_replaced_during_its_handshake_is_refused() -> None:
    least = [0]
    one, other = dialling(), Accepting(own(1), NONCES[1], lambda _: least[0])
    proved = feed(one, feed(other, one.begin()))
    least[0] = 8
    with pytest.raises(WireError) as refused:
        feed(other, proved)
    assert refused.value.reason == wires.OLD


def test_the_proof_of_an_earlier_connection_is_refused() -> None:
    one, other = dialling(), accepting()
    hello = one.begin()
    proved = feed(one, feed(other, hello))
    again = Accepting(own(1), b"another nonce..." , lambda _: 0)
    feed(again, hello)
    with pytest.raises(WireError) as refused:
        feed(again, proved)
    assert refused.value.reason == wires.SECRET


def test_fields_of_a_later_version_are_passed_over_and_proved() -> None:
    one, other = dialling(), accepting()
    hello = one.begin()
    longer = wires.message(wires.HELLO, hello[wires.HEAD.size:] + b"new field")
    one._transcript = longer
    shaken = feed(other, feed(one, feed(other, longer)))
    assert feed(one, shaken) == b"" and (one.wants, other.wants) == (0, 0)


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="it needs at least 32"):
        own(secret=b"s" * 31)


def messages() -> list[bytes]:
    """Return the four messages of a good handshake."""
    one, other = dialling(), accepting()
    hello = one.begin()
    challenge = feed(other, hello)
    proved = feed(one, challenge)
    return [hello, challenge, proved, feed(other, proved)]


def test_each_byte_that_changes_makes_both_sides_refuse_or_wait() -> None:
    """Change each bit of each message: no side may believe that the handshake is over, apart from reserved bytes of the heads."""
    good = messages()
    for at in range(4):
        for bit in range(8 * len(good[at])):
            if bit // 8 == 5:                   # the reserved byte of the head; it is proved in the first two messages
                continue
            changed = bytearray(good[at])
            changed[bit // 8] ^= 1 << bit % 8
            assert not ends_well(at, bytes(changed)), (at, bit)


def ends_well(at: int, changed: bytes) -> bool:
    """Return whether a side that takes part with `changed` as message `at` believes that the handshake is over."""
    one, other = dialling(), accepting()
    data, done = one.begin(), False
    try:
        for n in range(4):
            data = changed if n == at else data
            side = one if n % 2 else other
            data = feed(side, data)
            done = n >= max(at, 2) and side.wants == 0
            if done:
                break
    except (WireError, AssertionError):
        return False
    return done


def test_random_bytes_end_no_handshake() -> None:
    """Feed drawn bytes in drawn parts: the sides ask for a bounded number of bytes, and raise nothing but WireError."""
    rng = random.Random(1)
    good = messages()
    for _ in range(3000):
        side = rng.choice([dialling(), accepting()])
        if isinstance(side, Dialling):
            side.begin()
        data = b"".join(rng.choice([rng.choice(good), rng.randbytes(rng.randrange(80)),
                                    wires.message(rng.randrange(8), rng.randbytes(rng.randrange(100)))]) for _ in range(4))
        if rng.random() < 0.5 and isinstance(side, Dialling):
            data = good[1][:rng.randrange(len(good[1]))] + data
        fed = data
        try:
            while data and side.wants:
                assert side.wants <= wires.LIMIT
                n = rng.randrange(1, side.wants + 1)
                side.take(data[:n])
                data = data[n:]
        except WireError:
            continue
        # only the messages of the good handshake, in their order, can end one
        assert side.wants or fed.startswith(good[0] + good[2] if isinstance(side, Accepting) else good[1] + good[3])
