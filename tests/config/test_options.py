"""Each option of the table: what it takes, what it refuses, and that it refuses in words that help."""

import re

import pytest

from mosq.config import model
from mosq.config.options import (
    BRIDGE,
    BY_KEYWORD,
    GLOBAL,
    LISTENER,
    LISTENER_OR_DEFAULT,
    NEVER_S,
    OPTIONS,
    SECURITY,
    Option,
    find_option,
)
from mosq.settings import engine_settings

# every keyword of Mosquitto 2.1, from its manual
KEYWORDS = """
accept_protocol_versions acl_file address addresses allow_anonymous allow_duplicate_messages allow_zero_length_clientid
auth_opt_ auth_plugin auth_plugin_deny_special_chars auto_id_prefix autosave_interval autosave_on_changes bind_address
bind_interface bridge_alpn bridge_attempt_unsubscribe bridge_bind_address bridge_cafile bridge_capath bridge_certfile
bridge_ciphers bridge_ciphers_tls1.3 bridge_identity bridge_insecure bridge_keyfile bridge_max_packet_size
bridge_max_topic_alias bridge_outgoing_retain bridge_protocol_version bridge_psk bridge_receive_maximum bridge_reload_type
bridge_require_ocsp bridge_session_expiry_interval bridge_tcp_keepalive bridge_tcp_user_timeout bridge_tls_use_os_certs
bridge_tls_version cafile capath certfile check_retain_source ciphers ciphers_tls1.3 cleansession clientid
clientid_prefixes connection connection_messages crlfile dhparamfile disable_client_cert_date_checks enable_control_api
enable_proxy_protocol global_max_clients global_max_connections global_plugin http_dir idle_timeout include_dir
keepalive_interval keyfile listener listener_allow_anonymous listener_auto_id_prefix local_cleansession local_clientid
local_password local_username log_dest log_facility log_timestamp log_timestamp_format log_type max_connections
max_inflight_bytes max_inflight_messages max_keepalive max_packet_size max_qos max_queued_bytes max_queued_messages
max_topic_alias max_topic_alias_broker maximum_qos memory_limit message_size_limit mount_point notification_topic
notifications notifications_local_only packet_buffer_size password password_file per_listener_settings persistence
persistence_file persistence_location persistent_client_expiration pid_file plugin plugin_load plugin_opt_ plugin_use port
protocol proxy_protocol_v2_require_tls psk_file psk_hint queue_qos0_messages remote_clientid remote_password
remote_username require_certificate restart_timeout retain_available retain_expiry_interval retained_persistence
retry_interval round_robin set_tcp_nodelay socket_domain start_type sys_interval threshold tls_engine
tls_engine_kpass_sha1 tls_keyform tls_version topic try_private upgrade_outgoing_qos use_identity_as_username
use_subject_as_username use_username_as_clientid user username websockets_headers_size websockets_log_level
websockets_origin
""".split()

IN_FORCE = [o for o in OPTIONS if o.absent is None]
ABSENT = [o for o in OPTIONS if o.absent is not None and o.scope != BRIDGE]
NUMBERS = [o for o in IN_FORCE if o.kind in ("int", "count")]
FLAGS = [o for o in IN_FORCE if o.kind == "bool"]


def name_of(option: Option) -> str:
    return option.name


def lines_for(option: Option, value: str) -> list[str]:
    """A file that sets the option, on its last line."""
    first = [] if option.scope in (GLOBAL, SECURITY, LISTENER_OR_DEFAULT) else ["listener 1883"]
    return [*first, f"{option.name} {value}"]


def value_of(config, option: Option):
    if option.name == "port":
        return config.listeners[0].port
    if option.scope in (LISTENER, LISTENER_OR_DEFAULT):
        return getattr(config.listeners[0], option.name)
    return getattr(config, option.name)


def test_the_table_has_every_keyword_of_mosquitto_and_nothing_else_but_its_own():
    assert {word for word, option in BY_KEYWORD.items() if not option.own} == set(KEYWORDS)
    assert len(KEYWORDS) == len(set(KEYWORDS)) == 141


def test_no_keyword_stands_for_two_options():
    words = [word for option in OPTIONS for word in (option.name, *option.aliases)]
    assert len(words) == len(set(words))


def test_config_and_listener_declare_the_type_of_each_option_in_force():
    for option in IN_FORCE:
        if option.kind == "special" or option.name in ("port", "bind_address"):
            continue
        owner = model.Listener if option.scope in (LISTENER, LISTENER_OR_DEFAULT) else model.Config
        declared = str(owner.__annotations__[option.name])
        kind = {"bool": "bool", "int": "int", "count": "int", "duration": "int", "words": "tuple"}.get(option.kind, "str")
        assert kind in declared, option.name
        assert ("None" in declared) == (option.default is None), option.name


@pytest.mark.parametrize("option", FLAGS, ids=name_of)
def test_flag(option, read, refuse):
    for word, value in (("true", True), ("false", False), ("1", True), ("0", False), ("true  # why", True)):
        assert value_of(read(*lines_for(option, word)), option) is value
    for word in ("yes", "TRUE", "2", "truee"):
        said = refuse(*lines_for(option, word))
        assert option.name in said
        assert "expected true or false" in said
    assert "requires" not in refuse(*lines_for(option, "yes"))
    assert f"write `{option.name} true`" in refuse(*lines_for(option, "yes"))
    assert f"write `{option.name} false`" in refuse(*lines_for(option, "= false"))


@pytest.mark.parametrize("option", NUMBERS, ids=name_of)
def test_number(option, read, refuse):
    for number in (option.low, option.high):
        assert value_of(read(*lines_for(option, str(number))), option) == number
    assert value_of(read(*lines_for(option, f"{option.high}    # most")), option) == option.high
    for word in (option.low - 1, option.high + 1, "many", "1.5", "0x10", "1_0", "٣", "9" * 4000, "1 2", "-"):
        said = refuse(*lines_for(option, str(word)))
        assert f"'{option.name}'" in said
        assert f"{option.low} to {option.high}" in said
        assert len(said) < 250 or "1 2" in said


@pytest.mark.parametrize("option", IN_FORCE, ids=name_of)
def test_an_option_without_a_value_is_refused(option, refuse):
    for value in ("", "   ", "\t"):
        assert re.match(rf"Empty '{option.name}' value in configuration; expected .+\.", refuse(*lines_for(option, value)))


@pytest.mark.parametrize("option", [o for o in IN_FORCE if o.kind in ("string", "path")], ids=name_of)
def test_text_keeps_blanks_and_hashes_inside(option, read, refuse):
    if option.name in ("mount_point", "bind_address", "acl_file"):
        return      # have their own rules
    config = read(*lines_for(option, "  a b  c #d é \t\r"))
    assert value_of(config, option) == "a b  c #d é"
    assert "not UTF-8" in refuse(*(line.encode() for line in lines_for(option, "")[:-1]),
                                 option.name.encode() + b" caf\xe9")


@pytest.mark.parametrize("option", ABSENT, ids=name_of)
def test_an_option_of_a_later_version_is_refused_or_warned_of_but_never_silent(option, read, refuse):
    # as far as its type allows, something else than the default
    value = {"bool": "false" if option.default is True else "true", "int": str(option.high),
             "enum": option.choices[-1] if option.choices else ""}.get(option.kind, "something")
    option_name = option.name + ("x" if option.prefix else "")
    lines = ["listener 1883", "allow_anonymous true", f"{option_name} {value}"]
    if option.absent.effect == "refuse":
        said = refuse(*lines)
        assert option_name in said
        assert "not in this version of mosq; " in said
        assert option.absent.instead in said
    else:
        config = read(*lines)
        assert len(config.warnings) == 1
        assert option_name in config.warnings[0]
        assert "mosq.conf:3" in config.warnings[0]
    if option.default is not None:
        default = str(option.default).lower() if isinstance(option.default, bool) else option.default
        assert read(*lines[:2], f"{option.name} {default}").warnings == []


@pytest.mark.parametrize("keyword", [w for o in OPTIONS if o.scope == BRIDGE for w in (o.name, *o.aliases)])
def test_bridge_options_outside_of_a_bridge(keyword, refuse):
    said = refuse("listener 1883", f"{keyword} x")
    assert f"The '{keyword}' option requires a bridge to be defined first" in said


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.scope == LISTENER and o.kind != "special"], ids=name_of)
def test_listener_options_need_a_listener(option, refuse):
    said = refuse(f"{option.name} {option.choices[0] if option.choices else 1}")
    assert f"The '{option.name}' option requires a listener to be defined first" in said


def test_prefixes_are_keywords_only_with_something_behind_them():
    assert find_option("plugin_opt_db_file") is BY_KEYWORD["plugin_opt_"]
    assert find_option("auth_opt_x") is BY_KEYWORD["plugin_opt_"]
    assert find_option("plugin_opt_") is None


@pytest.mark.parametrize(("text", "seconds"), [
    ("90s", 90), ("2h", 7200), ("14d", 1209600), ("1w", 604800), ("1m", 2592000), ("1y", 31536000), ("14d # two weeks", 1209600),
])
def test_duration(text, seconds, read):
    assert read(f"persistent_client_expiration {text}").persistent_client_expiration == seconds


@pytest.mark.parametrize("text", ["14", "d", "0d", "-1d", "14D", "137y", "1e3d", "99999999999999999999d", "1d 2"])
def test_bad_duration(text, refuse):
    assert "a number with a unit s, h, d, w, m or y" in refuse(f"persistent_client_expiration {text}")


def test_defaults(read):
    config = read("")
    assert config.persistent_client_expiration == NEVER_S
    assert (config.max_inflight_messages, config.max_queued_messages, config.max_packet_size) == (20, 1000, 2_000_000)
    assert (config.set_tcp_nodelay, config.check_retain_source, config.allow_duplicate_messages) == (True, False, True)
    assert (config.max_output_bytes, config.max_topic_levels) == (67108864, 200)
    assert (config.connect_timeout, config.turn_budget) == (20, 200_000)
    assert (config.acl_refuse_subscribe, config.receive_maximum_policy) == (False, "log")


def test_receive_maximum_policy(read, refuse):
    assert read("receive_maximum_policy disconnect").receive_maximum_policy == "disconnect"
    assert "expected one of log, disconnect" in refuse("receive_maximum_policy kill")


def test_log_types_and_destinations_add_up(read, refuse):
    config = read("log_type error warning", "log_type notice", "log_dest stdout", "log_dest stderr")
    assert config.log_type == ("error", "warning", "notice")
    assert config.log_dest == ("stdout", "stderr")
    assert "expected one or more of none, error" in refuse("log_type loud")
    assert "expected one of none, stdout" in refuse("log_dest nowhere")
    assert "expected a path" in refuse("log_dest file")


@pytest.mark.parametrize("dest", ["dlt", "android"])
def test_log_destinations_that_are_not_there_go_to_stderr_and_say_so(dest, read):
    config = read(f"log_dest {dest}")
    assert config.log_dest == ("stderr",)
    assert dest in config.warnings[0]


def test_log_destinations(read):
    config = read("log_dest syslog\nlog_dest file /var/log/a b.log\nlog_dest topic\nlog_facility 4\nlog_format json")
    assert (config.log_dest, config.log_facility, config.log_format) == (
        ("syslog", "file /var/log/a b.log", "topic"), 4, "json")
    assert read("").log_facility == -1


def test_versions_mask(read, refuse):
    assert read("listener 1883").listeners[0].versions_mask() == 0b111000
    assert read("listener 1883", "accept_protocol_versions 4,5").listeners[0].versions_mask() == 0b110000
    assert read("listener 1883", "accept_protocol_versions 3, 5").listeners[0].versions_mask() == 0b101000
    for value in ("6", "3.1.1", "4;5", "4,,x", ","):
        assert "accept_protocol_versions" in refuse("listener 1883", f"accept_protocol_versions {value}")


def test_mount_point_takes_no_wildcards(read, refuse):
    assert read("listener 1883", "mount_point site/1/").listeners[0].mount_point == "site/1/"
    for value in ("site/#", "+/x"):
        assert f"Invalid mount_point '{value}'" in refuse("listener 1883", f"mount_point {value}")


@pytest.mark.parametrize("name", ["auto_id_prefix", "listener_auto_id_prefix"])
def test_auto_id_prefix_has_up_to_50_characters(name, read, refuse):
    config = read("listener 1883", f"{name} {'x' * 50}")
    assert config.auto_id_prefix_of(config.listeners[0]) == "x" * 50
    assert "51 characters; expected at most 50" in refuse("listener 1883", f"{name} {'x' * 51}")


def test_a_count_may_be_off(read):
    for option in IN_FORCE:
        if option.kind == "count":
            assert value_of(read(f"{option.name} off"), option) == 0
            assert value_of(read(f"{option.name} {option.low}"), option) == option.low


def test_shared_strategies_add_up(read, refuse):
    config = read("shared_strategy sticky", "shared_strategy hash_topic g  # ours", "shared_strategy random g")
    assert config.shared_strategy == ("sticky", "hash_topic g", "random g")
    assert engine_settings(config, 0)["shared_strategy"] == "sticky\nhash_topic g\nrandom g"
    assert "expected one of round_robin, random, sticky, least_inflight, hash_topic, hash_client" in refuse("shared_strategy best")
    for line in ("random a b", "random a/b", "random +", "random a#b"):
        assert "expected after random nothing, or one name of a group" in refuse(f"shared_strategy {line}")


def test_shared_strategies_are_bounded(read, refuse):
    lines = [f"shared_strategy random g{n}" for n in range(1000)]
    assert len(read(*lines).shared_strategy) == 1000
    assert "expected at most 1000" in refuse(*lines, "shared_strategy sticky h")
