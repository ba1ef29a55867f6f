"""Test `$CONTROL/broker/v1`: the responses are those of Mosquitto 2.1.2 to the same payloads, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mosq
from mosq.server.admin import broker, commands
from mosq.log_types import INFORMATION
from mosq.server.admin.control import Requester
from mosq.config.embedded import embedded_config
from mosq.config.parser import load_config
from tests.harness.control import asked
from tests.harness.packets import Connect, Puback, Publish, Suback, Subscribe
from tests.harness.properties import P
from tests.harness.wire import Wire

TOPIC, ANSWER = "$CONTROL/broker/v1", "$CONTROL/broker/v1/response"
NO_JSON = '{"command":"Unknown command","error":"Payload not valid JSON"}'
NO_LIST = '{"command":"Unknown command","error":"Invalid/missing commands"}'
MISSING = '{"command":"Unknown command","error":"Missing command"}'
PLUGINS = '{"command":"listPlugins","data":{"plugins":[]}}'

# recorded responses; the configuration has no plugins
RECORDED = [
    ('{"commands":[{"command":"listPlugins","correlationData":"abc"}]}', '{"command":"listPlugins","data":{"plugins":[]},"correlationData":"abc"}'),
    ('{"commands":[{"command":"LISTplugins"},{"command":"nope"}]}', PLUGINS + ',{"command":"nope","error":"Unknown command"}'),
    ("xx", NO_JSON), ("", NO_JSON), ("{'commands':[]}", NO_JSON), ('{"commands":[NaN]}', NO_JSON), ("[" * 2000, NO_JSON),
    ('{"commands":[{"command":"listPlugins"}],}', NO_JSON), ('{"commands":[{"command":"\\ud800"}]}', NO_JSON),
    ('{"commands":1}', NO_LIST), ("{}", NO_LIST), ("[]", NO_LIST), ('"x"', NO_LIST), ('{"commands":null}', NO_LIST), ("null", NO_LIST),
    ('{"commands":[]}', ""), ('\ufeff{"commands":[]}', ""), (' {"commands":[]}', ""), ('{"commands":[]}\0', ""),
    ('{"commands":[1,{"command":"listPlugins"}]}', '{"command":"Unknown command","error":"Command not an object"}'),
    ('{"commands":[{"command":1}]}', MISSING), ('{"commands":[{}]}', MISSING),
    ('{"commands":[{"command":"listPlugins","correlationData":1},{"command":"listPlugins"}]}',
     '{"command":"listPlugins","error":"Invalid correlationData data type."}'),
    ('{"commands":[{"command":"listPlugins","correlationData":null}]}', '{"command":"listPlugins","error":"Invalid correlationData data type."}'),
    ('{"Commands":[{"Command":"listPlugins","CORRELATIONdata":"x"}]}', '{"command":"listPlugins","data":{"plugins":[]},"correlationData":"x"}'),
    ('{"commands":[{"command":"listPlugins"}]} trailing', PLUGINS),
    ('{"commands":[{"command":"listPlugins","command":"x","foo":1}]}', PLUGINS),
    ('{"commands":[{"command":"nöpe"},{"command":"nope"},{},{"command":"listPlugins"}]}',
     '{"command":"nöpe","error":"Unknown command"},{"command":"nope","error":"Unknown command"},' + MISSING),
]  # fmt: skip
LISTENERS = """listener 21883 127.0.0.1
listener 21884
protocol websockets
listener 0 /tmp/sock
listener 21885 127.0.0.1
protocol http_api
listener 21886 localhost
psk_hint h
"""
LISTED = (
    '{"responses":[{"command":"listListeners","data":{"listeners":['
    '{"port":21883,"protocol":"mqtt","bind-address":"127.0.0.1","tls":false},{"port":21884,"protocol":"mqtt+websockets","tls":false},'
    '{"port":0,"protocol":"mqtt","socket-path":"/tmp/sock","tls":false},{"port":21885,"bind-address":"127.0.0.1","tls":false},'
    '{"port":21886,"protocol":"mqtt","bind-address":"localhost","tls":true}]}}]}'
)


class Api:
    def __init__(self, text: str = "") -> None:
        self.said: list[tuple[int, str]] = []
        self.commands = broker.commands(embedded_config(text or None, {}), lambda: (TOPIC, broker.DYNSEC_TOPIC), lambda kind, line: self.said.append((kind, line)))

    def ask(self, payload: str, username: str | None = None) -> str:
        [(topic, answer)] = asked(self.commands, Requester("me", username, "::1", 0), payload.encode())
        assert topic == ANSWER
        return answer.decode()


@pytest.mark.parametrize(("payload", "responses"), RECORDED)
def test_responses(payload: str, responses: str) -> None:
    assert Api().ask(payload) == f'{{"responses":[{responses}]}}'


def test_listeners() -> None:
    assert Api(LISTENERS).ask('{"commands":[{"command":"listListeners"}]}') == LISTED


def test_plugins() -> None:
    """Test names and endpoints as in Mosquitto; those of one listener have its port."""
    told = Api("per_listener_settings true\nlistener 21883\nplugin /lib/mosquitto_acl_file.so\nplugin_opt_acl_file x\n"
               "plugin_load own python:some.module:Plugin\nplugin_use own\nlistener 21884\nplugin_use own\n").ask(
        '{"commands":[{"command":"listPlugins"}]}')
    assert '{"name":"acl-file","port":21883,"control-endpoints":[]}' in told
    assert told.count("some.module:Plugin") == 1


def test_requests_are_logged_with_their_client() -> None:
    api = Api()
    api.ask('{"commands":[{"command":"LISTplugins"},{"command":"nope"}]}')
    api.ask('{"commands":[{"command":"listListeners"}]}', "ann")
    assert api.said == [(INFORMATION, "Broker: me/(null) | listPlugins"), (INFORMATION, "Broker: me/ann | listListeners")]


def test_responses_are_bounded() -> None:
    one = '{"command":"listListeners"}'
    answer = Api(LISTENERS).ask(f'{{"commands":[{",".join([one] * 50_000)}]}}')
    assert len(answer) < commands.RESPONSES_BYTES_MAX + 100_000
    assert answer.endswith(',{"command":"listListeners","error":"Too many commands at once"}]}')


@pytest.mark.parametrize("payload", [b'{"commands":[{"command":"\xff"}]}', b"\xff\xfe", b"1" * 5000, b'"\\'])
def test_payloads_that_are_not_utf8_are_not_json(payload: bytes) -> None:
    [(_, answer)] = asked(Api().commands, Requester("me", None, "", 0), payload)
    assert answer.decode() == f'{{"responses":[{NO_JSON}]}}'


# ---------------------------------------------------------------- over the wire

@pytest.fixture(scope="module")
def running() -> Iterator[mosq.Broker]:
    with mosq.Broker(enable_control_api=True) as made:
        yield made


def client(running: mosq.Broker, name: str, *filters: str, level: int = 5) -> Wire:
    wire = Wire(running.port, level)
    wire.send(Connect(name))
    wire.read_packet()
    if filters:
        wire.send(Subscribe(1, tuple((text, 1) for text in filters)))
        wire.expect_packet(Suback(1, (1,) * len(filters)))
    return wire


@pytest.mark.parametrize("level", [3, 4, 5])
def test_all_subscribers_get_the_response(running: mosq.Broker, level: int) -> None:
    """Test as in Mosquitto: the response is published at QoS 0, to all subscribers, and only to them."""
    wire, other = client(running, "requester", level=level), client(running, "other", ANSWER)
    wire.send(Publish(TOPIC, b'{"commands":[{"command":"listPlugins"}]}', 1, 7))
    wire.expect_packet(Puback(7))
    other.expect_packet(Publish(ANSWER, f'{{"responses":[{PLUGINS}]}}'.encode()))
    wire.send(Subscribe(1, ((ANSWER, 1),)))
    wire.expect_packet(Suback(1, (1,)))
    wire.send(Publish(TOPIC, b'{"commands":[{"command":"listPlugins"}]}', 1, 8))
    wire.expect_packet(Puback(8))
    wire.expect_packet(Publish(ANSWER, f'{{"responses":[{PLUGINS}]}}'.encode()))
    wire.close()
    other.close()


def test_properties_of_the_request_are_not_in_the_response(running: mosq.Broker) -> None:
    """Test as in Mosquitto: correlationData in the payload correlates."""
    wire = client(running, "props", ANSWER)
    wire.send(Publish(TOPIC, b"{}", props=((P.CORRELATION, b"x"), (P.RESPONSE_TOPIC, "elsewhere"))))
    wire.expect_packet(Publish(ANSWER, f'{{"responses":[{NO_LIST}]}}'.encode()))
    wire.close()


def test_the_control_api_is_off_by_default() -> None:
    assert load_config(None).enable_control_api is False
    with mosq.Broker() as off:
        for topic in (TOPIC, "$CONTROL/mosq/broker/v1"):
            wire = client(off, "c")
            wire.send(Publish(topic, b"{}", 1, 7))
            wire.expect_packet(Publish(f"{topic}/response", b'{"error": "endpoint not available"}'))
            wire.expect_packet(Puback(7))
            wire.close()
