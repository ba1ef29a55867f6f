import base64
import hashlib

import pytest
from hypothesis import given, settings, strategies as st

from mosq.auth.hashes import (
    ARGON2_M_KIB_MAX, ARGON2ID, ITERATIONS_MAX, KINDS, PBKDF2, SHA512, Hash, decoy, new_hash, read_hash,
)

B64 = base64.b64encode(b"x" * 64).decode()
SALT = base64.b64encode(b"s" * 12).decode()


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_hash_matches_only_its_password(kind):
    password = "pässwörd".encode()
    hash = read_hash(new_hash(kind, password, 3))
    assert hash.kind == kind
    assert hash.matches(password)
    for wrong in (b"", password[:-1], password + b"\0", password + b"x"):
        assert not hash.matches(wrong)


def test_two_hashes_of_a_password_differ():
    for kind in (SHA512, PBKDF2):
        assert new_hash(kind, b"a", 1) != new_hash(kind, b"a", 1)


def test_each_hash_form_matches_its_digest():
    digest = base64.b64encode(hashlib.sha512(b"pw" + b"s" * 12).digest()).decode()
    assert read_hash(f"$6${SALT}${digest}").matches(b"pw")
    digest = base64.b64encode(hashlib.pbkdf2_hmac("sha512", b"pw", b"s" * 12, 101)).decode()
    assert read_hash(f"$7$101${SALT}${digest}").matches(b"pw")


def test_new_hashes_have_lengths_and_costs_that_every_mosquitto_reads():
    _, kind, iterations, salt, digest = new_hash(PBKDF2, b"a").split("$")
    assert (kind, iterations) == ("7", "1000")
    assert (len(base64.b64decode(salt)), len(base64.b64decode(digest))) == (12, 64)
    assert new_hash(ARGON2ID, b"a").startswith("$argon2id$v=19$m=47104,t=1,p=1$")


@pytest.mark.parametrize(("encoded", "says"), [
    ("secret", "not hashed"),
    ("", "not hashed"),
    ("$", "expected"),
    ("$5$a$b", "expected"),
    (f"$6${SALT}", "expected"),
    (f"$6${SALT}${B64}$x", "expected"),
    (f"$6${SALT}$!!!!", "base64"),
    (f"$6${SALT}${SALT}", "12 bytes, expected 64"),
    (f"$6$${B64}", "0 bytes, expected 1 to"),
    (f"$7$0${SALT}${B64}", "iterations"),
    (f"$7$-1${SALT}${B64}", "iterations"),
    (f"$7$1x${SALT}${B64}", "iterations"),
    (f"$7$\u0661${SALT}${B64}", "expected"),
    (f"$7${ITERATIONS_MAX + 1}${SALT}${B64}", "iterations"),
    (f"$7${'9' * 400}${SALT}${B64}", "iterations"),
    ("$6$" + "a" * 5000, "longer than"),
    (f"$argon2id$v=18$m=64,t=1,p=1${SALT}${B64}", "expected"),
    (f"$argon2id$v=19$m=64,t=1${SALT}${B64}", "m=NUMBER"),
    (f"$argon2id$v=19$m=64,t=1,t=2${SALT}${B64}", "m=NUMBER"),
    (f"$argon2id$v=19$m=64,t=1,p=x${SALT}${B64}", "m=NUMBER"),
    (f"$argon2id$v=19$m={ARGON2_M_KIB_MAX + 1},t=1,p=1${SALT}${B64}", "out of bounds"),
    (f"$argon2id$v=19$m=1048576,t=999999,p=1${SALT}${B64}", "out of bounds"),
    (f"$argon2id$v=19$m=64,t=0,p=1${SALT}${B64}", "out of bounds"),
    (f"$argon2id$v=19$m=64,t=1,p=9${SALT}${B64}", "out of bounds"),
    (f"$argon2id$v=19$m=64,t=1,p=1$c2hvcnQ=${B64}", "salt of 8"),
])
def test_bad_hashes_are_refused_and_not_shown(encoded, says):
    with pytest.raises(ValueError, match=says) as error:
        read_hash(encoded)
    assert B64 not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS)
def test_a_decoy_costs_the_same_and_matches_no_password(kind):
    real = read_hash(new_hash(kind, b"pw", 7))
    other = decoy(real)
    assert (other.kind, other.iterations, len(other.salt)) == (real.kind, real.iterations, len(real.salt))
    assert not other.matches(b"pw")
    assert not other.matches(b"")
    if kind == ARGON2ID:
        assert other.encoded.split("$")[:5] == real.encoded.split("$")[:5]


@given(st.text(max_size=300))
def test_any_text_is_a_hash_or_a_value_error(text):
    try:
        hash = read_hash(text)
    except ValueError:
        return
    assert isinstance(hash, Hash)


@settings(max_examples=50)
@given(st.sampled_from((SHA512, PBKDF2)), st.binary(max_size=100), st.binary(max_size=100))
def test_different_passwords_never_match_one_hash(kind, one, other):
    hash = read_hash(new_hash(kind, one, 1))
    assert hash.matches(one) == (b"\0" not in one)
    assert hash.matches(other) == (one == other and b"\0" not in one)
