"""Reads, checks and makes password hashes in Mosquitto's three forms.

  $6$SALT$DIGEST               SHA-512 of password and salt
  $7$ITERATIONS$SALT$DIGEST    PBKDF2 with HMAC-SHA-512
  $argon2id$v=19$m=..,t=..,p=..$SALT$DIGEST

Knows no users and no files.
Invariants: a hash that would take longer than some seconds or more than a gigabyte to check is refused when it is read;
digests are compared in constant time; checking releases the GIL. Cost of a check: some microseconds for $6$; about a
millisecond per 1,000 iterations for $7$, and a tenth to a third of that if many $7$ checks wait and the processor has
wide vectors (cext/setup/pbkdf2.pyx).
"""

import hashlib
import hmac
import os
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from hmac import compare_digest

from mosq.engine import password_lanes

SHA512, PBKDF2, ARGON2ID = "sha512", "sha512-pbkdf2", "argon2id"
KINDS = (ARGON2ID, PBKDF2, SHA512)

DIGEST_BYTES = 64
BLOCK_BYTES = 128                       # block length of SHA-512
FIRST_BLOCK = b"\0\0\0\1"              # [RFC 8018 5.2] INT(1): the digest has one block
SALT_BYTES = 12                         # length of a new salt: Mosquitto 2.1 accepts 12 or 64, older versions only 12
ARGON2_SALT_BYTES = 64
SALT_BYTES_MAX = 1024
ITERATIONS = 1000                       # for new hashes, as in mosquitto_passwd
ITERATIONS_MAX = 10_000_000             # about ten seconds of one core
ARGON2_M_KIB, ARGON2_T, ARGON2_P = 47104, 1, 1
ARGON2_M_KIB_MAX = 1 << 20              # one gigabyte for each hashing thread
ARGON2_P_MAX = 64
ARGON2_WORK_MAX = 16 << 20              # m x t: about sixteen seconds of one core
ENCODED_CHARS_MAX = 4096

EXPECTED = "$6$SALT$HASH, $7$ITERATIONS$SALT$HASH or $argon2id$v=19$m=..,t=..,p=..$SALT$HASH"


class Hash:
    """One hashed password."""

    __slots__ = ("kind", "iterations", "salt", "digest", "encoded")

    def __init__(self, kind: str, encoded: str, salt: bytes = b"", digest: bytes = b"", iterations: int = 0) -> None:
        self.kind, self.encoded, self.salt, self.digest, self.iterations = kind, encoded, salt, digest, iterations

    def matches(self, password: bytes) -> bool:
        """Return whether this is the hash of the password. Slow; releases the GIL."""
        if b"\0" in password:           # no password contains it, and HMAC ignores zeros at the end
            return False
        if self.kind == PBKDF2:
            return compare_digest(hashlib.pbkdf2_hmac("sha512", password, self.salt, self.iterations), self.digest)
        if self.kind == SHA512:
            return compare_digest(hashlib.sha512(password + self.salt).digest(), self.digest)
        return _argon2_matches(self.encoded, password)


def read_hash(encoded: str) -> Hash:
    """Parse an encoded hash. Raises ValueError; the text names what was expected and shows nothing of the input, which
    may be a password."""
    if not encoded.startswith("$"):
        raise ValueError("it is not hashed")
    if len(encoded) > ENCODED_CHARS_MAX:
        raise ValueError(f"the hash is longer than {ENCODED_CHARS_MAX} characters")
    if not encoded.isascii():
        raise ValueError(f"expected {EXPECTED}")
    _, kind, *fields = encoded.split("$")
    if kind == "6" and len(fields) == 2:
        return Hash(SHA512, encoded, _salt(fields[0]), _digest(fields[1]))
    if kind == "7" and len(fields) == 3:
        return Hash(PBKDF2, encoded, _salt(fields[1]), _digest(fields[2]), _iterations(fields[0]))
    if kind == "argon2id":
        return _read_argon2(encoded, fields)
    raise ValueError(f"expected {EXPECTED}")


class Checker:
    """Checks passwords, several at once if that is cheaper than one after the other."""

    def __init__(self) -> None:
        self._lanes = password_lanes()
        self.width = self._lanes.lanes() if self._lanes is not None else 1

    def alike(self, one: Hash, other: Hash) -> bool:
        """Return whether the two may be checked in one call."""
        return one.kind == other.kind == PBKDF2 and one.iterations == other.iterations

    def match(self, hashes: list[Hash], passwords: list[bytes]) -> list[bool]:
        """Return the result of `Hash.matches` for each; at most `width` hashes that are alike."""
        if len(hashes) == 1 or self._lanes is None:
            return [hash.matches(password) for hash, password in zip(hashes, passwords, strict=True)]
        firsts = [hmac.digest(password, hash.salt + FIRST_BLOCK, "sha512")
                  for hash, password in zip(hashes, passwords, strict=True)]
        keys = [(password if len(password) <= BLOCK_BYTES else hashlib.sha512(password).digest())
                .ljust(BLOCK_BYTES, b"\0") for password in passwords]
        digests = self._lanes.derive(keys, firsts, hashes[0].iterations)
        return [compare_digest(digest, hash.digest) and b"\0" not in password
                for digest, hash, password in zip(digests, hashes, passwords, strict=True)]


def new_hash(kind: str, password: bytes, iterations: int = ITERATIONS) -> str:
    """Return the encoded hash of a password, with a new salt."""
    salt = os.urandom(ARGON2_SALT_BYTES if kind == ARGON2ID else SALT_BYTES)
    if kind == SHA512:
        return f"$6${_base64(salt)}${_base64(hashlib.sha512(password + salt).digest())}"
    if kind == PBKDF2:
        digest = hashlib.pbkdf2_hmac("sha512", password, salt, iterations)
        return f"$7${iterations}${_base64(salt)}${_base64(digest)}"
    from argon2 import low_level

    encoded = low_level.hash_secret(password, salt, ARGON2_T, ARGON2_M_KIB, ARGON2_P, DIGEST_BYTES,
                                           low_level.Type.ID)
    return encoded.decode()


def decoy(like: Hash) -> Hash:
    """Return a hash that costs as much to check as `like` and that no known password matches."""
    if like.kind == ARGON2ID:
        *head, digest = like.encoded.split("$")
        random = _base64(os.urandom(len(_unbase64(digest)))).rstrip("=")
        return Hash(ARGON2ID, "$".join((*head, random)))
    return Hash(like.kind, "", os.urandom(len(like.salt)), os.urandom(DIGEST_BYTES), like.iterations)


def _iterations(text: str) -> int:
    if not text.isdigit() or len(text) > 12 or not 1 <= int(text) <= ITERATIONS_MAX:
        raise ValueError(f"iterations are not a number from 1 to {ITERATIONS_MAX}")
    return int(text)


def _salt(text: str) -> bytes:
    salt = _unbase64(text)
    if not 1 <= len(salt) <= SALT_BYTES_MAX:
        raise ValueError(f"the salt has {len(salt)} bytes, expected 1 to {SALT_BYTES_MAX}")
    return salt


def _digest(text: str) -> bytes:
    digest = _unbase64(text)
    if len(digest) != DIGEST_BYTES:
        raise ValueError(f"the hash has {len(digest)} bytes, expected {DIGEST_BYTES}")
    return digest


def _base64(value: bytes) -> str:
    return b2a_base64(value, newline=False).decode()


def _unbase64(text: str) -> bytes:
    try:
        return a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True) if text else b""
    except Base64Error:
        raise ValueError("salt and hash are not base64") from None


def _read_argon2(encoded: str, fields: list[str]) -> Hash:
    if len(fields) != 4 or fields[0] != "v=19":
        raise ValueError(f"expected {EXPECTED}")
    costs = {}
    for part in fields[1].split(","):
        name, _, number = part.partition("=")
        if name not in ("m", "t", "p") or name in costs or not number.isdigit() or len(number) > 9:
            raise ValueError("expected m=NUMBER,t=NUMBER,p=NUMBER")
        costs[name] = int(number)
    if len(costs) != 3:
        raise ValueError("expected m=NUMBER,t=NUMBER,p=NUMBER")
    m, t, p = costs["m"], costs["t"], costs["p"]
    if not 8 * p <= m <= ARGON2_M_KIB_MAX or not 1 <= p <= ARGON2_P_MAX or t < 1 or m * t > ARGON2_WORK_MAX:
        raise ValueError(f"the costs of argon2id are out of bounds: expected p from 1 to {ARGON2_P_MAX}, m from 8 x p "
                         f"to {ARGON2_M_KIB_MAX}, m x t to {ARGON2_WORK_MAX}")
    if not 8 <= len(_unbase64(fields[2])) <= SALT_BYTES_MAX or not 4 <= len(_unbase64(fields[3])) <= SALT_BYTES_MAX:
        raise ValueError(f"expected a salt of 8 to {SALT_BYTES_MAX} bytes and a hash of 4 to {SALT_BYTES_MAX}")
    return Hash(ARGON2ID, encoded)


def has_argon2() -> bool:
    """Return whether the package for argon2id hashes is installed."""
    from importlib.util import find_spec

    return find_spec("argon2") is not None


def argon2_advice() -> str:
    """Return how to install the package for argon2id hashes."""
    from mosq.tools.extras import packages_advice

    return packages_advice(["argon2-cffi>=23.1"])


def _argon2_matches(encoded: str, password: bytes) -> bool:
    from argon2 import low_level  # takes some 20 ms, so only for such a hash
    from argon2.exceptions import Argon2Error

    try:
        return bool(low_level.verify_secret(encoded.encode(), password, low_level.Type.ID))
    except Argon2Error:                 # also if the library rejects the hash or lacks memory
        return False
