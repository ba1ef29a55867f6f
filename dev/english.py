"""Check that prose in this repository is plain English.

Usage: ``dev/english.py [--count] [PATH ...]``; a path is a file or a folder, and without paths the lint reads
every file that git tracks. ``dev/english.py --commits RANGE`` checks the subjects of commits instead.

The lint reads comments and docstrings of Python and Cython, comments of shell scripts and Makefiles, and
Markdown outside of code. In ``mosq`` and ``cext`` it also reads strings of three words and more, which become help,
errors and log lines. In Python files below ``tests`` it also reads the messages of ``assert`` and
``pytest.fail``, and the names of functions word by word. It prints ``file:line: word: advice`` for each finding,
and ends with status 1 if there is one. CONTRIBUTING.md explains the style.

A line that must keep its words, because it quotes Mosquitto or a standard, ends with ``english: quote`` in a comment.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

Prose = tuple[int, str]     # first line number, text of one or more lines
Reader = Callable[[str], Iterator[tuple[int, str, bool]]]

PEOPLE = ("user|users|operator|operators|person|people|developer|developers|reader|reviewer|newcomer|maintainer|"
          "engineer|author|attacker|stranger|owner|those|everyone|anyone|someone")


class Rule(NamedTuple):
    name: str
    pattern: re.Pattern[str]
    advice: str


def rule(name: str, pattern: str, advice: str, flags: int = re.IGNORECASE) -> Rule:
    """Return a rule; a space in the pattern matches a line end as well."""
    return Rule(name, re.compile(pattern.replace(" ", r"\s+"), flags), advice)


# What a sentence must not contain, wherever it stands.
RULES = (
    rule("told", r"\b(told|tells)\b", "write log, report, return, send or notify"),
    rule("said", r"\b(is|are|was|were|be|been|has|have|had|as|being) said\b|\bsaid (of|about|so|to)\b",
         "name the subject: the log line, the option"),
    rule("who", r"\b(whom|whoever|whomever|who)\b", "write 'the client that', 'the caller that'"),
    rule("nobody", r"\b(nobody|somebody|anybody|everybody)\b", "name the subject: no client, a caller"),
    rule("anew", r"\banew\b", "write again"),
    rule("meanwhile", r"\bmeanwhile\b", "write while, and name what happens"),
    rule("owed", r"\b(owed|owes)\b", "write pending, or waiting for a delivery"),
    rule("mend", r"\bmend(s|ed|ing)?\b", "write fix, repair or correct"),
    rule("archaic", r"\b(therein|thereof|whereby|befits?|hither|thither|whence|lest)\b", "use a common word"),
    rule("what is not", r"\bwhat is not\b", "name the thing that is missing"),
    rule("as it stands", r"\bas it stands\b", "write unchanged, or current"),
    rule("he", r"\b(he|him|his|himself)\b", "a program is 'it'; write the client"),
)

# What a sentence must not begin with.
FIRST_WORDS = (
    rule("what is ...", r"what (is|was|are|were|has|had|have|comes|came|goes|went|lies|does|did|it|they|we|"
         r"remains|waits|matters|counts|follows)\b(?!.*\?)",
         "begin with the subject of the sentence"),
    rule("who ...", r"who(se)? (?!.*\?)", "begin with the subject of the sentence"),
)
DOCSTRING_START = rule("docstring", r"(of|what|who|whose|whom|whether|how|where|why|when it|for whom)\b",
                       "begin the docstring with a verb")
# What the name of a function in tests must not contain, as a word between underscores.
NAME = rule("name", r"(?<![a-z])(who|whom|whoever|told|tells|said|nobody|somebody|anybody|everybody|anew|mend|mends|mended|"
            r"meanwhile|owed)(?![a-z])", "state the fact that is tested, and name its subject")
SENTENCE = re.compile(r"(?:^|(?<=[.;:!?])\s+|(?<=\*\*)\s+)(?=[A-Za-z*`])")


def python_prose(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, text, is a docstring) of each comment and docstring."""
    comments: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            comments[token.start[0]] = token.string.lstrip("# ")
    yield from ((line, comment, False) for line, comment in join_lines(comments))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            text_of = first.value if isinstance(first, ast.Expr) else None
            if isinstance(text_of, ast.Constant) and isinstance(text_of.value, str):
                yield first.lineno, text_of.value, True


FAILURES = ("pytest.fail", "pytest.skip", "AssertionError")


def literal(node: ast.expr | None) -> str:
    """Return the text of a string, an f-string or a sum of these; a value in it becomes `x`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "x" for part in node.values)
    if isinstance(node, ast.BinOp):
        return literal(node.left) + literal(node.right)
    return ""


def messages(tree: ast.AST) -> Iterator[Prose]:
    """Yield (line, text) of each message of `assert`, `pytest.fail`, `pytest.skip` and `AssertionError`."""
    for node in ast.walk(tree):
        message: ast.expr | None = None
        if isinstance(node, ast.Assert):
            message = node.msg
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in FAILURES:
            message = node.args[0]
        if message is not None:
            yield message.lineno, literal(message)


def findings_in_tests(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, words found, advice) of the names of functions and the messages in a file of tests."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (found := NAME.pattern.search(node.name)):
            yield node.lineno, found[0], f"in the name {node.name}: {NAME.advice}"
    for line, message in messages(tree):
        yield from ((line, words, advice) for _, words, advice in findings_of(message, False))


def findings_in_strings(text: str, suffix: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, words found, advice) of the strings that have at least three words."""
    if suffix == ".py":
        strings = [(node.lineno, node.value) for node in ast.walk(ast.parse(text))
                   if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    else:
        strings = [(text.count("\n", 0, found.start()) + 1, found["string"]) for found in SEGMENT.finditer(text)
                   if found["string"]]
    for line, string in strings:
        if string.count(" ") >= 2:
            yield from ((line + offset, words, advice) for offset, words, advice in findings_of(string, False))


SEGMENT = re.compile(r'(?P<doc>"""(?:[^\\]|\\.)*?""")'
                     r'|(?P<string>"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')'
                     r'|(?P<comment>#[^\n]*)', re.DOTALL)


def cython_prose(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, text, is a docstring) of each comment and docstring of Cython."""
    comments: dict[int, str] = {}
    for found in SEGMENT.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        if found["comment"]:
            comments[line] = found[0].lstrip("# ")
        elif found["doc"]:
            yield line, found[0][3:-3], True
    yield from ((line, comment, False) for line, comment in join_lines(comments))


def shell_prose(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, text, False) of each comment that stands on a line of its own."""
    comments = {i: line.strip().lstrip("# ") for i, line in enumerate(text.splitlines(), 1)
                if line.lstrip().startswith("#") and not line.startswith("#!")}
    yield from ((line, comment, False) for line, comment in join_lines(comments))


def markdown_prose(text: str) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, text, False) of each line outside of code."""
    fenced = False
    for i, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced:
            yield i, re.sub(r"`[^`]*`", "`code`", line).lstrip(" #>-*|0123456789."), False


def join_lines(comments: dict[int, str]) -> Iterator[Prose]:
    """Join comments on consecutive lines, so that a sentence is seen whole."""
    first, lines = 0, list[str]()
    for line in sorted(comments):
        if lines and line != first + len(lines):
            yield first, "\n".join(lines)
            lines = []
        if not lines:
            first = line
        lines.append(comments[line])
    if lines:
        yield first, "\n".join(lines)


READERS: dict[str, Reader] = {".py": python_prose, ".pyi": python_prose, ".pyx": cython_prose, ".pxd": cython_prose,
           ".md": markdown_prose, ".sh": shell_prose, "Makefile": shell_prose}
# the licence is not ours; the results are measurements; this file and the page on style list the words themselves
EXEMPT = ("LICENSE", "perf/results/", "perf/plots/", "dev/english.py", "tests/docs/test_english.py", "docs/glossary.md")


def reader_of(path: Path) -> Reader | None:
    """Return the reader for a file, or None if the lint does not read such files."""
    found = READERS.get(path.suffix) or READERS.get(path.name)
    if found is None and path.suffix == "" and str(path).startswith(("dev/", ".ci/")):
        return shell_prose
    return found


def allowed_who(text: str, at: int) -> bool:
    """Return whether the `who` at this place is about a person, or a question."""
    before = text[:at].rstrip(" ,(").lower()
    return bool(re.search(rf"\b({PEOPLE})$", before)) or bool(re.match(r"[^.;\n]*\?", text[at:]))


def findings_of(text: str, is_docstring: bool) -> Iterator[tuple[int, str, str]]:
    """Yield (offset in lines, words found, advice)."""
    for each in RULES:
        for found in each.pattern.finditer(text):
            if each.name == "who" and allowed_who(text, found.start()):
                continue
            yield text.count("\n", 0, found.start()), found[0], each.advice
    for start in SENTENCE.finditer(text):
        rest = text[start.end():]
        for each in FIRST_WORDS:
            if found := each.pattern.match(rest.split("\n\n", 1)[0]):
                yield text.count("\n", 0, start.end()), found[0].split("\n")[0][:30], each.advice
    if is_docstring and (found := DOCSTRING_START.pattern.match(text.lstrip())):
        yield 0, found[0], DOCSTRING_START.advice


def check(path: Path) -> Iterator[str]:
    """Yield one line for each finding in a file."""
    reader = reader_of(path)
    if reader is None:
        return
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    found = [(line + offset, words, advice) for line, prose, is_docstring in reader(text)
             for offset, words, advice in findings_of(prose, is_docstring)]
    if path.suffix == ".py" and "tests" in path.parts:
        found += findings_in_tests(text)
    if path.suffix in (".py", ".pyx", ".pxd") and not {"mosq", "cext"}.isdisjoint(path.parts):
        found += [finding for finding in findings_in_strings(text, path.suffix) if finding not in found]
    for at, words, advice in found:
        if "english: quote" not in lines[min(at, len(lines)) - 1]:
            yield f"{path}:{at}: {words!r}: {advice}"


SUBJECT_MAX = 72


def check_commits(commits: str) -> Iterator[str]:
    """Yield one line for each commit of a range whose subject is too long; merges do not count."""
    out = subprocess.run(["git", "log", "--no-merges", "--format=%h %s", commits], check=True, capture_output=True,
                         text=True).stdout
    for line in out.splitlines():
        commit, _, subject = line.partition(" ")
        if len(subject) >= SUBJECT_MAX:
            yield f"{commit}: the subject has {len(subject)} characters; write fewer than {SUBJECT_MAX}: {subject}"


def tracked(*paths: str) -> Iterable[Path]:
    """Return the files that git tracks, all of them or those below the paths."""
    out = subprocess.run(["git", "ls-files", "-z", *paths], check=True, capture_output=True, text=True).stdout
    return (Path(name) for name in out.split("\0") if name)


def main(arguments: list[str]) -> int:
    """Run the lint; return 1 if there are findings."""
    if arguments[:1] == ["--commits"]:
        long = list(check_commits(arguments[1]))
        print(*long, sep="\n", end="\n" if long else "")
        return 1 if long else 0
    counting = "--count" in arguments
    found = [line for path in tracked(*(each for each in arguments if each != "--count"))
             if not str(path).startswith(EXEMPT) and path.is_file()
             for line in check(path)]
    if counting:
        for folder, n in sorted(Counter("/".join(line.split("/")[:2]).split(":")[0] for line in found).items()):
            print(f"{n:6} {folder}")
        print(f"{len(found):6} in all")
    else:
        print("\n".join(found)) if found else None
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
