"""Test the lines of bridges: topics with quotes, addresses, pauses, and the requirements of a whole block."""

import pytest

from mosq.log_types import INFORMATION

HEAD = ("connection b", "address h")


def topics(read, *lines):
    return [topic.key() for topic in read(*HEAD, *lines).bridges[0].topics]


@pytest.mark.parametrize(("line", "key"), [
    ("#", ("#", "out", 0, "", "")),
    ("openWB/", ("openWB/", "out", 0, "", "")),
    ("a/# both", ("a/#", "both", 0, "", "")),
    ("a/# In 1", ("a/#", "in", 1, "", "")),
    ("a/# out 2 l/ r/", ("a/#", "out", 2, "l/", "r/")),
    ('a/# out 2 "" r/', ("a/#", "out", 2, "", "r/")),
    ('a/# out 2 l/ ""', ("a/#", "out", 2, "l/", "")),
    ('a/# in 0 ""', ("a/#", "in", 0, "", "")),
    ('"" in 0 here there', (None, "in", 0, "here", "there")),
    ('"a b/#" out 1 x/', ("a b/#", "out", 1, "x/", "")),
    ('a out 1 "l/" "r x/"', ("a", "out", 1, '"l/"', '"r')),
    ('"a"', ("a", "out", 0, "", "")),
    ("a out # why", ("a", "out", 0, "", "")),
    ("a out 1 # why so", ("a", "out", 1, "", "")),
    ("a out 1 l/ # why", ("a", "out", 1, "l/", "")),
    ("$SYS/broker/# out 1 a/$SYS/ b/", ("$SYS/broker/#", "out", 1, "a/$SYS/", "b/")),
    ("é/# out\t1\tl/  r/  ", ("é/#", "out", 1, "l/", "r/")),
])
def test_topic(line, key, read):
    assert topics(read, f"topic {line}") == [key]


@pytest.mark.parametrize(("line", "said"), [
    ("a sideways", "Invalid bridge topic direction 'sideways'."),
    ("a # why", "Invalid bridge topic direction '#'."),
    ("a out 3", "Invalid bridge QoS level '3'."),
    ("a out -1", "Invalid bridge QoS level '-1'."),
    ("a out x", "Invalid bridge QoS level 'x'."),
    ("a out 1 x/# y", "Invalid bridge topic local prefix 'x/#'."),
    ("a out 1 x +/y", "Invalid bridge topic remote prefix '+/y'."),
    ('"a', "Missing closing quote in topic value (a)."),
    ('"a out 1', "Missing closing quote in topic value (out 1)."),
    ('""', "Invalid bridge remapping."),
    ('"" in 0 a', "Invalid bridge remapping."),
    ('"" in 0 a ""', "Invalid bridge remapping."),
])
def test_bad_topic(line, said, refuse):
    message = refuse(*HEAD, f"topic {line}")
    assert message.startswith(said)
    assert ". Expected" in message


def test_a_repeated_topic_counts_once(read):
    assert len(topics(read, "topic a out 1", "topic a out 1", "topic a in 1", *(f"topic t{i}" for i in range(5000)))) == 5002


def test_local_and_remote_filters(read):
    topic = read(*HEAD, "topic a/# out 1 l/ r/").bridges[0].topics[0]
    assert (topic.local, topic.remote) == ("l/a/#", "r/a/#")
    topic = read(*HEAD, 'topic "" out 1 here there').bridges[0].topics[0]
    assert (topic.local, topic.remote) == ("here", "there")


@pytest.mark.parametrize(("value", "addresses"), [
    ("h", [("h", 1883)]), ("h:1884", [("h", 1884)]), ("a b:1 c  # d", [("a", 1883), ("b", 1), ("c", 1883)]),
    ("::1:1883", [("::1", 1883)]), ("[fe80::1]:1884", [("[fe80::1]", 1884)]),
])
def test_addresses(value, addresses, read):
    for keyword in ("address", "addresses"):
        assert read("connection b", f"{keyword} {value}", "topic #").bridges[0].addresses == addresses


@pytest.mark.parametrize(("value", "said"), [
    ("h:0", "Invalid bridge port value (0)."), ("h:65536", "Invalid bridge port value (65536)."), ("h:", "Invalid bridge port value ()."),
    ("h:x", "Invalid bridge port value (x)."), ("# h", "Empty address value in configuration."),
])
def test_bad_addresses(value, said, refuse):
    assert refuse("connection b", f"address {value}").startswith(said)
    assert refuse(*HEAD, "address g").startswith("Invalid bridge configuration, 'address' only allowed once.")


@pytest.mark.parametrize(("value", "seconds"), [
    ("10", (10, 10, 0)), ("0", (1, 1, 0)), ("9999", (3600, 3600, 0)), ("10 30", (10, 30, 0)), ("10 9999 5", (10, 7200, 5)), ("5 # why", (5, 5, 0)),
])
def test_restart_timeout(value, seconds, read):
    bridge = read(*HEAD, "topic #", f"restart_timeout {value}").bridges[0]
    assert (bridge.restart_base_s, bridge.restart_cap_s, bridge.restart_stable_s) == seconds
    bridge = read(*HEAD, "topic #").bridges[0]
    assert (bridge.restart_base_s, bridge.restart_cap_s, bridge.restart_stable_s) == (5, 30, 0)


@pytest.mark.parametrize(("line", "said"), [
    ("restart_timeout 10 5", "backoff cap is lower than the base in restart_timeout."),
    ("restart_timeout 10 20 -1", "stable connection period cannot be negative."),
    ("restart_timeout soon", "'restart_timeout' value not a number."),
    ("bridge_tcp_keepalive 0 1 2", "invalid TCP keepalive idle value."),
    ("bridge_tcp_keepalive 1 0 2", "invalid TCP keepalive interval value."),
    ("bridge_tcp_keepalive 1 2 0", "invalid TCP keepalive counter value."),
    ("bridge_tcp_keepalive 1 2", "Empty 'bridge_tcp_keepalive_counter' value in configuration."),
    ("bridge_tcp_user_timeout -1", "invalid TCP user timeout value."),
    ("keepalive_interval 65536", "Bridge keepalive value too high."),
    ("start_type manual", "Manual start_type not supported."),
    ("bridge_protocol_version mqttv4", "Invalid 'bridge_protocol_version' value (mqttv4)."),
    ("bridge_reload_type now", "Invalid 'bridge_reload_type' value in configuration (now)."),
    ("connection b", "Duplicate bridge name 'b'."),
])
def test_bad_lines(line, said, refuse):
    assert refuse(*HEAD, line).startswith(said)


@pytest.mark.parametrize(("lines", "said", "line"), [
    (("connection b", "topic #"), "Invalid bridge configuration: no remote addresses defined.", 1),
    (("connection b", "address h"), "Invalid bridge configuration: no topics defined.", 1),
    ((*HEAD, "topic #", "bridge_psk 00"), "Invalid bridge configuration: missing bridge_identity.", 4),
    ((*HEAD, "topic #", "bridge_identity x"), "Invalid bridge configuration: missing bridge_psk.", 4),
    ((*HEAD, "topic #", "local_clientid x", "connection c", "address h", "topic #", "local_clientid x"),
     "Bridge local_clientid 'x' is not unique.", 8),
])
def test_an_incomplete_bridge_is_refused(lines, said, line, refuse):
    assert refuse(*lines, line=line).startswith(said)


def test_a_bridge_without_a_check_of_names_causes_a_warning(read):
    lines = (*HEAD, "topic #", "bridge_cafile /x")
    assert read(*lines, "bridge_insecure true").warnings[0] == "Bridge 'b' using insecure mode."
    assert not any("insecure" in line for line in read(*lines, "bridge_insecure false").warnings)


def test_a_repeated_topic_line_is_reported(read):
    assert read(*HEAD, "topic a/# out 1", "topic a/# out", "topic a/# out 1").notices == [
        (INFORMATION, "Duplicate bridge topic 'a/#', skipping")]


@pytest.mark.parametrize("option", ["bridge_cafile", "bridge_capath", "bridge_certfile", "bridge_keyfile"])
def test_certificates_or_a_key(option, refuse):
    assert refuse(*HEAD, "bridge_psk 00", f"{option} /x").startswith(
        f"'{option}': Cannot use both certificate and psk encryption in a single bridge.")
    assert refuse(*HEAD, f"{option} /x", "bridge_identity a").startswith(
        "'bridge_identity': Cannot use both certificate and identity encryption in a single bridge.")


def test_client_ids(read):
    bridge = read(*HEAD, "topic #").bridges[0]
    assert (bridge.remote_id("host"), bridge.local_id("host")) == ("host.b", "local.host.b")
    bridge = read(*HEAD, "topic #", "remote_clientid r", "local_clientid l").bridges[0]
    assert (bridge.remote_id("host"), bridge.local_id("host")) == ("r", "l")


def test_options_of_a_bridge_do_not_change_listeners(read):
    config = read("listener 1884", "allow_anonymous true", *HEAD, "topic #", "max_qos 1", "connection c", "address h", "topic #")
    assert not config.warnings
    assert config.listeners[0].max_qos == 1


def test_a_certificate_without_tls_causes_a_warning(read):
    config = read(*HEAD, "topic #", "bridge_certfile /c", "bridge_keyfile /k")
    assert [warning.split(" (")[0] for warning in config.warnings] == ["The bridge 'b'"]
    assert "without TLS" in config.warnings[0]
    assert not read(*HEAD, "topic #", "bridge_certfile /c", "bridge_keyfile /k", "bridge_cafile /ca").warnings
