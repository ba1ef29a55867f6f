"""Test `mosq index explain` with real brokers, and with listeners that are no brokers."""

import contextlib
import json
import socket
import subprocess
import sys
import threading
import time

import pytest

import mosq
from mosq.cli import commands
from mosq.embed import wire
from mosq.embed.explain import RESPONSE, TIMEOUT_S, NoAnswerError, report, shown
from tests.harness.broker import ROOT, Broker, free_port
from tests.harness.effort import AT_ONCE_S

FILTERS = ["site/7/temp", "site/+/temp", "$share/workers/site/#", "日本/+"]


def explain(*arguments: object, port: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "mosq", "index", "explain", "-p", str(port), *map(str, arguments)], cwd=ROOT, capture_output=True,
                          text=True, timeout=20, check=False, env={"PYTHONUTF8": "1", "PATH": "/bin"})


@pytest.fixture(scope="module")
def broker():
    with mosq.Broker() as broker, broker.subscribe(*FILTERS):
        yield broker


def test_a_table_and_the_cost(broker):
    done = explain("site/7/temp", port=broker.port)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"$ mosq index explain site/7/temp\n{done.stdout}" in (ROOT / "docs" / "index.md").read_text()


def test_json(broker):
    done = explain("--json", "日本/x", port=broker.port)
    assert (done.returncode, done.stderr) == (0, "")
    explained = json.loads(done.stdout)
    assert explained == broker.explain("日本/x")
    assert [f["filter"] for f in explained["filters"]] == ["日本/+"]
    assert done.stdout.count("\n") == 1


def test_nothing_matches(broker):
    done = explain("nobody", port=broker.port)
    assert done.returncode == 0
    assert done.stdout.startswith("0 filters: 0 subscribers in 0 lists, 0 shared groups\nCost (index full): 0 hashes of 0 bytes, ")


def test_more_filters_than_the_answer_holds():
    with mosq.Broker() as broker, broker.subscribe(*[f"t/{'+/' * n}#" for n in range(199)]):
        explained = broker.explain("t/" + "x/" * 198)
        assert explained["truncated"] and explained["totals"]["filters"] == 199
        left_out = 199 - len(explained["filters"])
        assert f"... and {left_out} filters more that did not fit into the answer" in report(explained)


@pytest.mark.parametrize("topic", ["a/#", "+", "", "a\nb", "/" * 201, "x" * 65536])
def test_no_topic(topic, broker):
    done = explain("--", topic, port=broker.port)
    assert (done.returncode, done.stdout) == (3, "")
    assert "Invalid value for TOPIC: topic" in done.stderr
    assert "Try 'mosq index explain --help' for help." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("arguments", "said"), [
    ([], "Missing argument 'TOPIC'"), (["a", "b"], "unexpected extra argument"), (["a", "--foo"], "No such option"), (["a", "-p", "x"], "not a valid integer"),
])
def test_mistakes(arguments, said, broker):
    done = explain(*arguments, port=broker.port)
    assert (done.returncode, done.stdout) == (3, "")
    assert said in done.stderr


@pytest.mark.parametrize("arguments", [["index", "-h"], ["index", "--help"], ["index", "explain", "--help"]])
def test_help(arguments, mosq):
    done = mosq(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= 100
    if "explain" in arguments:
        for word in ("Examples:", "Exit status:", "-h, --host", "-p, --port", "-i, --id", "-u,", "-P,", "--json", "docs/index.md"):
            assert word in done.stdout


@pytest.mark.parametrize(("arguments", "said"), [
    (["index"], "Missing command"), (["index", "what"], "No such command"), (["-p", "1884", "index", "explain", "t"], "Options before `index`"),
    (["-v", "index", "explain", "t"], "Options before `index`"), (["--match-cache", "off", "index", "explain", "t"], "Options before `index`"),
])
def test_mistakes_before_the_subcommand(arguments, said, mosq):
    done = mosq(*arguments)
    assert (done.returncode, done.stdout) == (3, "")
    assert said in done.stderr


def test_no_broker_at_the_address():
    done = explain("t", port=free_port())
    assert (done.returncode, done.stdout) == (1, "")
    assert "There is no broker at localhost port" in done.stderr
    assert "-h HOST and -p PORT" in done.stderr


def test_only_a_user_with_the_right_may_explain():
    rules = {"acl": "topic readwrite #\nuser ann\ntopic write $CONTROL/mosq/index/v1\n"}
    with Broker("acl_file {dir}/acl\n", rules) as broker:
        done = explain("t", port=broker.port)
        assert (done.returncode, done.stdout) == (1, "")
        assert "does not allow this query" in done.stderr
        assert "`topic write $CONTROL/mosq/index/v1`" in done.stderr
        assert explain("t", "-u", "ann", "-P", "secret", port=broker.port).returncode == 0


def test_the_client_id_of_the_question():
    with Broker("listener {port} 127.0.0.1\nallow_anonymous true\ncontrol_loopback true\n") as broker:
        assert explain("-i", "asks-7", "t", port=broker.port).returncode == 0
        assert " as asks-7 (" in broker.log()
        assert explain("t", port=broker.port).returncode == 0
        assert " as mosq-index-" in broker.log()


def test_a_refused_connection():
    with Broker("listener {port} 127.0.0.1\n") as broker:
        done = explain("t", port=broker.port)
    assert done.returncode == 1
    assert "refused the connection" in done.stderr
    assert "-u USER" in done.stderr


@pytest.mark.parametrize("qos", [0, 1])
def test_where_only_a_lower_qos_is_allowed(qos):
    with Broker(f"listener {{port}} 127.0.0.1\nallow_anonymous true\ncontrol_loopback true\nmax_qos {qos}\n") as broker:
        assert explain("t", port=broker.port).returncode == 0


def test_the_host_by_name_and_by_number(broker):
    assert explain("t", "-h", "127.0.0.1", port=broker.port).returncode == 0
    assert explain("t", "--host", "localhost", port=broker.port).returncode == 0


# ---------------------------------------------------------------- listeners that are no mosq brokers

CONNACK, PUBACK, BYE = b"\x20\x03\x00\x00\x00", b"\x40\x02\x00\x01", b"\xe0\x02\x8e\x00"


@contextlib.contextmanager
def impostor(*answers):
    """Listen once; send answers[i] after the i-th read. A callable gets the bytes that were read."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        def serve():
            with contextlib.suppress(OSError), server.accept()[0] as sock:
                for answer in answers:
                    got = sock.recv(65536)
                    sock.sendall(answer(got) if callable(answer) else answer)
                while answers and answers[-1] != BYE and sock.recv(65536):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(10)


def replies(payload):
    """Return the answer of a broker that copied the correlation data."""
    def make(question):
        at = question.index(b"\x09\x00\x08")
        correlation = question[at:at + 11]
        return wire.frame(0x30, wire.text(RESPONSE, "topic"), wire.varint(len(correlation)), correlation, payload) + PUBACK
    return make


@pytest.mark.parametrize(("answers", "said"), [
    ((), "does not speak MQTT 5"),
    ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "does not speak MQTT 5"),
    ((b"\x20\x02\x00\x01",), "refused the connection"),
    ((CONNACK, b"\x40\x03\x00\x01\x87"), "does not allow this query"),
    ((CONNACK, b"\x40\x03\x00\x01\x97"), "refused"),
    ((CONNACK, BYE), "ended the conversation"),
    ((CONNACK, b"\xff\xff\xff\xff\xff\xff"), "ended the conversation"),
    ((CONNACK, replies(b"{")), "not JSON"),
    ((CONNACK, replies(b"\xff\xfe\xfd")), "not JSON"),
    ((CONNACK, replies(b"[" * 100_000)), "not JSON"),
    ((CONNACK, replies(b"[]")), "has an unexpected form"),
    ((CONNACK, replies(b'{"totals": {}}')), "has an unexpected form"),
], ids=range(12))
def test_answers_of_another_program(answers, said, capsys):
    with impostor(*answers) as port:
        assert commands.main(["index", "explain", "-h", "127.0.0.1", "-p", str(port), "t"]) == 1
    seen = capsys.readouterr()
    assert seen.out == ""
    assert said in seen.err
    assert str(port) in seen.err or "same version" in seen.err


@pytest.mark.parametrize("answers", [(CONNACK, PUBACK), (b"",)], ids=["treats the request as a message", "does not answer"])
def test_no_answer_in_time(answers, capsys):
    began = time.monotonic()
    with impostor(*answers) as port:
        assert commands.main(["index", "explain", "-h", "127.0.0.1", "-p", str(port), "t"]) == 1
    assert TIMEOUT_S <= time.monotonic() - began < TIMEOUT_S + AT_ONCE_S
    assert "mosq broker" in capsys.readouterr().err


def test_an_answer_does_not_steer_the_terminal(broker):
    explained = broker.explain("site/7/temp")
    explained["filters"][0]["filter"] = "\x1b[2J\u202e"
    assert "\\x1b[2J\\u202e" in report(explained)
    assert shown("日本 é") == "日本 é"
    explained["filters"][0]["subscribers"] = "many"
    with pytest.raises(NoAnswerError):
        report(explained)
