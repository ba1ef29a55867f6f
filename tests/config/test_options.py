"""Test each option of the table: the values that it accepts, those that it refuses, and its errors."""

import re

import pytest

from mosq.config import bridge, model
from mosq.config.errors import ConfigError
from mosq.config.options.option import OF_LISTENERS
from mosq.config.options import (
    BRIDGE,
    BY_KEYWORD,
    LISTENER,
    LISTENER_ONLY,
    LISTENER_OR_DEFAULT,
    LISTENER_RESTART,
    LIVE,
    NEVER_S,
    NEW,
    OPTIONS,
    PLUGIN,
    RESTART,
    Option,
    find_option,
)
from mosq.server.settings import engine_listeners, engine_settings
from mosq.log_types import INFORMATION
from tests.config.keywords import KEYWORDS, ROWS

TYPED = [o for o in OPTIONS if o.kind not in ("special", "anything")]
NUMBERS = [o for o in OPTIONS if o.kind in ("int", "count")]
FLAGS = [o for o in OPTIONS if o.kind == "bool"]


def name_of(option: Option) -> str:
    return option.name


def before(option: Option) -> list[str]:
    """Return the lines that must precede the option."""
    if option.scope == BRIDGE:
        return ["connection b", "address h", "topic #"]
    if option.scope == PLUGIN:
        return ["plugin python:a:B"]
    if option.name == "stream_events":
        return ["persistence true"]
    return ["listener 1883"] if option.scope in (LISTENER, LISTENER_ONLY) else []


def lines_for(option: Option, value: str) -> list[str]:
    """Return a file that sets the option on its last line."""
    return [*before(option), f"{option.name} {value}"]


def value_of(config, option: Option):
    if option.name == "port":
        return config.listeners[0].port
    if option.name == "auth_plugin_deny_special_chars":
        return config.plugins[0].deny_special_chars
    if option.name == "plugin_thread":
        return "loop" if config.plugins[0].on_loop else "own"
    if option.scope == BRIDGE:
        return getattr(config.bridges[0], option.name)
    return getattr(config.listeners[0] if option.scope in OF_LISTENERS else config, option.name)


# ---- the table

def test_all_keywords_of_mosquitto_are_known():
    assert len(KEYWORDS) == len(set(KEYWORDS)) == 141
    assert set(KEYWORDS) == {k for k, o in BY_KEYWORD.items() if not o.own}


def test_every_keyword_has_a_row():
    assert set(ROWS) == set(KEYWORDS)


@pytest.mark.parametrize("keyword", KEYWORDS)
def test_keyword(keyword, read, tmp_path):
    lines, check = ROWS[keyword]
    (tmp_path / "d").mkdir()
    (tmp_path / "d/x.conf").write_text("sys_interval 77\n")
    lines = [line.replace("{folder}", str(tmp_path / "d")) for line in lines]
    assert any(line.split()[0].startswith(keyword) for line in lines)
    assert check(read(*lines))
    # the same file without the line: the row must notice the difference
    with pytest.raises((AssertionError, LookupError, ConfigError)):
        assert check(read(*(line for line in lines if not line.startswith(keyword))))


def test_the_table_is_well_formed():
    assert len(BY_KEYWORD) == sum(1 + len(o.aliases) for o in OPTIONS)
    for option in OPTIONS:
        assert option.help and not option.help.endswith("."), option.name
        assert option.reload in (LIVE, NEW, LISTENER_RESTART, RESTART)
        assert option.kind in ("bool", "int", "count", "string", "path", "duration", "enum", "words", "special", "anything")
        assert not option.deprecated_by or option.deprecated_by in BY_KEYWORD
        if option.kind == "enum":
            assert option.default in ("", *option.choices)
        if option.kind == "int" and option.default is not None:
            assert option.low - 1 <= option.default <= option.high


@pytest.mark.parametrize("option", [o for o in TYPED if o.scope != PLUGIN and "plugin" not in o.name], ids=name_of)
def test_the_model_declares_the_option(option):
    if option.name in ("port", "bind_address") or "tls1.3" in option.name:
        return
    owner = (bridge.Bridge if option.scope == BRIDGE else
             model.Listener if option.scope in OF_LISTENERS else model.Config)
    declared = str(owner.__annotations__[option.name])
    kind = {"bool": "bool", "int": "int", "count": "int", "duration": "int", "words": "tuple"}.get(option.kind, "str")
    assert kind in declared
    assert ("None" in declared) == (option.default is None)


# ---- values

@pytest.mark.parametrize("option", FLAGS, ids=name_of)
def test_flag(option, read, refuse):
    for word, value in (("true", True), ("false", False), ("1", True), ("0", False), ("true  # why", True)):
        assert value_of(read(*lines_for(option, word)), option) is value
    for word in ("yes", "TRUE", "2", "truee"):
        said = refuse(*lines_for(option, word))
        assert said.startswith(f"Invalid '{option.name}' value ({word}). Expected true or false")
    assert f"write `{option.name} true`" in refuse(*lines_for(option, "yes"))
    assert f"write `{option.name} false`" in refuse(*lines_for(option, "= false"))


@pytest.mark.parametrize("option", NUMBERS, ids=name_of)
def test_number(option, read, refuse):
    for number in (option.low, option.high):
        assert value_of(read(*lines_for(option, str(number))), option) == number
    assert value_of(read(*lines_for(option, f"{option.high}    # most")), option) == option.high
    for word in ("many", "1.5", "1_0", "٣", "-", "10abc", "0x", "08", "1e3"):
        said = refuse(*lines_for(option, word))
        assert said.startswith(f"'{option.label or option.name}' value not a number. Expected ")
        assert f"{option.low} to {option.high}" in said
    for word in ("9" * 4000, str(-2**70)):
        said = refuse(*lines_for(option, word))
        assert said.startswith(f"'{option.label or option.name}' value out of range. Expected ") and len(said) < 250
    for number, instead in ((option.low - 1, option.below), (option.high + 1, option.above)):
        if instead is not None:
            assert value_of(read(*lines_for(option, str(number))), option) == instead
        else:
            said = refuse(*lines_for(option, str(number)))
            assert f"{option.low} to {option.high}" in said
            assert "out of range" in said or said.startswith(option.error_text or f"Invalid '{option.name}' value ({number}).")


def test_a_unit_behind_a_number_is_named_in_the_error(refuse):
    assert refuse("max_packet_size 10 MB").endswith("'MB' behind the number has no meaning: write it without a unit.")
    assert "behind the number" not in refuse("max_packet_size 10   # MB")


def test_numbers_as_c_reads_them(read):
    for word, value in (("0x10", 16), ("010", 8), ("+7", 7), ("00", 0), ("-0", 0)):
        assert read(f"sys_interval {word}").sys_interval == value


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.kind != "anything" and o.name not in ("plugin", "global_plugin")],
                         ids=name_of)
def test_an_option_without_a_value_is_refused(option, refuse):
    for value in ("", "   ", "\t"):
        if option.name == "plugin_opt_":
            assert "Empty 'key' value" in refuse("plugin python:a:B", f"plugin_opt_key{value}")
            continue
        said = refuse(*(["connection b"] if option.name in ("address", "topic") else before(option)), f"{option.name}{value}")
        assert re.match(r"Empty '?.+ value in configuration\. Expected .+\.$", said), said


def test_a_plugin_without_a_path(refuse):
    for keyword in ("plugin", "auth_plugin", "global_plugin"):
        assert refuse(keyword).startswith("Missing plugin path for plugin name '(null)'.")
    assert refuse("plugin_load p").startswith("Missing plugin path for plugin name 'p'.")


@pytest.mark.parametrize("option", [o for o in TYPED if o.kind in ("string", "path") and "plugin" not in o.name], ids=name_of)
def test_text_keeps_blanks_and_hashes_inside(option, read, refuse):
    if option.name in ("mount_point", "bind_address", "http_dir", "stream", "node_name", "cluster"):
        return      # these have their own rules
    need = {"certfile": ["keyfile /k"], "keyfile": ["certfile /c"], "cafile": ["certfile /c", "keyfile /k"],
            "capath": ["certfile /c", "keyfile /k"], "bridge_psk": ["bridge_identity x"], "bridge_identity": ["bridge_psk x"]}
    own = before(option) or (["listener 1883"] if option.scope in OF_LISTENERS else [])
    config = read(*own, *need.get(option.name, []), f"{option.name}   a b  c #d é \t\r")
    assert value_of(config, option) == "a b  c #d é"
    said = refuse(*own, option.name.encode() + b" caf\xe9")
    assert said.startswith("Malformed UTF-8 in configuration.") and "not UTF-8 (byte 4" in said
    assert "zero byte" in refuse(*own, option.name.encode() + b" a\0b")


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.once], ids=name_of)
def test_options_that_mosquitto_accepts_once_are_accepted_once(option, refuse, tmp_path):
    lines = lines_for(option, str(tmp_path) if option.name == "http_dir" else "x")
    assert refuse(*lines, lines[-1]).startswith(f"Duplicate '{option.label or option.name}' value in configuration.")


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.kind == "enum"], ids=name_of)
def test_choice(option, read, refuse):
    for word in option.choices:
        assert value_of(read(*lines_for(option, f"{word} # c")), option) == word
    for word in ("nonsense", option.choices[0].upper() + "X"):
        said = refuse(*lines_for(option, word))
        assert word in said and f"Expected one of {', '.join(option.choices)}." in said


# ---- order

@pytest.mark.parametrize("keyword", [w for o in OPTIONS if o.scope == BRIDGE for w in (o.name, *o.aliases)])
def test_bridge_options_outside_of_a_bridge(keyword, refuse):
    assert refuse("listener 1883", f"{keyword} x").startswith(
        f"The '{keyword}' option requires a bridge to be defined first.")


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.scope in (LISTENER, LISTENER_ONLY) and o.name != "listener"],
                         ids=name_of)
def test_listener_options_need_a_listener(option, read, refuse):
    value = option.choices[0] if option.choices else "1"
    said = f"The '{option.name}' option requires a listener to be defined first."
    assert refuse(f"{option.name} {value}").startswith(said)
    if option.scope == LISTENER_ONLY:
        assert refuse("port 1883", f"{option.name} {value}").startswith(said)


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.scope == LISTENER_OR_DEFAULT and o.name not in ("port", "bind_address")],
                         ids=name_of)
def test_other_listener_options_create_the_default_listener(option, read):
    value = "true" if option.kind == "bool" else option.choices[0] if option.choices else "1"
    need = {"certfile": "keyfile 1", "keyfile": "certfile 1", "capath": "certfile 1\nkeyfile 1"}.get(option.name, "")
    config = read(f"{option.name} {value}", need)
    assert config.local_only and [x.port for x in config.listeners] == [1883, 1883]
    assert (INFORMATION, f"Creating default listener due to '{option.name}' option.") in config.notices
    config = read(f"{option.name} {value}", need, "listener 1884")
    assert [x.port for x in config.listeners] == [1883, 1884] and not config.local_only


@pytest.mark.parametrize("keyword", ["plugin_opt_key", "auth_opt_key"])
def test_plugin_options_need_a_plugin(keyword, refuse):
    assert refuse(f"{keyword} x").startswith(
        f"The '{keyword}' option requires plugin/global_plugin/plugin_load to be defined first.")
    assert refuse("plugin python:a:B", f"{keyword[:-2]} x").startswith("Invalid 'plugin_opt_' config option.")


@pytest.mark.parametrize(("line", "article"), [("auth_plugin_deny_special_chars true", "An"), ("plugin_thread loop", "A")])
def test_options_that_need_a_plugin(line, article, refuse):
    assert refuse(line).startswith(f"{article} {line.split()[0]} option exists in the config file without a plugin.")


def test_prefixes_are_keywords():
    assert find_option("plugin_opt_db_file") is BY_KEYWORD["plugin_opt_"]
    assert find_option("auth_opt_x") is BY_KEYWORD["plugin_opt_"]
    assert find_option("plugin_op") is None


# ---- single ones

@pytest.mark.parametrize(("text", "seconds"), [
    ("90s", 90), ("2h", 7200), ("14d", 1209600), ("1w", 604800), ("1m", 2592000), ("1y", 31536000), ("14d # two weeks", 1209600),
])
def test_duration(text, seconds, read):
    assert read(f"persistent_client_expiration {text}").persistent_client_expiration == seconds


@pytest.mark.parametrize("text", ["14", "d", "0d", "-1d", "14D", "137y", "1e3d", "99999999999999999999d"])
def test_bad_duration(text, refuse):
    said = refuse(f"persistent_client_expiration {text}")
    assert said.startswith("Invalid 'persistent_client_expiration' duration in configuration.")
    assert "a number with a unit s, h, d, w, m or y" in said


CLUSTER = ("persistence true", "cluster redis://127.0.0.1", "cluster_node a")


def test_defaults(read):
    config = read("")
    assert config.persistent_client_expiration == NEVER_S
    assert (config.max_inflight_messages, config.max_queued_messages, config.max_packet_size) == (20, 1000, 2_000_000)
    assert (config.set_tcp_nodelay, config.check_retain_source, config.allow_duplicate_messages) == (True, False, True)
    assert (config.max_output_bytes, config.max_topic_levels) == (67108864, 201)
    assert (config.connect_timeout, config.turn_budget, config.turn_interval) == (20, 200_000, -1)
    assert (config.acl_refuse_subscribe, config.receive_maximum_policy) == (False, "disconnect")
    assert (config.max_inbound_qos2_bytes, config.login_memory) == (16 << 20, 64 << 20)
    assert config.log_connections_max == 1000
    assert (config.auth_timeout, config.auth_threads, config.auth_backoff) == (10, 0, True)
    assert (config.auth_cache_size, config.auth_cache_seconds) == (10_000, 300)
    assert (config.log_format, config.log_denied_per_second, config.log_facility) == ("text", 10, -1)
    assert (config.warnings, config.notices) == ([], [])


def test_receive_maximum_policy(read, refuse):
    assert read("receive_maximum_policy log").receive_maximum_policy == "log"
    assert "Expected one of log, disconnect" in refuse("receive_maximum_policy kill")


def test_log_types_and_destinations_add_up(read, refuse):
    config = read("log_type error warning", "log_type notice", "log_dest stdout", "log_dest topic", "log_dest stdout # again")
    assert config.log_type == ("error", "warning", "notice")
    assert config.log_dest == ("topic", "stdout")
    assert "Expected one or more of none, error" in refuse("log_type loud")
    assert refuse("log_dest nowhere").startswith("Invalid 'log_dest' value (nowhere). Expected one of none, stdout")
    assert refuse("log_dest file").startswith('Empty "log_dest file" value in configuration.')
    assert refuse("log_dest file /a", "log_dest file /b").startswith('Duplicate "log_dest file" value.')
    assert read("log_dest syslog", "log_dest none").log_dest == ("none",)
    assert read("log_dest none", "log_dest syslog").log_dest == ("syslog",)


@pytest.mark.parametrize("dest", ["dlt", "android"])
def test_unsupported_log_destinations(dest, read):
    config = read(f"log_dest {dest}")
    assert config.log_dest == ()
    assert f"does not log to {dest}" in config.warnings[0]


def test_log_destinations(read):
    config = read("log_dest syslog\nlog_dest file /var/log/a b.log\nlog_dest topic\nlog_facility 4\nlog_format json")
    assert (config.log_dest, config.log_facility, config.log_format) == (
        ("syslog", "file /var/log/a b.log", "topic"), 4, "json")
    assert read("").log_facility == -1


def test_versions_mask(read, refuse):
    assert read("listener 1883").listeners[0].versions_mask() == 0b111000
    assert read("listener 1883", "accept_protocol_versions 4,5").listeners[0].versions_mask() == 0b110000
    config = read("listener 1883", "accept_protocol_versions 3, x")
    assert config.listeners[0].versions_mask() == 0b1000 and "'x' is no version" in config.warnings[0]
    for value in ("6", "3.1.1", "4;5", ","):
        assert "accept_protocol_versions" in refuse("listener 1883", f"accept_protocol_versions {value}")


def test_mount_point_takes_no_wildcards(read, refuse):
    assert read("listener 1883", "mount_point site/1/").listeners[0].mount_point == "site/1/"
    for value in ("site/#", "+/x"):
        assert refuse("listener 1883", f"mount_point {value}").startswith(
            f"Invalid 'mount_point' value ({value}). Does it contain a wildcard character?")


@pytest.mark.parametrize("name", ["auto_id_prefix", "listener_auto_id_prefix"])
def test_auto_id_prefix_has_up_to_50_bytes(name, read, refuse):
    config = read("listener 1883", f"{name} {'x' * 50}")
    assert config.auto_id_prefix_of(config.listeners[0]) == "x" * 50
    for value in ("x" * 51, "é" * 26):
        assert "length must be <= 50. Expected at most 50 bytes" in refuse("listener 1883", f"{name} {value}")


def test_a_count_may_be_off(read):
    for option in OPTIONS:
        if option.kind == "count":
            assert value_of(read(f"{option.name} off"), option) == 0
            assert value_of(read(f"{option.name} {option.low}"), option) == option.low


def test_durability_topics(read, refuse):
    config = read("durability_topic async a/#", "durability_topic strict b")
    assert config.durability_topic == ("async a/#", "strict b")
    assert engine_settings(config, 0)["durability_topic"] == "async a/#\nstrict b"
    assert "Expected one of none, async, group, strict" in refuse("durability_topic often a")
    for line in ("async", "async a b"):
        assert "a topic filter after it" in refuse(f"durability_topic {line}")
    assert "Expected a topic filter" in refuse("durability_topic async a/#/b")
    lines = [f"durability_topic async t{n}" for n in range(64)]
    assert "Expected at most 64" in refuse(*lines, "durability_topic async u")


@pytest.mark.parametrize(("lines", "interval_us"), [
    ((), 0), (("turn_interval 300",), 300), (CLUSTER, 1000), ((*CLUSTER, "turn_interval 0"), 0)])
def test_turns_have_a_distance_in_a_cluster(lines, interval_us, read):
    assert engine_settings(read(*lines), 0)["turn_interval"] == interval_us


def test_durability_options(read, refuse):
    config = read("durability strict", "durability_interval 9", "queue_overflow drop_oldest", "listener 1883", "listener_durability async")
    assert (config.durability, config.durability_interval, engine_settings(config, 0)["queue_overflow"]) == ("strict", 9, "drop_oldest")
    assert engine_listeners(config)[0]["durability"] == "async"
    for line in ("durability always", "durability_interval 1001", "queue_overflow drop", "listener_durability fast"):
        assert line.split()[1] in refuse(line if not line.startswith("listener") else "listener 1883", *([line] if line.startswith("listener") else []))



def test_shared_strategies_add_up(read, refuse):
    config = read("shared_strategy sticky", "shared_strategy hash_topic g  # ours", "shared_strategy random g")
    assert config.shared_strategy == ("sticky", "hash_topic g", "random g")
    assert engine_settings(config, 0)["shared_strategy"] == "sticky\nhash_topic g\nrandom g"
    assert "Expected one of round_robin, random, sticky, least_inflight, hash_topic, hash_client" in refuse("shared_strategy best")
    for line in ("random a b", "random a/b", "random +", "random a#b"):
        assert "Expected after random nothing, or one name of a group" in refuse(f"shared_strategy {line}")


def test_shared_strategies_are_bounded(read, refuse):
    lines = [f"shared_strategy random g{n}" for n in range(1000)]
    assert len(read(*lines).shared_strategy) == 1000
    assert "Expected at most 1000" in refuse(*lines, "shared_strategy sticky h")


def test_trusted_proxies(read, refuse):
    config = read("listener 9001", "websockets_trusted_proxy 10.1.2.3/8", "websockets_trusted_proxy ::1", "websockets_trusted_proxy unix")
    assert config.listeners[0].websockets_trusted_proxy == ("10.0.0.0/8", "::1/128", "unix")
    for text in ("localhost", "10.0.0.0/33", "10.0.0", "1.2.3.4 5.6.7.8"):
        assert "Expected an IP address, a network such as" in refuse("listener 9001", f"websockets_trusted_proxy {text}")
    assert "Too many" in refuse("listener 9001", *["websockets_trusted_proxy unix"] * 1001)
