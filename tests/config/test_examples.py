"""Real files: the examples of `conf/`, and files of other people where they are at hand."""

import os
from pathlib import Path

import pytest

from mosq.config.acl import load_acl
from mosq.config.parser import load_config
from mosq.settings import engine_listeners, engine_securities, engine_settings

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "conf").glob("*.conf"))
CORPUS = Path(os.environ.get("MOSQ_CORPUS", ROOT.parent / "shared" / "corpus"))


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


def test_acl_files_of_other_people_load():
    for path in sorted(CORPUS.glob("acl/*.acl")):
        assert load_acl(str(path)), path.name
