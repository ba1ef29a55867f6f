"""Test which files are taken as the secret of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from mosq.cluster.secret import read_secret


def test_the_secret_is_the_content_without_white_space_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"x" * 32 + b"\r\n")
    path.chmod(0o640)
    assert read_secret(str(path)) == b"x" * 32


@pytest.mark.parametrize(("content", "mode", "text"), [
    (b"x" * 31 + b"\n", 0o600, "has 31 bytes, and the secret of a cluster has at least 32"),
    (b"x" * 32, 0o604, "all users may read or write it"),
    (b"x" * 32, 0o602, "all users may read or write it"),
])
def test_a_short_secret_and_one_that_all_users_may_read_are_refused(tmp_path: Path, content: bytes, mode: int, text: str) -> None:
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ValueError, match=text) as caught:
        read_secret(str(path))
    assert "xxx" not in str(caught.value)
