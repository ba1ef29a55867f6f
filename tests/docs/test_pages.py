"""Checks on all Markdown pages: paths of the repository and links in them exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mosq.config.options import BY_KEYWORD

ROOT = Path(__file__).parents[2]
PAGES = sorted(path for pattern in ("*.md", "docs/**/*.md", "perf/FINDINGS.md") for path in ROOT.glob(pattern))
FOLDERS = ("cext", "mosq", "tests", "perf", "docs", "conf", "dev", ".ci")
IN_BACKTICKS = re.compile(rf"`((?:{'|'.join(map(re.escape, FOLDERS))})/[^`\s]*)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def exists(name: str) -> bool:
    """Return whether `name` is a file, a folder, a module without its extension, or a pattern with a match."""
    plain = name.rstrip("/").split("::")[0]
    if any(letter in plain for letter in "*?"):
        return any(ROOT.glob(plain))
    path = ROOT / plain
    return path.exists() or any(path.with_name(path.name + end).exists() for end in (".py", ".pyx", ".pxd"))


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_path_exists(page: Path) -> None:
    missing = [name for name in IN_BACKTICKS.findall(page.read_text()) if "..." not in name and not exists(name)]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_target_of_each_link_exists(page: Path) -> None:
    text = page.read_text()
    broken = []
    for link in LINK.findall(CODE.sub("", text)):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        found = target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors(target.read_text()))
        if not found:
            broken.append(link)
    assert not broken


def test_the_tests_that_a_table_of_facts_names_exist() -> None:
    """A row of docs/testing.md has parts such as "tests/cli/test_x.py: `test_a`, row `b`"; the file must contain each of the names."""
    text = (ROOT / "docs/testing.md").read_text().partition("\n## Facts of Mosquitto's own tests\n")[2].partition("\n## ")[0]
    parts = [part for line in text.splitlines() if line.startswith("| ") for part in re.split(r"; |\| ", line) if part.startswith("tests/")]
    assert len(parts) > 20
    for part in parts:
        file, _, names = part.strip(" |").partition(": ")
        content = (ROOT / file).read_text()
        for name in re.findall(r"`([^`]+)`", names):
            assert f"def {name}(" in content or f'"{name}"' in content, part


def test_a_wrong_path_is_found() -> None:
    assert IN_BACKTICKS.findall("see `cext/none.pyx` and `mosq/cli`") == ["cext/none.pyx", "mosq/cli"]
    assert not exists("cext/none.pyx")
    assert exists("cext/net/reactor") and exists("mosq/cli") and exists("cext/*/*.pyx")


def test_the_list_of_decisions_is_complete() -> None:
    folder = ROOT / "docs/adr"
    assert set(re.findall(r"\]\((\d{4}-[^)]+)\)", (folder / "README.md").read_text())) == {path.name for path in folder.glob("0*.md")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_command_of_the_repository_exists(page: Path) -> None:
    text = page.read_text()
    modules = {name.replace(".", "/") for name in re.findall(r"python3? -m ((?:mosq|perf|tests)(?:\.\w+)*)", text)}
    assert not [name for name in modules if not (exists(name) or exists(f"{name}/__main__"))]
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, re.MULTILINE)) <= targets
    programs = re.findall(r"(?:^|`)(dev/[\w-]+)(?![\w.-])", text, re.MULTILINE)
    assert not [name for name in programs if not exists(name)]
    imports = {name.replace(".", "/") for name in re.findall(r"^from (mosq[\w.]*) import", text, re.MULTILINE)}
    assert not [name for name in imports if not exists(name)]


def test_the_differences_name_each_option_that_only_mosq_has() -> None:
    page = (ROOT / "docs/differences.md").read_text()
    assert [name for name, option in BY_KEYWORD.items() if option.own and f"`{name}`" not in page] == []
