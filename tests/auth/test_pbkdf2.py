"""Test that hashing several passwords at once gives the results of hashlib for each."""

import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mosq.auth.hashes import PBKDF2, Checker, Hash
from mosq.engine import password_lanes
from tests.harness.effort import tries

LANES = password_lanes()
WIDTHS = [width for width in (4, 8) if LANES is not None and width <= LANES.lanes()]
PASSWORDS = st.one_of(st.binary(max_size=40), st.binary(min_size=120, max_size=140), st.binary(min_size=250, max_size=300))
SALTS = st.binary(min_size=1, max_size=200)


def derive(pairs, iterations, width):
    keys = [(p if len(p) <= 128 else hashlib.sha512(p).digest()).ljust(128, b"\0") for p, _ in pairs]
    return LANES.derive(keys, [hmac.digest(p, salt + b"\0\0\0\1", "sha512") for p, salt in pairs], iterations, width)


@pytest.mark.again("properties")
@settings(max_examples=tries(300, 60))
@given(st.lists(st.tuples(PASSWORDS, SALTS), min_size=1, max_size=8), st.integers(1, 40))
def test_exact_against_hashlib(pairs, iterations):
    for width in WIDTHS:
        some = pairs[:width]
        assert derive(some, iterations, width) == [hashlib.pbkdf2_hmac("sha512", p, s, iterations) for p, s in some]


@pytest.mark.again("properties")
@settings(max_examples=tries(200, 40))
@given(st.lists(st.tuples(PASSWORDS, SALTS, st.booleans()), min_size=1, max_size=8), st.integers(1, 10))
def test_the_checker_agrees_with_each_hash(cases, iterations):
    checker = Checker()
    cases = cases[:checker.width]
    hashes = [Hash(PBKDF2, "", salt, hashlib.pbkdf2_hmac("sha512", password if good else b"no" + password, salt, iterations),
                   iterations) for password, salt, good in cases]
    passwords = [password for password, _, _ in cases]
    assert checker.match(hashes, passwords) == [h.matches(p) for h, p in zip(hashes, passwords, strict=True)]


def test_without_lanes_hashes_are_checked_one_by_one(monkeypatch):
    monkeypatch.setattr("mosq.auth.hashes.password_lanes", lambda: None)
    checker = Checker()
    assert checker.width == 1
    good = Hash(PBKDF2, "", b"salt", hashlib.pbkdf2_hmac("sha512", b"pw", b"salt", 3), 3)
    assert checker.match([good, good], [b"pw", b"no"]) == [True, False]


@pytest.mark.parametrize(("keys", "firsts", "iterations"), [
    ([], [], 1), ([bytes(128)] * 9, [bytes(64)] * 9, 1), ([bytes(127)], [bytes(64)], 1), ([bytes(128)], [bytes(63)], 1),
    ([bytes(128)], [], 1), ([bytes(128)], [bytes(64)], 0)])
def test_inputs_of_the_wrong_size_are_refused(keys, firsts, iterations):
    if LANES is not None:
        with pytest.raises(ValueError, match="expected"):
            LANES.derive(keys, firsts, iterations)
