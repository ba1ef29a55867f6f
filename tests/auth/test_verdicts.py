from hypothesis import given, strategies as st

from mosq.auth.hashes import PBKDF2, SHA512, new_hash, read_hash
from mosq.auth.verdicts import Verdicts

HASH = read_hash(new_hash(SHA512, b"pw"))


def test_a_remembered_login_is_known():
    verdicts = Verdicts(10, 60)
    key = verdicts.key(HASH, "ann", b"pw")
    assert not verdicts.knows(key)
    verdicts.remember(key)
    assert verdicts.knows(key)


def test_a_login_with_another_password_user_or_hash_is_unknown():
    verdicts = Verdicts(10, 60)
    verdicts.remember(verdicts.key(HASH, "ann", b"pw"))
    assert not verdicts.knows(verdicts.key(HASH, "ann", b"pw2"))
    assert not verdicts.knows(verdicts.key(HASH, "anna", b"pw"))
    assert not verdicts.knows(verdicts.key(read_hash(new_hash(SHA512, b"pw")), "ann", b"pw"))
    assert not verdicts.knows(Verdicts(10, 60).key(HASH, "ann", b"pw"))


def test_logins_are_forgotten_by_age_and_number():
    now = [0.0]
    verdicts = Verdicts(3, 60, clock=lambda: now[0])
    keys = [verdicts.key(HASH, f"u{i}", b"pw") for i in range(5)]
    for key in keys:
        verdicts.remember(key)
    assert len(verdicts) == 3
    assert [verdicts.knows(key) for key in keys] == [False, False, True, True, True]
    now[0] = 60.1
    assert not any(verdicts.knows(key) for key in keys)


def test_size_0_remembers_nothing():
    verdicts = Verdicts(0, 60)
    verdicts.remember(verdicts.key(HASH, "ann", b"pw"))
    assert len(verdicts) == 0


_users = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=5)


@given(st.sets(st.tuples(st.sampled_from((HASH, read_hash(new_hash(PBKDF2, b"x", 1)))), _users, st.binary(max_size=5)),
               min_size=2, max_size=2))
def test_different_triples_have_different_keys(triples):
    verdicts = Verdicts(10, 60)
    one, other = (verdicts.key(*triple) for triple in triples)
    assert one != other
