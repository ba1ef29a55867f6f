"""Test settings: valid ones, the errors for wrong ones; the topic filters of rules; `init`."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosq.cli.commands import main
from mosq.pipeline import MosqPipelineError, filters, settings
from mosq.pipeline.runs import first
from tests.pipeline.journals import Journal

RULE = '[[silver]]\nname = "t"\ntopic = "a/+"\nformat = "json"\n'


def load(folder: Path, text: str) -> settings.Settings:
    path = folder / "pipeline.toml"
    path.write_text(text)
    return settings.load(path)


def test_defaults_and_paths_beside_the_file(tmp_path: Path) -> None:
    found = load(tmp_path, '[pipeline]\njournal = "streams"\n')
    assert (found.sources[0].journal, found.tables, found.checkpoints) == (tmp_path / "streams", str(tmp_path / "tables"), tmp_path / "checkpoints")
    assert (found.trigger_us, found.window_us, found.watermark_us) == (5_000_000, 60_000_000, 600_000_000)
    assert found.sources[0].streams == () and found.silver == () and found.consumer == "pipeline" and found.stop_on_loss


def test_all_settings(tmp_path: Path) -> None:
    found = load(tmp_path, '[pipeline]\njournal = "/j"\nstreams = ["a", "b"]\ntrigger = "500 ms"\nwindow = "2 hours"\nwatermark = "1 day"\nprefix_levels = 3\n'
                 'batch_rows = 7\nconsumer = ""\nstop_on_loss = false\nmaster = "local[1]"\n[spark]\n"spark.driver.memory" = "2g"\n"spark.ui.enabled" = true\n'
                 + RULE + 'schema = "x DOUBLE"\n')
    assert (found.trigger_us, found.window_us, found.watermark_us) == (500_000, 7_200_000_000, 86_400_000_000)
    assert found.sources[0].streams == ("a", "b") and found.batch_rows == 7 and not found.stop_on_loss and found.prefix_levels == 3
    assert found.spark == {"spark.driver.memory": "2g", "spark.ui.enabled": "true"}
    assert found.silver == (settings.Silver("t", "a/+", "json", "x DOUBLE"),)


def test_a_json_schema_declares_columns(tmp_path: Path) -> None:
    content = {"type": "object", "properties": {"temperature": {"type": "number"}, "gps": {"type": "object", "properties": {"lat": {"type": "number"}}}}}
    (tmp_path / "message.json").write_text(json.dumps(content))
    found = load(tmp_path, "[pipeline]\njournal = 'j'\n" + RULE + "json_schema = 'message.json'\n")
    assert found.silver[0].schema == "temperature DOUBLE, gps STRUCT<lat: DOUBLE>"


@pytest.mark.parametrize(("content", "said"), [
    (None, r"number 1 json_schema: .*/message.json: No such file"),
    ("{", r"json_schema: .*/message.json: this is not JSON"),
    ("\udcff", r"json_schema: .*/message.json: this is not JSON"),
    ('{"type": "object", "properties": {"a": {"type": "thing"}}}', r"json_schema: .*/message.json: a: expected one type of integer, .*; got 'thing'"),
])
def test_an_error_in_a_json_schema_names_the_file(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "message.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(MosqPipelineError, match=said):
        load(tmp_path, "[pipeline]\njournal = 'j'\n" + RULE + "json_schema = 'message.json'\n")


@pytest.mark.parametrize(("text", "said"), [
    ("[pipeline]\njournal = 'j'\n" + RULE + "schema = 'a INT'\njson_schema = 'x'", "json_schema: expected either schema or json_schema"),
    ("[pipeline]\njournal = 'j'\n[[silver]]\nname = 'a'\ntopic = 'a'\nformat = 'csv'\njson_schema = 'x'", "json_schema: expected none: only format"),
    ("[pipeline]\nx = ?", "not TOML: .*line 2"),
    ("", r"at the top: pipeline is missing: expected a table"),
    ("[pipeline]", r"\[pipeline\] journal is missing: expected the folder"),
    ("[pipeline]\njournal = 5", r"\[pipeline\] journal: expected the folder.*; got 5"),
    ("[pipeline]\njournal = ''", r"journal: expected the folder.*; got ''"),
    ("[pipeline]\njournal = 'j'\ntrigger = '5 parsecs'", r"trigger: expected a time such as \"5 seconds\".*; got '5 parsecs'"),
    ("[pipeline]\njournal = 'j'\nwindow = '0 s'", "window: expected a time"),
    ("[pipeline]\njournal = 'j'\nwatermark = '36501 days'", r"\[pipeline\] watermark: expected .* at most \"36500 days\"; got '36501 days'"),
    ("[pipeline]\njournal = 'j'\n[retention]\nbronze = '999999 days'", r"\[retention\] bronze: expected .* at most \"36500 days\"; got '999999 days'"),
    ("[pipeline]\njournal = 'j'\n[[source]]\nnode = 'a'\njournal = 'b'", r"journal: expected no such key beside \[\[source\]\]"),
    ("source = [5]\n[pipeline]\n", r"source: expected tables \[\[source\]\]; got 5"),
    ("[pipeline]\n[[source]]\njournal = 'b'", r"\[\[source\]\] number 1 node is missing: expected a name"),
    ("[pipeline]\n[[source]]\nnode = 'a/b'\njournal = 'b'", "node: expected a name of 1 to 64"),
    ("[pipeline]\n[[source]]\nnode = 'a'", r"\[\[source\]\] number 1 journal is missing"),
    ("[pipeline]\n[[source]]\nnode = 'a'\njournal = 'b'\ntrigger = '5 s'", "trigger is unknown: expected node, journal or streams"),
    ("[pipeline]\n[[source]]\nnode = 'a'\njournal = 'b'\n[[source]]\nnode = 'a'\njournal = 'c'", "number 2 node: expected a unique name"),
    ("[pipeline]\n[[source]]\nnode = 'a'\njournal = 'b'\n[[source]]\nnode = 'b'\njournal = './b'", "number 2 journal: expected a folder that no other source has"),
    ("[pipeline]\njournal = 'j'\nprefix_levels = 0", "prefix_levels: expected a number from 1 to 100; got 0"),
    ("[pipeline]\njournal = 'j'\nbatch_rows = true", "batch_rows: expected a number"),
    ("[pipeline]\njournal = 'j'\nstreams = ['a/b']", "streams: expected a list of names.*; got 'a/b'"),
    ("[pipeline]\njournal = 'j'\nstreams = ['a', 'a']", "streams: expected each name once"),
    ("[pipeline]\njournal = 'j'\nconsumer = 'a b'", "consumer: expected a name"),
    ("[pipeline]\njournal = 'j'\nstop_on_loss = 'no'", "stop_on_loss: expected true or false; got 'no'"),
    ("[pipeline]\njournal = 'j'\ntabels = 'x'", r"\[pipeline\] tabels is unknown: expected journal, streams, tables"),
    ("[pipeline]\njournal = 'j'\ntables = 'x'\ncheckpoints = 'x/y'", "lie in one another"),
    ("[pipeline]\njournal = 'j'\ntables = 'x/y'\ncheckpoints = 'x'", "lie in one another"),
    ("[pipeline]\njournal = 'j'\n[bronze]", "at the top: bronze is unknown"),
    ("[pipeline]\njournal = 'j'\n[spark]\nspark.driver.memory = '2g'", r"\[spark\] spark: expected a text"),
    ("[pipeline]\njournal = 'j'\n[spark]\n'spark.sql.session.timezone' = 'Europe/Berlin'", r"\[spark\] .*: expected \"UTC\" or no such key, .*; got 'Europe/Berlin'"),
    ("[pipeline]\njournal = 'j'\n[[silver]]\nname = 'a'\ntopic = 'a/#/b'\nformat = 'json'", r"\[\[silver\]\] number 1 topic: expected a topic filter: `\+` and `#`"),
    ("[pipeline]\njournal = 'j'\n[[silver]]\nname = 'a'\ntopic = ''\nformat = 'json'", "topic: expected a topic filter"),
    ("[pipeline]\njournal = 'j'\n[[silver]]\nname = 'a/b'\ntopic = 'a'\nformat = 'json'", "name: expected 1 to 64 letters"),
    ("[pipeline]\njournal = 'j'\n[[silver]]\nname = 'a'\ntopic = 'a'\nformat = 'xml'", "format: expected one of json, csv, number, sparkplug; got 'xml'"),
    ("[pipeline]\njournal = 'j'\n[[silver]]\nname = 'a'\ntopic = 'a'\nformat = 'csv'", "schema is missing: expected columns"),
    ("[pipeline]\njournal = 'j'\n[[silver]]\nname = 'a'\ntopic = 'a'\nformat = 'number'\nschema = 'x INT'", "schema: expected none: the columns of number are known"),
    ("[pipeline]\njournal = 'j'\n" + RULE + RULE, "number 2 name: expected a unique name"),
    ("silver = 5\n[pipeline]\njournal = 'j'", "silver: expected tables"),
])
def test_an_error_names_file_key_and_expected_value(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(MosqPipelineError, match=said) as error:
        load(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path}/pipeline.toml: ")


def test_a_missing_settings_file(tmp_path: Path) -> None:
    with pytest.raises(MosqPipelineError, match="no such file; `mosq pipeline init"):
        settings.load(tmp_path)


# ---- filters

LEVEL = st.sampled_from(["a", "", "$s", "b.c", "x y", "ü", "a\n", "(", "\\"])


def naive(filter: list[str], topic: list[str]) -> bool:
    if filter[0] in ("+", "#") and topic[0].startswith("$"):
        return False
    for i, level in enumerate(filter):
        if level == "#":
            return True
        if i == len(topic) or level not in ("+", topic[i]):
            return False
    return len(filter) == len(topic) or False


@given(filter=st.lists(st.one_of(LEVEL, st.just("+")), min_size=1, max_size=4), rest=st.booleans(), topic=st.lists(LEVEL, min_size=1, max_size=4))
def test_a_regular_expression_matches_the_same_topics_as_its_filter(filter: list[str], rest: bool, topic: list[str]) -> None:
    levels = [*filter, "#"] if rest else filter
    wanted = naive(levels, topic) or (rest and naive(filter, topic))        # "a/#" matches "a" [v5 4.7.1.2]
    assert (re.search(filters.regex("/".join(levels)), "/".join(topic)) is not None) == wanted


def test_the_hash_filter_excludes_dollar_topics() -> None:
    assert re.search(filters.regex("#"), "a/b") and not re.search(filters.regex("#"), "$SYS/x")
    assert re.search(filters.regex("$SYS/#"), "$SYS/x")


# ---- init

def test_init_writes_settings_that_load_and_makes_the_folders(tmp_path: Path) -> None:
    Journal(tmp_path / "streams", "tele").close()
    lines = first.init(str(tmp_path / "new"), None, str(tmp_path / "streams"))
    found = settings.load(tmp_path / "new")
    assert found.sources[0].journal == tmp_path / "streams" and Path(found.tables).is_dir() and found.checkpoints.is_dir()
    assert any("streams: tele" in line for line in lines)
    text = found.file.read_text()
    found.file.write_text(re.sub(r"^# (?=[a-z\[\"])", "", text, flags=re.MULTILINE))     # the commented lines are valid as well
    assert settings.load(found.file).silver[0].name == "telemetry"
    with pytest.raises(MosqPipelineError, match="is there already"):
        first.init(str(tmp_path / "new"), None, str(tmp_path / "streams"))


def test_init_writes_nothing_if_its_question_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["pipeline", "init", str(tmp_path / "new")]) == 1
    assert capsys.readouterr().err.strip() == "Interrupted: nothing is written."
    assert not (tmp_path / "new").exists()


def test_init_finds_the_streams_of_a_broker(tmp_path: Path) -> None:
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"persistence true\npersistence_location {tmp_path}/\npersistence_file x.db\n")
    lines = first.init(str(tmp_path / "my.toml"), str(config), None)
    assert settings.load(tmp_path / "my.toml").sources[0].journal == tmp_path / "x.db.store/streams"
    assert any("is not there yet: start the broker" in line for line in lines)
    config.write_text("persistence false\n")
    with pytest.raises(MosqPipelineError, match="no `persistence true`"):
        first.init(str(tmp_path / "other.toml"), str(config), None)
    config.write_text("persistenze false\n")
    with pytest.raises(MosqPipelineError, match="persistenze"):
        first.init(str(tmp_path / "other.toml"), str(config), None)


def test_a_mistake_ends_the_command_with_1_and_one_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "-s", str(tmp_path / "none.toml")]) == 1
    assert "none.toml: there is no such file" in capsys.readouterr().err
