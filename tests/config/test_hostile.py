"""Test that any bytes give a configuration, or an error with a file and a line, in linear time."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mosq.config.change import changes
from mosq.config.errors import ConfigError
from mosq.config.explain import explain
from mosq.config.model import Config
from mosq.config.options import BY_KEYWORD
from mosq.config.parser import COMMAND_LINE, Reader, load_config
from mosq.server.settings import engine_listeners, engine_settings, log_mask
from tests.config.keywords import KEYWORDS, ROWS
from tests.harness.effort import tries

LINES = [line for lines, _ in ROWS.values() for line in lines if "{folder}" not in line]
VALUES = ["", "true", "0", "-1", "99999999999999999999", "0x10", "a b", '"', '""', '"a b" out 1', "#", "# c", "a/#", "file ", "file /x", "all",
          "h:1 i", "\t", "é", "x" * 60, "3,4", "127.0.0.1", "0 /s", "1883", "python:a:B"]
keywords = st.sampled_from([*KEYWORDS, *BY_KEYWORD, "plugin_opt_key", "auth_opt_x", "nonsense"])
# except options that open a file
line = st.one_of(st.sampled_from(LINES), st.builds("{} {}".format, keywords, st.one_of(st.sampled_from(VALUES), st.text(max_size=20))))
pytestmark = pytest.mark.again("hostile")
some = settings(max_examples=tries(1000, 100), suppress_health_check=[HealthCheck.too_slow])


def read(content: bytes) -> Config | ConfigError:
    """Return a configuration or an error; anything else is a failure."""
    config = Config()
    try:
        Reader(config).read_content("f.conf", content, main=True)
    except ConfigError as error:
        assert error.origin is not None
        assert error.origin.file == "f.conf"
        assert 1 <= error.origin.line <= content.count(b"\n") + 1
        assert str(error).startswith("Error: ") and len(str(error)) < 1000 + 12 * len(content)
        return error
    return config


@given(st.binary(max_size=300))
@some
def test_any_bytes(content):
    read(content)


@given(st.lists(line, max_size=8), st.sampled_from(["\n", "\r\n"]))
@some
def test_lines_of_known_words(lines, end):
    lines = [text for text in lines if not text.startswith("include_dir")]
    config = read(end.join(lines).encode())
    if isinstance(config, Config):      # a valid configuration must give settings for the engine
        engine_listeners(config)
        engine_settings(config, log_mask(config))
        assert changes(config, config) == []
        assert explain(config)


@given(st.lists(line, max_size=8), st.binary(min_size=1, max_size=3), st.integers(0, 400))
@some
def test_good_lines_with_a_few_bad_bytes(lines, noise, place):
    content = "\n".join(text for text in lines if "include_dir" not in text).encode()
    read(content[:place] + noise.replace(b"include_dir", b"") + content[place:])


@given(st.lists(line, max_size=4))
@some
def test_whole_files(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("hostile") / "f.conf"
    path.write_text("\n".join(text for text in lines if not text.startswith("include_dir")), encoding="utf-8", newline="")
    try:
        load_config(str(path), overrides=("index tree",))
    except ConfigError as error:
        assert error.origin is not None and error.origin.file in (str(path), COMMAND_LINE)


@pytest.mark.parametrize("text", [
    "listener 0 /s@\n", "websockets_origin o@\n", "topic t@\n", "plugin_opt_key@ v\n", "connection c@\n", "log_type debug none\n",
    "plugin_load n@ /p\n", "max_qos 1 junk\n", "max_qos 1\n", "log_dest stderr\n", "nonsense", '"', "topic " + '"' * 50, "topic \"", "# #",
])
def test_large_files_take_linear_time(text):
    """Test without a clock: a step of quadratic time would take minutes for 30,000 lines."""
    content = "".join(text.replace("@", str(i)) for i in range(30_000)).encode()
    read(b"connection z\naddress h\nlistener 1\nplugin python:a:B\n" + content)
