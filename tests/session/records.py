"""Provide bodies of records by hand, after docs/storage.md: (kind, fields, bytes). They are also seeds of the fuzzer."""

from typing import Any, NamedTuple

SESSION, SUB, UNSUB, END, MSG, ACKS, RELEASED, INBOX, INBOX_DONE, RETAINED_GONE, WILL, WILL_GONE, META, RETAINED_FROM, STREAMS = range(1, 16)
CLIENT_WILL, CLIENT_WILL_GONE, PUBLISHER, GATED, GATED_DONE, WAITING_WILL, WAITING_WILL_GONE = range(16, 23)
LINK_RUN, LINK_MARK, LINK_IDENTITY, LINK_IDENTITY_GONE, LINK_CHOICE, LINK_WILL, UNDELIVERED = range(23, 30)

MESSAGE = {"qos": 1, "retain": False, "retained_set": False, "expires_wall_ms": 0, "source_hash": 0, "topic": b"a/b",
           "props": b"", "payload": b"hi"}


class Row(NamedTuple):
    kind: int
    fields: dict[Any, Any]
    hex: str

    @property
    def body(self) -> bytes:
        return bytes.fromhex(self.hex)


ROWS = [
    Row(SESSION, {"sno": 1, "connected": True, "expiry_s": 0xFFFFFFFF, "ends_wall_ms": 0, "next": 7, "id": b"ab", "user": None},
        "01000000 01 ffffffff 0000000000000000 07000000 0200 6162 0000"),
    Row(SESSION, {"sno": 0x01020304, "connected": False, "expiry_s": 60, "ends_wall_ms": 0x0102030405060708, "next": 0, "id": b"", "user": b"u"},
        "04030201 02 3c000000 0807060504030201 00000000 0000 0100 75"),
    Row(SESSION, {"sno": 0, "connected": False, "expiry_s": 0, "ends_wall_ms": 0, "next": 0, "id": b"", "user": b""},
        "00000000 02 00000000 0000000000000000 00000000 0000 0000"),
    Row(SUB, {"sno": 2, "options": 0x2E, "sub_id": 9, "filter": b"$share/g/#"}, "02000000 2e 09000000" + b"$share/g/#".hex()),
    Row(UNSUB, {"sno": 2, "filter": b"+"}, "02000000 2b"),
    Row(END, {"sno": 3}, "03000000"),
    Row(MSG, {**MESSAGE, "entries": []}, "0100 0300 00000000 00000000 612f62 6869"),
    Row(MSG, {**MESSAGE, "qos": 2, "retain": True, "retained_set": True, "expires_wall_ms": 1, "source_hash": 2, "props": b"\x01\x01",
              "entries": [(1, 2, 3, 0x81, 0), (4, 0xFFFFFFFF, 65535, 0x42, 5)]},
        "3e00 0100000000000000 0200000000000000 0300 02000000 02000000 01000000 02000000 0300 81 04000000 ffffffff ffff 62 05000000"
        "612f62 0101 6869"),
    Row(MSG, {**MESSAGE, "again": True, "entries": []}, "4100 0300 00000000 00000000 612f62 6869"),
    Row(ACKS, {"acks": [(1, 2), (3, 4)]}, "01000000 02000000 03000000 04000000"),
    Row(ACKS, {"acks": []}, ""),
    Row(RELEASED, {"acks": [(1, 2, 3)]}, "01000000 02000000 0300"),
    Row(INBOX, {"sno": 1, "pid": 2, "refused": False, "journalled": False, **MESSAGE}, "01000000 0200 00 0100 0300 00000000 612f62 6869"),
    Row(INBOX, {"sno": 1, "pid": 2, "refused": False, "journalled": True, **MESSAGE}, "01000000 0200 02 0100 0300 00000000 612f62 6869"),
    Row(INBOX, {"sno": 1, "pid": 2, "refused": True}, "01000000 0200 01"),
    Row(INBOX_DONE, {"sno": 1, "pid": 0x0203}, "01000000 0302"),
    Row(RETAINED_GONE, {"topic": b"a/b"}, "612f62"),
    Row(WILL, {"sno": 1, "due_wall_ms": 2, "delay_s": 3, **MESSAGE, "topic": b"", "payload": b""},
        "01000000 0200000000000000 03000000 0100 0000 00000000"),
    Row(WILL_GONE, {"sno": 1}, "01000000"),
    Row(CLIENT_WILL, {"id": b"ab", "user": None, "security": 1, "mount": b"", "expiry_s": None, **MESSAGE},
        "00 01000000 0200 6162 0000 0000 0100 0300 00000000 612f62 6869"),
    Row(CLIENT_WILL, {"id": b"ab", "user": b"u", "security": 0x01020304, "mount": b"m/", "expiry_s": 60, **MESSAGE, "retain": True},
        "03 04030201 3c000000 0200 6162 0100 75 0200 6d2f 0500 0300 00000000 612f62 6869"),
    Row(CLIENT_WILL, {"id": b"a", "user": b"", "security": 0, "mount": b"", "expiry_s": 0, **MESSAGE, "payload": b""},
        "03 00000000 00000000 0100 61 0000 0000 0100 0300 00000000 612f62"),
    Row(CLIENT_WILL_GONE, {"id": b"ab"}, "6162"),
    Row(PUBLISHER, {"security": 1, "pid": 18, "id": b"me", "user": b"u"}, "01000000" "1200" "02006d65" "75"),
    Row(PUBLISHER, {"security": 0, "pid": 0, "id": b"", "user": b""}, "00000000" "0000" "0000"),
    Row(GATED, {**MESSAGE, "entries": [(1, 2, 0, 0x81, 0)]}, "0100 0300 00000000 01000000 01000000 02000000 0000 81 612f62 6869"),
    Row(GATED_DONE, {"acks": [(1, 2), (3, 4)]}, "01000000 02000000 03000000 04000000"),
    Row(WAITING_WILL, {"number": 5, "handle": 0x0102030405060708, "id": b"ab", "user": b"u", "security": 1, "mount": b"m/", "expiry_s": None, **MESSAGE},
        "0500000000000000 0807060504030201 01 01000000 0200 6162 0100 75 0200 6d2f 0100 0300 00000000 612f62 6869"),
    Row(WAITING_WILL_GONE, {"number": 5}, "0500000000000000"),
    Row(LINK_WILL, {"number": 5, "handle": 7, "id": b"ab", "user": None, "security": 1, "mount": b"", "expiry_s": None, **MESSAGE},
        "0500000000000000 0700000000000000 00 01000000 0200 6162 0000 0000 0100 0300 00000000 612f62 6869"),
    Row(UNDELIVERED, {"number": 5, "unjournalled": True, "sessions": [1, 0x01020304], "group": b"$share/g/a", "id": b"ab", "user": b"u", "security": 1,
                      "mount": b"m/", "expiry_s": None, **MESSAGE},
        "0500000000000000 01 02000000 01000000 04030201 0a00 2473686172652f672f61 01 01000000 0200 6162 0100 75 0200 6d2f 0100 0300 00000000 612f62 6869"),
    Row(UNDELIVERED, {"number": 6, "unjournalled": False, "sessions": [], "group": b"", "id": b"a", "user": None, "security": 0, "mount": b"",
                      "expiry_s": None, **MESSAGE, "retain": True, "retained_set": True},
        "0600000000000000 00 00000000 0000 00 00000000 0100 61 0000 0000 0d00 0300 00000000 612f62 6869"),
    Row(RETAINED_FROM, {"security": 1, "topic": b"a/b", "id": b"me", "user": b"u"}, "01000000" "0300612f62" "02006d65" "75"),
    Row(STREAMS, {"streams": [{"name": b"a", "seqs": [1, 0x0102030405060708]}, {"name": b"events", "seqs": [2]}]},
        "0100 61 0200 0100000000000000 0807060504030201" "0600 6576656e7473 0100 0200000000000000"),
    Row(STREAMS, {"streams": []}, ""),
    Row(META, {b"format": b"1", b"broker": b"mosq=x"}, b"format=1\nbroker=mosq=x\n".hex()),
    Row(SESSION, {"sno": 1, "connected": True, "link": True, "expiry_s": 0xFFFFFFFF, "ends_wall_ms": 0, "next": 0, "id": b"ab", "user": None},
        "01000000 05 ffffffff 0000000000000000 00000000 0200 6162 0000"),
    Row(SESSION, {"sno": 1, "connected": False, "expiry_s": 60, "ends_wall_ms": 0, "next": 0, "id": b"ab", "user": b"u", "security": 2, "mount": b"A/"},
        "01000000 0a 3c000000 0000000000000000 00000000 0200 6162 0100 75 02000000 0200 412f"),
    Row(SESSION, {"sno": 1, "connected": False, "expiry_s": 60, "ends_wall_ms": 0, "next": 0, "id": b"", "user": None, "security": 0, "mount": b""},
        "01000000 08 3c000000 0000000000000000 00000000 0000 0000 00000000 0000"),
    Row(SESSION, {"sno": 1, "connected": False, "expiry_s": 60, "ends_wall_ms": 0, "next": 0, "id": b"", "user": None, "security": 0, "mount": b"",
                  "last_pid": 0x0102},
        "01000000 18 3c000000 0000000000000000 00000000 0000 0000 00000000 0000 0201"),
    Row(SESSION, {"sno": 1, "connected": False, "expiry_s": 60, "ends_wall_ms": 0, "next": 0, "id": b"", "user": None, "last_pid": 65535},
        "01000000 10 3c000000 0000000000000000 00000000 0000 0000 ffff"),
    # from an import: the port of the listener is known, the mount point is not
    Row(SESSION, {"sno": 1, "connected": False, "expiry_s": 60, "ends_wall_ms": 0, "next": 0, "id": b"", "user": None, "security": 0xC000075B,
                  "last_pid": 65535},
        "01000000 30 3c000000 0000000000000000 00000000 0000 0000 5b0700c0 ffff"),
    Row(LINK_RUN, {"log": 0x0102030405060708, "run": 3}, "0807060504030201 0300000000000000"),
    Row(LINK_MARK, {"worker": 1, "log": 9, "run": 3, "number": 5, "holes": []},
        "0100000000000000 0900000000000000 0300000000000000 0500000000000000"),
    Row(LINK_IDENTITY, {"worker": 1, "log": 9, "identity": 7, "part": 0},
        "0100000000000000 0900000000000000 0700000000000000 0000000000000000"),
    Row(LINK_IDENTITY_GONE, {"log": 9, "identity": 7}, "0900000000000000 0700000000000000"),
    Row(LINK_CHOICE, {"identity": 7, "part": 3, "worker": 1}, "0700000000000000 0300000000000000 0100000000000000"),
]

SHORT, LONG, FLAGS, VALUE, UNKNOWN = ("ends before", "after its last", "has flags", "impossible value", "of a kind")
# (kind, body, part of the error)
WRONG = [
    (SESSION, ROWS[0].body[:24], SHORT),
    (SESSION, ROWS[0].body[:-3], SHORT),
    (SESSION, ROWS[0].body[:-1], SHORT),
    (SESSION, ROWS[1].body[:-1], SHORT),
    (SESSION, ROWS[0].body + b"x", LONG),
    (SESSION, ROWS[0].body[:4] + b"\x41" + ROWS[0].body[5:], FLAGS),
    (SESSION, ROWS[0].body[:4] + b"\x21" + ROWS[0].body[5:], SHORT),        # a listener that is not there
    (SESSION, ROWS[0].body[:4] + b"\x21" + ROWS[0].body[5:] + b"\0\0\0\0", FLAGS),
    (SESSION, ROWS[0].body[:4] + b"\x29" + ROWS[0].body[5:] + b"\1\0\0\0\0\0", FLAGS),      # it is part of the origin
    (SESSION, ROWS[0].body[:4] + b"\x11" + ROWS[0].body[5:], SHORT),        # a last packet id that is not there
    (SESSION, ROWS[0].body[:4] + b"\x11" + ROWS[0].body[5:] + b"\0\0", VALUE),
    (SESSION, ROWS[0].body[:4] + b"\x11" + ROWS[0].body[5:] + b"\0\1x", LONG),
    (SESSION, ROWS[0].body[:4] + b"\x09" + ROWS[0].body[5:], SHORT),        # an origin that is not there
    (SESSION, ROWS[0].body[:4] + b"\x09" + ROWS[0].body[5:] + b"\0\0\0\0\1\0", SHORT),
    (SESSION, ROWS[0].body[:4] + b"\x09" + ROWS[0].body[5:] + b"\0\0\0\0\0\0x", LONG),
    (SESSION, ROWS[1].body[:4] + b"\x00" + ROWS[1].body[5:], FLAGS),        # a user name without its flag
    (SUB, b"\x01\0\0\0\0\0\0\0\0", SHORT),                                  # no filter
    (SUB, b"\x01\0\0\0\0\0\0\0", SHORT),
    (SUB, b"\x01\0\0\0\0\0\0\0\0" + b"a" * 65536, LONG),
    (SUB, bytes.fromhex("01000000 00 00000010 61"), VALUE),                 # a subscription identifier of 2^28
    (UNSUB, b"\x01\0\0", SHORT),
    (UNSUB, b"\x01\0\0\0", SHORT),
    (END, b"\x01\0\0", SHORT),
    (END, b"\x01\0\0\0\0", LONG),
    (MSG, b"", SHORT),
    (MSG, bytes.fromhex("0100 0300 00000000 000000"), SHORT),
    (MSG, bytes.fromhex("0100 0300 00000000 00000000 6162"), SHORT),
    (MSG, bytes.fromhex("0100 0000 ffffffff 00000000 6162"), SHORT),        # properties that are not there
    (MSG, bytes.fromhex("0100 ffff ffffffff ffffffff 6162"), SHORT),
    (MSG, bytes.fromhex("0100 0000 00000000 01000000 00000000000000000000"), SHORT),
    (MSG, bytes.fromhex("0100 0000 00000000 01000000 0000000000000000000021 000000"), SHORT),
    (MSG, bytes.fromhex("0100 0000 00000000 01000000 0000000000000000000021 00000000"), FLAGS),
    (MSG, bytes.fromhex("0100 0000 00000000 01000000 0000000000000000000004"), FLAGS),
    (MSG, bytes.fromhex("0100 0000 00000000 01000000 0000000000000000000003"), VALUE),
    (MSG, bytes.fromhex("0100 0000 00000000 01000000 0000000000000000000021 00000010"), VALUE),
    (MSG, bytes.fromhex("0300 0000 00000000 00000000"), VALUE),
    (MSG, bytes.fromhex("8000 0000 00000000 00000000"), FLAGS),
    (MSG, bytes.fromhex("1000 00000000"), SHORT),
    (MSG, bytes.fromhex("1000 0000000000000000 0000 00000000 00000000"), FLAGS),
    (MSG, bytes.fromhex("2000 0000000000000000 0000 00000000 00000000"), FLAGS),
    (ACKS, b"\0" * 7, LONG),
    (RELEASED, b"\0" * 8, LONG),
    (INBOX, b"\0" * 6, SHORT),
    (INBOX, b"\0" * 7, SHORT),
    (INBOX, bytes.fromhex("01000000 0200 03"), VALUE),
    (INBOX, bytes.fromhex("01000000 0200 04 0000000000000000 0100 0300 00000000 612f62 6869"), VALUE),
    (INBOX, bytes.fromhex("01000000 0200 02"), SHORT),
    (INBOX, bytes.fromhex("01000000 0200 01 00"), LONG),
    (INBOX_DONE, b"\0" * 5, SHORT),
    (INBOX_DONE, b"\0" * 7, LONG),
    (RETAINED_GONE, b"", SHORT),
    (RETAINED_GONE, b"a" * 65536, LONG),
    (WILL, b"\0" * 15, SHORT),
    (WILL, b"\0" * 16, SHORT),
    (WILL_GONE, b"", SHORT),
    (RETAINED_FROM, b"\0" * 7, SHORT),
    (RETAINED_FROM, b"\0" * 8, SHORT),
    (RETAINED_FROM, b"\0\0\0\0\1\0a\1\0", SHORT),
    (RETAINED_FROM, b"\0\0\0\0\1\0a\0\0" + b"u" * 65536, LONG),
    (STREAMS, b"\1", SHORT),
    (STREAMS, b"\1\0a\1", SHORT),
    (STREAMS, b"\1\0a\1\0" + b"\0" * 7, SHORT),
    (STREAMS, b"\1\0a\0\0", VALUE),
    (STREAMS, b"\0\0\1\0" + b"\0" * 8, VALUE),
    (STREAMS, b"\1\0a\x41\0" + b"\0" * 8 * 65, VALUE),
    (0, b"", UNKNOWN),
    (CLIENT_WILL, b"\0" * 4, SHORT),
    (CLIENT_WILL, bytes.fromhex("04 00000000 0100 61 0000 0000 0100 0300 00000000 612f62"), FLAGS),
    (CLIENT_WILL, bytes.fromhex("00 00000000 0100 61 0100 75 0000 0100 0300 00000000 612f62"), FLAGS),      # a user name that the flags deny
    (CLIENT_WILL, bytes.fromhex("00 00000000 0000 0000 0000 0100 0300 00000000 612f62"), VALUE),
    (CLIENT_WILL_GONE, b"", SHORT),
    (CLIENT_WILL_GONE, b"a" * 65536, LONG),
    (PUBLISHER, b"\0" * 7, SHORT),
    (PUBLISHER, b"\0\0\0\0\1\0\2\0a", SHORT),
    (PUBLISHER, b"\0" * 8 + b"u" * 65536, LONG),
    (GATED, b"", SHORT), (GATED_DONE, b"1234567", LONG),
    (WAITING_WILL, b"\1" * 15, SHORT),
    (WAITING_WILL, bytes.fromhex("00" * 16 + "00 00000000 0100 61 0000 0000 0100 0300 00000000 612f62"), VALUE),        # no will has the number 0
    (WAITING_WILL, bytes.fromhex("01" * 16 + "00 00000000 0000 0000 0000 0100 0300 00000000 612f62"), VALUE),
    (WAITING_WILL_GONE, b"1234567", SHORT), (WAITING_WILL_GONE, b"123456789", LONG),
    (LINK_RUN, b"", SHORT),
    (LINK_RUN, b"\0" * 24, LONG),
    (LINK_MARK, b"\0" * 31, SHORT),
    (LINK_MARK, b"\0" * 33, SHORT),
    (LINK_MARK, b"\0" * 8 * 69, LONG),
    (LINK_IDENTITY, b"\0" * 24, SHORT),
    (LINK_IDENTITY_GONE, b"\0" * 24, LONG),
    (LINK_CHOICE, b"\0" * 16, SHORT),
    (LINK_WILL, b"\1" * 15, SHORT),
    (INBOX, bytes.fromhex("01000000 0200 10"), VALUE),
    (INBOX, bytes.fromhex("01000000 0200 04 00000000000000"), SHORT),
    (UNDELIVERED, b"\1" * 12, SHORT),
    (UNDELIVERED, bytes.fromhex("01" * 8 + "00 01000000 010000"), SHORT),
    (UNDELIVERED, bytes.fromhex("01" * 8 + "00 ffffffff 01000000"), SHORT),
    (UNDELIVERED, bytes.fromhex("01" * 8 + "00 00000000 0100"), SHORT),
    (UNDELIVERED, bytes.fromhex("01" * 8 + "02 00000000 0000 00 00000000 0100 61 0000 0000 0100 0300 00000000 612f62"), FLAGS),
    (UNDELIVERED, bytes.fromhex("00" * 8 + "00 00000000 0000 00 00000000 0100 61 0000 0000 0100 0300 00000000 612f62"), VALUE),
    (30, b"", UNKNOWN),
    (255, b"abc", UNKNOWN),
]
