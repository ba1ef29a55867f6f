"""Real files: the examples of `conf/`, and files of other people where they are at hand."""

from pathlib import Path

import pytest

from mosq.config.acl import load_acl
from mosq.config.errors import ConfigError
from mosq.config.parser import load_config
from mosq.settings import engine_listeners, engine_securities, engine_settings

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "conf").glob("*.conf"))
CORPUS = ROOT.parent / "shared" / "corpus"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_loads_without_a_warning(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    config = load_config(str(path))
    assert config.warnings == []
    assert not config.local_only
    assert engine_settings(config, 0)
    assert len(engine_listeners(config)) == len(config.listeners)
    engine_securities(config)


def test_make_run_serves_everybody_on_1883():
    config = load_config(str(ROOT / "conf/mosquitto.conf"))
    assert [(x.port, x.host, config.allows_anonymous(x)) for x in config.listeners] == [(1883, None, True)]


def test_files_of_the_corpus_load_or_are_refused_by_file_and_line():
    # 71 files of other people, not part of this repository; whether each verdict is Mosquitto's is a later work
    for path in sorted(CORPUS.glob("mosquitto-conf/*.conf")):
        try:
            load_config(str(path))
        except ConfigError as error:
            assert f"Error found at {path}:" in str(error), path.name
    for path in sorted(CORPUS.glob("acl/*.acl")):
        assert load_acl(str(path)), path.name
