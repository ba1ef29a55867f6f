"""Test TLS 1.3 records after the handshake: records of RFC 8448, of Python's primitives and of OpenSSL, and invalid ones."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cext.testing.tls_records_api import Side, Suites
from tests.harness.certificates import client_context, server_paths
from tests.net.records import ALERT, ALL, ASKING_KEY_UPDATE, DATA, HANDSHAKE, KEY_UPDATE, Direction, Suite, log_lines

CLOSE_NOTIFY, UNEXPECTED_MESSAGE, BAD_RECORD_MAC, RECORD_OVERFLOW = 0, 10, 20, 22
BAD_CERTIFICATE, ILLEGAL_PARAMETER, DECODE_ERROR, USER_CANCELED = 42, 47, 50, 90
LARGEST = 1 << 14
EMPTIES_MAX = KEY_UPDATES_MAX = 32


class Pair:
    """Our records code, and a client made of Python's primitives."""

    def __init__(self, suite: Suite, suites: Suites | None = None, seed: int = 1) -> None:
        client, server = bytes([seed]) * suite.secret_bytes, bytes([seed + 100]) * suite.secret_bytes
        self.suites = suites or Suites()
        self.ours = Side(self.suites, suite.id, log_lines(client, server), 1)
        self.sends, self.reads = Direction(suite, client), Direction(suite, server, 1)

    def hears(self, *records: bytes, now_s: int = 0) -> bytes:
        stream = b"".join(records)
        data, used = self.ours.take(stream, now_s)
        assert used == len(stream)
        return data

    def refuses(self, alert: int, *records: bytes, data: bytes = b"") -> None:
        """Check that these records end the connection with this alert: data before them is read, data after them is not."""
        assert self.hears(*records) == data
        assert self.ours.ended() == ("us", alert)
        assert self.reads.open(self.ours.say(alert)) == [(ALERT, bytes([2, alert]))]
        assert self.hears(self.sends.seal(b"later")) == b""


@pytest.fixture(params=ALL.values(), ids=ALL)
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


# ---------------------------------------------------------------- RFC 8448

# section 3: after the server's ticket, application data 00..31 of each side, then its close_notify
RFC_SECRETS = (
    "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
    "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
)
RFC_CLIENT = (
    "1703030043a23f7054b62c94d0affafe8228ba55cbefacea42f914aa66bcab3f2b9819a8a5b46b395bd54a9a20441e2b62974e1f5a6292a2977014bd1e3deae63a"
    "eebb21694915e4"
    "1703030013c9872760655666b74d7ff1153efd6db6d0b0e3"
)
RFC_SERVER = (
    "17030300432e937e11ef4ac740e538ad36005fc4a46932fc3225d05f82aa1b36e30efaf97d90e6dffc602dcb501a59a8fcc49c4bf2e5f0a21c0047c2abf332540d"
    "d032e167c2955d"
    "1703030013b58fd67166ebf599d24720cfbe7efa7a8864a9"
)


def test_the_records_of_rfc_8448() -> None:
    client, server = (bytes.fromhex(secret) for secret in RFC_SECRETS)
    ours = Side(Suites(), 0x1301, log_lines(client, server), 1)
    data = bytes(range(50))
    assert ours.take(bytes.fromhex(RFC_CLIENT)) == (data, len(RFC_CLIENT) // 2)
    assert ours.ended() == ("closed", CLOSE_NOTIFY)
    assert (ours.seal(data) + ours.say(CLOSE_NOTIFY)).hex() == RFC_SERVER


# ---------------------------------------------------------------- seal and open


@pytest.mark.parametrize("n", [1, 15, 16, 17, 255, 4096, LARGEST - 1, LARGEST])
def test_sizes(pair: Pair, n: int) -> None:
    content = bytes(i & 255 for i in range(n))
    assert pair.hears(pair.sends.seal(content)) == content
    assert pair.reads.open(pair.ours.seal(content) + pair.ours.seal(content, in_place=False)) == [(DATA, content)] * 2
    with pytest.raises(ValueError, match="too long"):
        pair.ours.seal(bytes(LARGEST + 1))


def test_padding_is_removed(pair: Pair) -> None:
    assert pair.hears(pair.sends.seal(b"a\0", padding=100), pair.sends.seal(b"", padding=LARGEST), pair.sends.seal(b"b\0")) == b"a\0b\0"
    assert pair.ours.ended() is None


def test_many_connections_share_the_contexts() -> None:
    """Test connections that take turns: each opens and seals records with its own key, and a connection that ends erases
    its key."""
    suites = Suites()
    pairs = [Pair(suite, suites, seed) for seed in range(1, 20) for suite in ALL.values()]
    for turn in range(3):
        for one in pairs:
            assert one.hears(one.sends.seal(bytes([turn]) * 30)) == bytes([turn]) * 30
            assert one.reads.open(one.ours.seal(b"answer")) == [(DATA, b"answer")]
    assert suites.keyed() == 6
    for one in reversed(pairs[-3:]):
        assert not any(one.ours.end())
    assert suites.keyed() == 0
    assert pairs[0].hears(pairs[0].sends.seal(b"goes on")) == b"goes on"


@settings(max_examples=60)
@given(
    st.lists(st.one_of(st.integers(0, 300), st.sampled_from([LARGEST - 1, LARGEST])), max_size=8),
    st.lists(st.integers(1, 400), min_size=1, max_size=8),
    st.sampled_from(list(ALL.values())),
)
def test_cut_anywhere(sizes: list[int], cuts: list[int], suite: Suite) -> None:
    """Test that the data is the same however the stream is cut, and no byte of an incomplete record is taken."""
    pair = Pair(suite)
    contents = [bytes([i + 1]) * n for i, n in enumerate(sizes)]
    stream = b"".join(pair.sends.seal(content) if i % 3 else pair.sends.update() + pair.sends.seal(content) for i, content in enumerate(contents))
    got, waiting, turn = b"", b"", 0
    while stream:
        n = cuts[turn % len(cuts)] if turn < 200 else len(stream)
        waiting, stream, turn = waiting + stream[:n], stream[n:], turn + 1
        data, used = pair.ours.take(waiting)
        got, waiting = got + data, waiting[used:]
        assert len(waiting) < 5 or len(waiting) < 5 + int.from_bytes(waiting[3:5])
    assert (got, waiting, pair.ours.ended()) == (b"".join(contents), b"", None)


# ---------------------------------------------------------------- OpenSSL is the other side


def handed_over(tmp_path: Path, suites: Suites) -> tuple[Side, ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """Let two objects of Python's ssl shake hands, then put our side in the server's place; return our side, the client,
    the client's input and its output."""
    paths = server_paths(tmp_path)
    keys = tmp_path / "keys"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(paths["certfile"], paths["keyfile"])
    context.keylog_filename = str(keys)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_reads, server_says = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = client_context().wrap_bio(to_client, to_server, server_hostname="localhost")
    server = context.wrap_bio(server_reads, server_says, server_side=True)
    flight, done = b"", {client: False, server: False}
    while not all(done.values()):
        for one in (client, server):
            try:
                one.do_handshake()
                done[one] = True
            except ssl.SSLWantReadError:
                pass
            server_reads.write(to_server.read())
            flight = server_says.read() or flight
            if one is server:
                to_client.write(flight)
    negotiated = client.cipher()
    assert negotiated is not None
    suite = {"TLS_AES_128_GCM_SHA256": 0x1301, "TLS_AES_256_GCM_SHA384": 0x1302, "TLS_CHACHA20_POLY1305_SHA256": 0x1303}[negotiated[0]]
    tickets = 0
    while flight:
        tickets, flight = tickets + 1, flight[5 + int.from_bytes(flight[3:5]) :]
    return Side(suites, suite, keys.read_text().splitlines(), tickets), client, to_client, to_server


def test_openssl_exchanges_records_with_the_broker_code(tmp_path: Path) -> None:
    ours, client, incoming, outgoing = handed_over(tmp_path, Suites())

    @settings(max_examples=80)
    @given(st.lists(st.binary(min_size=1, max_size=40), max_size=5), st.integers(1, 70_000), st.booleans())
    def exchange(contents: list[bytes], large: int, in_place: bool) -> None:
        sent = [*contents, bytes(range(256)) * (large // 256)]
        for content in filter(None, sent):
            client.write(content)
        assert ours.take(outgoing.read())[0] == b"".join(sent)
        for content in filter(None, sent):
            for at in range(0, len(content), LARGEST):
                incoming.write(ours.seal(content[at : at + LARGEST], in_place))
        got = b""
        while len(got) < sum(map(len, sent)):
            got += client.read(1 << 17)
        assert got == b"".join(sent)

    exchange()
    with pytest.raises(ssl.SSLWantReadError):
        client.unwrap()
    assert ours.take(outgoing.read())[0] == b""
    assert ours.ended() == ("closed", CLOSE_NOTIFY)
    incoming.write(ours.say(CLOSE_NOTIFY))
    client.unwrap()


def test_openssl_follows_key_updates_of_the_broker(tmp_path: Path) -> None:
    suites = Suites()
    suites.limit(20)
    ours, client, incoming, _ = handed_over(tmp_path, suites)
    for i in range(30):
        incoming.write(ours.seal(b"%d" % i))
        assert client.read(100) == b"%d" % i
    assert ours.count()[0] == 10, "10 records of two blocks under each of three keys"


# ---------------------------------------------------------------- keys change


def test_the_peers_key_changes(pair: Pair) -> None:
    """Test [RFC 8446 4.6.3]."""
    assert pair.hears(pair.sends.seal(b"a"), pair.sends.update(), pair.sends.seal(b"b"), pair.sends.update(), pair.sends.seal(b"c")) == b"abc"
    assert pair.reads.open(pair.ours.seal(b"no answer is due")) == [(DATA, b"no answer is due")]


def test_one_key_update_answers_many_requests(pair: Pair) -> None:
    """Test that one KeyUpdate answers many requests, before the next data [RFC 8446 4.6.3]."""
    pair.hears(pair.sends.update(ASKING_KEY_UPDATE), pair.sends.update(ASKING_KEY_UPDATE), pair.sends.seal(b"x"))
    assert pair.reads.open(pair.ours.seal(b"a") + pair.ours.seal(b"b")) == [(HANDSHAKE, KEY_UPDATE), (DATA, b"a"), (DATA, b"b")]
    assert pair.ours.count() == (2, 1)


def test_a_key_update_may_be_split_over_records(pair: Pair) -> None:
    """Test [RFC 8446 5.1]."""
    pair.hears(pair.sends.seal(KEY_UPDATE[:1], HANDSHAKE), pair.sends.seal(KEY_UPDATE[1:4], HANDSHAKE), pair.sends.seal(KEY_UPDATE[4:], HANDSHAKE))
    pair.sends.renew()
    assert pair.hears(pair.sends.seal(b"under the next key")) == b"under the next key"


def test_the_sending_key_changes_before_its_limit(pair: Pair) -> None:
    """Test [RFC 8446 5.5]."""
    pair.suites.limit(20)
    found = pair.reads.open(b"".join(pair.ours.seal(bytes([i])) for i in range(30)))
    assert [content for kind, content in found if kind == DATA] == [bytes([i]) for i in range(30)]
    assert [i for i, (kind, _) in enumerate(found) if kind == HANDSHAKE] == [10, 21]


@pytest.mark.parametrize(("n", "blocks"), [(0, 2), (15, 2), (16, 3), (LARGEST, 1026)])
def test_blocks_that_a_record_counts(pair: Pair, n: int, blocks: int) -> None:
    """Test that a record counts the blocks of 16 bytes of its content and type, and one for its tag."""
    pair.suites.limit(3 * blocks)
    found = pair.reads.open(b"".join(pair.ours.seal(bytes(n)) for _ in range(4)))
    assert [kind for kind, _ in found] == [DATA, DATA, DATA, HANDSHAKE, DATA]


def test_limits_of_the_cipher_suites() -> None:
    """Test that an AES-GCM key seals at most 2^24.5 records of 2^10 blocks [RFC 8446 5.5]."""
    for suite in (ALL["aes-128"], ALL["aes-256"]):
        pair = Pair(suite)
        pair.ours.blocks((1 << 34) - 1)
        found = pair.reads.open(pair.ours.seal(b"last") + pair.ours.seal(b"first"))
        assert found == [(DATA, b"last"), (HANDSHAKE, KEY_UPDATE), (DATA, b"first")]


def test_small_records_do_not_use_up_a_key(pair: Pair) -> None:
    """Test that the limit counts blocks: a limit of records would end a key within hours at 1000 records a second, and
    some clients do not support KeyUpdate."""
    pair.ours.count(sent=1 << 30)
    pair.reads.sequence = 1 << 30
    assert pair.reads.open(pair.ours.seal(b"x")) == [(DATA, b"x")]


def test_sequence_numbers_never_wrap(pair: Pair) -> None:
    """Test [RFC 8446 5.3]."""
    last = (1 << 64) - 1
    pair.ours.count(sent=last, received=last)
    pair.sends.sequence = last
    with pytest.raises(ValueError, match="nothing can be sealed"):
        pair.ours.seal(b"x")
    assert pair.hears(pair.sends.seal(b"x")) == b""
    assert pair.ours.ended() == ("us", 80)


# ---------------------------------------------------------------- errors that end the connection

Makes = Callable[[Direction], Iterable[bytes]]
WRONG: dict[str, tuple[int, Makes]] = {
    # 5, D.4
    "a plain alert": (UNEXPECTED_MESSAGE, lambda c: [b"\x15\x03\x03\0\x02\x02\x28"]),
    "ChangeCipherSpec": (UNEXPECTED_MESSAGE, lambda c: [b"\x14\x03\x03\0\x01\x01"]),
    "a plain handshake message": (UNEXPECTED_MESSAGE, lambda c: [b"\x16\x03\x03\0\x04\x01\0\0\0"]),
    "MQTT": (UNEXPECTED_MESSAGE, lambda c: [b"\x30\x03\0\x01a"]),
    "heartbeat": (UNEXPECTED_MESSAGE, lambda c: [c.seal(b"\x01\0\x03abc", 24)]),
    "type 0": (UNEXPECTED_MESSAGE, lambda c: [c.sealed(b"\0")]),
    "a sealed ChangeCipherSpec": (UNEXPECTED_MESSAGE, lambda c: [c.seal(b"\x01", 20)]),
    # 5.2
    "a header that says too much": (RECORD_OVERFLOW, lambda c: [b"\x17\x03\x03\x41\x01"]),
    "too much within": (RECORD_OVERFLOW, lambda c: [c.seal(bytes(LARGEST + 1))]),
    "too much padding": (RECORD_OVERFLOW, lambda c: [c.seal(b"x", padding=LARGEST)]),
    "nothing": (BAD_RECORD_MAC, lambda c: [b"\x17\x03\x03\0\0"]),
    "less than a tag": (BAD_RECORD_MAC, lambda c: [b"\x17\x03\x03\0\x0f" + bytes(15)]),
    "a tag of nothing": (BAD_RECORD_MAC, lambda c: [b"\x17\x03\x03\0\x10" + bytes(16)]),
    "another version in the header": (BAD_RECORD_MAC, lambda c: [c.seal(b"x").replace(b"\x03\x03", b"\x03\x01", 1)]),
    "the same record twice": (BAD_RECORD_MAC, lambda c: [c.seal(b"x")] * 2),
    "one left out": (BAD_RECORD_MAC, lambda c: [c.seal(b"x")][1:] + [c.seal(b"y")]),
    # 5.4
    "padding alone": (UNEXPECTED_MESSAGE, lambda c: [c.sealed(bytes(100))]),
    "no message": (UNEXPECTED_MESSAGE, lambda c: [c.seal(b"", HANDSHAKE)]),
    "no alert": (UNEXPECTED_MESSAGE, lambda c: [c.seal(b"", ALERT)]),
    # 5.1, 6
    "half an alert": (DECODE_ERROR, lambda c: [c.seal(b"\x02", ALERT)]),
    "two alerts": (DECODE_ERROR, lambda c: [c.seal(b"\x01\x00\x01\x00", ALERT)]),
    "data within a message": (UNEXPECTED_MESSAGE, lambda c: [c.seal(KEY_UPDATE[:3], HANDSHAKE), c.seal(b"x")]),
    "an alert within a message": (UNEXPECTED_MESSAGE, lambda c: [c.seal(KEY_UPDATE[:3], HANDSHAKE), c.seal(b"\x01\0", ALERT)]),
    "two messages in a record": (UNEXPECTED_MESSAGE, lambda c: [c.seal(KEY_UPDATE * 2, HANDSHAKE)]),
    # 4.6
    "ClientHello": (UNEXPECTED_MESSAGE, lambda c: [c.seal(b"\x01\0\0\0", HANDSHAKE)]),
    "NewSessionTicket": (UNEXPECTED_MESSAGE, lambda c: [c.seal(b"\x04\0\0\0", HANDSHAKE)]),
    "Finished": (UNEXPECTED_MESSAGE, lambda c: [c.seal(b"\x14\0\0\x20" + bytes(32), HANDSHAKE)]),
    "a certificate nobody asked for": (UNEXPECTED_MESSAGE, lambda c: [c.seal(b"\x0b\0\0\x04" + bytes(4), HANDSHAKE)]),
    "a long KeyUpdate": (DECODE_ERROR, lambda c: [c.seal(b"\x18\0\0\x02\0", HANDSHAKE)]),
    "an empty KeyUpdate": (DECODE_ERROR, lambda c: [c.seal(b"\x18\0\0\0", HANDSHAKE), c.seal(b"\0", HANDSHAKE)]),
    "a KeyUpdate of value 2": (ILLEGAL_PARAMETER, lambda c: [c.seal(b"\x18\0\0\x01\x02", HANDSHAKE)]),
    # floods
    "empty records": (UNEXPECTED_MESSAGE, lambda c: [c.seal(b"", padding=i) for i in range(EMPTIES_MAX + 1)]),
    "KeyUpdates": (UNEXPECTED_MESSAGE, lambda c: [c.update() for _ in range(EMPTIES_MAX + 1)]),
    "user_canceled again and again": (UNEXPECTED_MESSAGE, lambda c: [c.seal(bytes([1, USER_CANCELED]), ALERT) for _ in range(EMPTIES_MAX + 1)]),
}


@pytest.mark.parametrize("suite", ALL.values(), ids=ALL)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_records_end_the_connection(name: str, suite: Suite) -> None:
    alert, makes = WRONG[name]
    records = list(makes(Direction(suite, bytes([1]) * suite.secret_bytes, 1)))
    pair = Pair(suite)
    if name == "the same record twice":
        pair.refuses(alert, pair.sends.seal(b"good"), *records, data=b"goodx")
    else:
        pair.refuses(alert, pair.sends.seal(b"good"), *records, data=b"good")


def test_every_changed_bit_is_seen(pair: Pair) -> None:
    record = bytearray(pair.sends.seal(b"x"))
    for at in range(5 * 8, len(record) * 8):
        fresh = Pair(pair.sends.suite)
        record[at // 8] ^= 1 << at % 8
        fresh.refuses(BAD_RECORD_MAC, bytes(record))
        record[at // 8] ^= 1 << at % 8
    assert pair.hears(bytes(record)) == b"x"


def test_empty_records_between_others_are_accepted(pair: Pair) -> None:
    assert pair.hears(*(pair.sends.seal(b"" if i % EMPTIES_MAX else b"x") for i in range(10 * EMPTIES_MAX))) == b"x" * 10


QUIET: dict[str, Callable[[Direction], bytes]] = {
    "a new key": lambda c: c.update(),
    "a new key in pieces": lambda c: c.seal(KEY_UPDATE[:1], HANDSHAKE) + c.update(KEY_UPDATE[1:]),
    "padding": lambda c: c.seal(b"", padding=64),
    "user_canceled": lambda c: c.seal(bytes([1, USER_CANCELED]), ALERT),
}


@pytest.mark.parametrize("name", QUIET)
def test_a_client_without_data_may_stay_connected(pair: Pair, name: str) -> None:
    """Test that a client may send only new keys, padding or warnings, once an hour, for ever."""
    for hour in range(3 * EMPTIES_MAX):
        pair.hears(QUIET[name](pair.sends), now_s=3600 * hour)
        assert pair.ours.ended() is None
    assert pair.hears(pair.sends.seal(b"x"), now_s=3600 * hour) == b"x"


def test_new_keys_are_no_empty_records(pair: Pair) -> None:
    """Test that KeyUpdates and empty records have separate bounds."""
    for _ in range(EMPTIES_MAX):
        pair.hears(pair.sends.seal(b""), pair.sends.update())
    assert pair.hears(pair.sends.seal(b"x")) == b"x"


def test_key_updates_per_second_are_bounded(pair: Pair) -> None:
    """Test that the bound also holds with data between the KeyUpdates: each costs us more than it costs the peer."""
    for second in range(3):
        for _ in range(KEY_UPDATES_MAX):
            assert pair.hears(pair.sends.update(), pair.sends.seal(b"x"), now_s=second) == b"x"
    assert pair.ours.take(pair.sends.update(), 2) == (b"", 27)
    assert pair.ours.ended() == ("us", UNEXPECTED_MESSAGE)


@pytest.mark.parametrize("level", [1, 2])
def test_alerts_of_the_peer(pair: Pair, level: int) -> None:
    """Test that an alert ends the connection whatever its level [RFC 8446 6]; data after it is dropped."""
    assert pair.hears(pair.sends.seal(b"a"), pair.sends.seal(bytes([level, BAD_CERTIFICATE]), ALERT), pair.sends.seal(b"b")) == b"a"
    assert pair.ours.ended() == ("peer", BAD_CERTIFICATE)


@pytest.mark.parametrize("level", [1, 2])
def test_close_notify_ends_the_connection_in_order(pair: Pair, level: int) -> None:
    assert pair.hears(pair.sends.seal(bytes([1, USER_CANCELED]), ALERT), pair.sends.seal(bytes([level, CLOSE_NOTIFY]), ALERT)) == b""
    assert pair.ours.ended() == ("closed", CLOSE_NOTIFY)
    assert pair.reads.open(pair.ours.seal(b"still to be said") + pair.ours.say(CLOSE_NOTIFY)) == [(DATA, b"still to be said"), (ALERT, b"\x01\0")]


# ---------------------------------------------------------------- sessions that stay with OpenSSL


@pytest.mark.parametrize(
    "lines",
    [
        [],
        log_lines(bytes(32), bytes(32))[:2],
        log_lines(bytes(48), bytes(48)),
        log_lines(bytes(32), bytes(49)),
        [line.replace(" 00", " 0g") for line in log_lines(bytes(32), bytes(32))],
        ["SERVER_TRAFFIC_SECRET_0", "CLIENT_TRAFFIC_SECRET_0 ", ""],
    ],
)
def test_secrets_that_are_missing_or_do_not_fit(lines: list[str]) -> None:
    with pytest.raises(ValueError, match="cannot be taken over"):
        Side(Suites(), 0x1301, lines)


@pytest.mark.parametrize("suite", [0x1304, 0x1305, 0xC02F, 0])
def test_other_suites(suite: int) -> None:
    with pytest.raises(ValueError, match="cannot be taken over"):
        Side(Suites(), suite, log_lines(bytes(32), bytes(32)))
