"""The networks of peers: which addresses count as one. Knows the text of addresses."""

from socket import AF_INET, AF_INET6, inet_pton

IPV4_MAPPED = b"\0" * 10 + b"\xff\xff"    # listeners for both families give IPv4 addresses as ::ffff:a.b.c.d


def packed(address: str) -> bytes:
    """Return the 4 or 16 bytes of an address; b"": not an IP address (Unix sockets)."""
    try:
        if ":" not in address:
            return inet_pton(AF_INET, address)
        ip = inet_pton(AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        return b""
    return ip.removeprefix(IPV4_MAPPED)


def subscriber_of(address: str) -> bytes:
    """Return the part of an address that belongs to one subscriber: an IPv4 address, or an IPv6 /64; b"": none."""
    return packed(address)[:8]


def network_of(address: str) -> bytes:
    """Return the network of an address: an IPv4 /24 or an IPv6 /56, as for the data plane's newcomers; b"": none."""
    ip = packed(address)
    return ip[:3] if len(ip) == 4 else ip[:7]
