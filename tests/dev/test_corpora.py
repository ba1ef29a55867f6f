"""Check the inputs of the fuzzer that are in the repository, and how they are packed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import corpora, run

ALL_MAX = 400_000               # bytes of all files


def test_each_target_has_inputs_and_all_are_small() -> None:
    files = {path.stem: path.stat().st_size for path in corpora.FOLDER.iterdir()}
    assert set(files) == set(run.MODULE), "a target without inputs, or inputs without a target; dev/fuzz --save writes them"
    assert max(files.values()) <= corpora.FILE_MAX and sum(files.values()) <= ALL_MAX
    for target in files:
        inputs = corpora.read(target)
        assert len(inputs) == len(set(inputs)) > 1 and max(map(len, inputs)) <= corpora.INPUT_MAX, target


def test_packed_inputs_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "FOLDER", tmp_path / "corpora")
    assert corpora.read("name") == []
    inputs = [bytes([n]) * n for n in range(100)]
    assert corpora.pack("name", [*inputs[::-1], inputs[3], bytes(corpora.INPUT_MAX + 1)])[0] == 100
    assert corpora.read("name") == inputs
    corpora.unpack("name", tmp_path / "folder")
    assert sorted(path.read_bytes() for path in (tmp_path / "folder").iterdir()) == sorted(inputs)


def test_inputs_beyond_the_limit_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import random
    monkeypatch.setattr(corpora, "FOLDER", tmp_path / "corpora")
    noise = random.Random(1)
    kept, size = corpora.pack("name", [noise.randbytes(500) for _ in range(100)])
    assert 10 < kept < 100 and size <= corpora.FILE_MAX


def test_a_damaged_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "FOLDER", tmp_path)
    (tmp_path / "name.zlib").write_bytes(b"no zlib")
    with pytest.raises(ValueError, match=r"name\.zlib"):
        corpora.read("name")
