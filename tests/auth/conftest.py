import pytest

from mosq.auth.hashes import PBKDF2, new_hash

from .engine import FakeEngine


@pytest.fixture
def engine():
    engine = FakeEngine()
    yield engine
    if engine.access is not None:
        engine.access.close()


@pytest.fixture
def password_file(tmp_path):
    """Write a password file with ann:secret and ben:other, with hashes that are cheap to check."""
    path = tmp_path / "passwd"
    write_users(path, ann=b"secret", ben=b"other")
    return path


def write_users(path, **users):
    path.write_text("".join(f"{user}:{new_hash(PBKDF2, password, 2)}\n" for user, password in users.items()))
    path.chmod(0o600)
