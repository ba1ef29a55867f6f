"""Encodes integers with seven bits in a byte, the lowest first, as MQTT and protobuf do."""


def varint(value: int) -> bytes:
    """Encode a number from 0: a Variable Byte Integer [v5 1.5.5], or a varint of protobuf."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
