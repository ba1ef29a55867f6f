"""Compare SipHash-1-3 with an implementation in plain Python, which is checked with the published vectors of SipHash-2-4."""

import random

from cext.testing import topic_api

MASK = (1 << 64) - 1


def rotate(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (64 - bits))) & MASK


def siphash(c: int, d: int, k0: int, k1: int, text: bytes) -> int:
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573

    def rounds(n: int) -> None:
        nonlocal v0, v1, v2, v3
        for _ in range(n):
            v0 = (v0 + v1) & MASK
            v1 = rotate(v1, 13) ^ v0
            v0 = rotate(v0, 32)
            v2 = (v2 + v3) & MASK
            v3 = rotate(v3, 16) ^ v2
            v0 = (v0 + v3) & MASK
            v3 = rotate(v3, 21) ^ v0
            v2 = (v2 + v1) & MASK
            v1 = rotate(v1, 17) ^ v2
            v2 = rotate(v2, 32)

    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at:at + 8], "little")
        v3 ^= word
        rounds(c)
        v0 ^= word
    v2 ^= 0xFF
    rounds(d)
    return v0 ^ v1 ^ v2 ^ v3


K0 = int.from_bytes(bytes(range(8)), "little")
K1 = int.from_bytes(bytes(range(8, 16)), "little")


def test_the_model_agrees_with_the_published_vector() -> None:
    # Aumasson and Bernstein, SipHash: key 00..0f, message 00..0e, SipHash-2-4
    assert siphash(2, 4, K0, K1, bytes(range(15))) == 0xA129CA6149BE45E5


def test_every_length_and_tail() -> None:
    for n in range(200):
        text = bytes((i * 7 + n) & 0xFF for i in range(n))
        assert topic_api.siphash(K0, K1, text) == siphash(1, 3, K0, K1, text)


def test_random_keys_and_bytes() -> None:
    rng = random.Random(1)
    for _ in range(500):
        k0, k1, text = rng.getrandbits(64), rng.getrandbits(64), rng.randbytes(rng.randint(0, 100))
        assert topic_api.siphash(k0, k1, text) == siphash(1, 3, k0, k1, text)


def test_long_input() -> None:
    text = bytes(range(256)) * 257
    assert topic_api.siphash(1, 2, text) == siphash(1, 3, 1, 2, text)


def test_keys_are_random() -> None:
    assert len({topic_api.random_key() for _ in range(16)}) == 16
