"""Test the lint for plain English: each rule finds its words, and sound sentences pass."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def english() -> ModuleType:
    spec = importlib.util.spec_from_file_location("english", ROOT / "dev" / "english.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["english"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("text", [
    "The client is told.", "It was said so.", "Clients who wait.", "Nobody waits.", "It is made anew.", "Meanwhile it waits.", "A message that is owed.",
    "It is mended.", "What is not known stays.", "Left as it stands.", "Then he waits.", "What was read is kept.", "First this. What lies behind goes.",
])
def test_finds(english: ModuleType, tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{text}\n")
    assert [line.split(":")[1] for line in english.check(page)][:1] == ["3"]


@pytest.mark.parametrize("text", ["Of a client.", "What a client sent.", "Whether it waits."])
def test_docstrings_begin_with_a_verb(english: ModuleType, tmp_path: Path, text: str) -> None:
    for name, source in (("a.py", f'def f():\n    """{text}"""\n'), ("a.pyx", f'cdef int f() noexcept nogil:\n    """{text}"""\n    return 0\n')):
        (tmp_path / name).write_text(source)
        assert any("begin the docstring" in line for line in english.check(tmp_path / name)), name


@pytest.mark.parametrize(("name", "source"), [
    ("a.py", '"""Return the client."""\nwho = "nobody told"      # the caller frees it\n'),
    ("a.pyx", 'cdef int who = 1     # a user who logs in\nfail("he is told")\n'),
    ("a.md", "Users who log in.\n\n```\nnobody is told\n```\n`who` is code. What is a session?\n"),
    ("a.py", "# Mosquitto logs: told   english: quote\n"),
])
def test_passes(english: ModuleType, tmp_path: Path, name: str, source: str) -> None:
    (tmp_path / name).write_text(source)
    assert list(english.check(tmp_path / name)) == []


def test_a_sentence_over_two_comment_lines(english: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.pyx").write_text("# The client waits. What\n# is read goes on.\ncdef int n\n")
    assert len(list(english.check(tmp_path / "a.pyx"))) == 1


@pytest.mark.parametrize("source", [
    "def test_who_waits():\n    pass\n", "async def test_the_loss_is_told():\n    pass\n", "class TestIt:\n    def test_it_is_made_anew(self):\n        pass\n",
    "def said():\n    pass\n", "def test_a_message_that_nobody_owed_2():\n    pass\n", 'assert 1, "the client is told"\n',
    'assert 1, f"{1} is owed"\n', 'import pytest\npytest.fail("nobody waits")\n', 'raise AssertionError("it is made anew")\n',
])
def test_names_and_messages_of_tests_are_checked(english: ModuleType, tmp_path: Path, source: str) -> None:
    (tmp_path / "tests").mkdir()
    for folder, findings in (("tests", 1), (".", 0)):
        (tmp_path / folder / "test_a.py").write_text(source)
        assert len(list(english.check(tmp_path / folder / "test_a.py"))) == findings


@pytest.mark.parametrize("source", [
    "def test_the_whole_answer_commends_a_recommended_client():\n    pass\n", "def unsaid():\n    who = 1\n    return who\n",
    'assert 1, "the client gets no answer"\n', 'assert told(1), said["who"]\n', "def test_told():     # english: quote\n    pass\n",
])
def test_plain_names_and_messages_of_tests_pass(english: ModuleType, tmp_path: Path, source: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text(source)
    assert list(english.check(tmp_path / "tests/test_a.py")) == []


def test_finds_words_in_errors_and_log_lines(english: ModuleType, tmp_path: Path) -> None:
    for name in ("mosq/a.py", "cext/a.pyx"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text('reason = "the key that nobody knows"\nplain = "the key of another client"\nword = "nobody"\n')
        assert [line.split(":")[1] for line in english.check(path)] == ["1"], name
