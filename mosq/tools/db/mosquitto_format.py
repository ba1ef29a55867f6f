"""The numbers and fixed parts of Mosquitto's persistence file, formats 5 and 6. mosquitto_file.py describes the format.

A process that writes a file for a running broker imports this, so it imports almost nothing.
"""

import struct

MAGIC = b"\x00\xb5\x00mosquitto db"
HEADER = struct.Struct(">15sII")  # magic, checksum (0), format
CHUNK = struct.Struct(">II")  # type, length without this header
FORMATS = (5, 6)

CONFIG, MESSAGE, CLIENT_MESSAGE, RETAIN, SUBSCRIPTION, CLIENT = range(1, 7)
NAMES = {
    CONFIG: "configuration",
    MESSAGE: "stored message",
    CLIENT_MESSAGE: "client message",
    RETAIN: "retained message",
    SUBSCRIPTION: "subscription",
    CLIENT: "client",
}

# Fixed parts. A struct has one byte order, so fields in network order are taken as bytes and unpacked afterwards.
CONFIG_PART = struct.Struct("<QBB6x")  # last id, written at shutdown, size of an id
MESSAGE_PART = struct.Struct("<Qq4s10sBB")  # id, expiry time, payload bytes, five lengths and ports, qos, retain
CLIENT_MESSAGE_PART = struct.Struct("<Q4sBBBB")  # id, (packet id, client id bytes), qos, state, flags, direction
SUBSCRIPTION_PART = struct.Struct("<8sBB2x")  # (identifier, client id bytes, filter bytes), qos, options
CLIENT_PART_5 = struct.Struct("<q8s")  # ends at, (expiry interval, last packet id, client id bytes)
CLIENT_PART_6 = struct.Struct("<q12s4x")  # and (listener's port, user name bytes)
RETAIN_PART = struct.Struct("<Q")

IN, OUT = 0, 1
# the states of a client message: the packet that it waits for
(
    QOS0,
    QOS1,
    WAIT_PUBACK,
    QOS2,
    WAIT_PUBREC,
    RESEND_PUBREL,
    WAIT_PUBREL,
    RESEND_PUBCOMP,
    WAIT_PUBCOMP,
    SEND_PUBREC,
    QUEUED,
) = range(1, 12)
EXPIRY_NEVER = 0xFFFFFFFF
SUB_ID_MAX = 0x0FFFFFFF  # what a variable byte integer can hold [v5 1.5.5]
SECONDS_MAX = 1 << 40
