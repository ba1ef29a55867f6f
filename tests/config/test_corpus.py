"""Test 71 real files, which are not part of this repository: Mosquitto's verdict on each is in their INDEX.md, and must be ours.

The test runs if the folder exists: MOSQ_CORPUS, or ../shared/corpus beside the checkout.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from mosq.config.errors import ConfigError
from mosq.config.parser import load_config

CORPUS = Path(os.environ.get("MOSQ_CORPUS", Path(__file__).parents[3] / "shared" / "corpus")) / "mosquitto-conf"
ROW = re.compile(r"^\| (\d{3}-\S+\.conf) \|.*\| (0|3), ([^|]*) \|$", re.MULTILINE)
FOLDERS = re.compile(rb"(?m)^(\s*(?:include_dir|http_dir)[ \t]+).*?(\r?)$")


class Verdict(NamedTuple):
    name: str
    status: int
    said: str               # the first error of a refusal
    line: int | None


def verdicts() -> list[Verdict]:
    if not CORPUS.is_dir():
        return []
    rows = []
    for name, status, said in ROW.findall((CORPUS / "INDEX.md").read_text()):
        text, _, rest = said.partition(" — ")
        line = re.match(r"line (\d+)", rest)
        rows.append(Verdict(name, int(status), text.strip(), int(line[1]) if line else None))
    return rows


VERDICTS = verdicts()


def test_every_file_has_a_verdict():
    assert [verdict.name for verdict in VERDICTS] == sorted(path.name for path in CORPUS.glob("*.conf"))
    assert not VERDICTS or (len(VERDICTS), sum(v.status == 0 for v in VERDICTS)) == (71, 58)


# The files are not in this repository; without them this test has no rows, and pytest skips it.
@pytest.mark.parametrize("verdict", VERDICTS, ids=[verdict.name for verdict in VERDICTS])
def test_the_verdict_is_that_of_mosquitto(verdict, tmp_path):
    # as the index describes: a copy, with include_dir and http_dir at an empty folder
    folder = tmp_path / "empty"
    folder.mkdir()
    path = tmp_path / verdict.name
    content = (CORPUS / verdict.name).read_bytes()
    path.write_bytes(FOLDERS.sub(lambda match: match[1] + os.fsencode(folder) + match[2], content))
    if verdict.status == 0:
        load_config(str(path))
        return
    with pytest.raises(ConfigError) as caught:
        load_config(str(path))
    said, where = str(caught.value).split("\n")
    assert said.startswith(verdict.said)
    assert where.startswith(f"Error found at {path}:")
    if verdict.line is not None:
        assert where == f"Error found at {path}:{verdict.line}."
