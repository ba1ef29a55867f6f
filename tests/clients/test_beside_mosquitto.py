"""Run `mosq pub` and `mosq sub` side by side with Debian's mosquitto_pub and mosquitto_sub, on one broker: the same
output, the same exit status."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mosq.cli.commands import main
from tests.harness.broker import Broker, free_port
from tests.harness.effort import TIMEOUT_S

pytestmark = pytest.mark.interop
CONFIG = """per_listener_settings true
listener {port} 127.0.0.1
allow_anonymous true
acl_file {dir}/acl
queue_qos0_messages true
"""
ACL = "topic readwrite #\ntopic deny closed/#\n"
TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z?[+-]\d{4}|\d{10}\.\d{9}")
EXPIRY = re.compile(rb'(expiry-interval":\t?)\d+|(?<=<)\d+(?=>)')

FORMATS = ["%t|%p", "%5l|%010l|%-10l|%l", "%t|%-12t|%12t|%.2t|%9.2t", "%x|%X", "%q%r", "%m", "%%", "%60p|%-60p|", "%I", "%U", "@Y@@",
           r"\\\0\a\e\n\r\t\v", "%j", "%J", "%C|%12C|%-12C|%.3C", "%D", "<%E>", "%F|%3F", "%P", "%R", "%S|%5S|%-5S|%05S", "%A|%5A", "a b"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    assert shutil.which("mosquitto_sub"), "Debian's package mosquitto-clients"
    with Broker(CONFIG, {"acl": ACL}) as running:
        theirs(running, "pub", "-r", "-t", "f/text", "-m", "hi")
        theirs(running, "pub", "-r", "-q", "1", "-t", "f/json", "-m", '{"x": 1.50, "y":[1,2], "z": {"e": "\\u00e9"}}', "-V", "5",
               "-D", "PUBLISH", "content-type", "text/plain", "-D", "PUBLISH", "user-property", "k", "v", "-D", "PUBLISH", "response-topic", "r/t",
               "-D", "PUBLISH", "correlation-data", "cor", "-D", "PUBLISH", "message-expiry-interval", "900", "-D", "PUBLISH", "payload-format-indicator", "1")
        yield running


def theirs(broker: Broker, program: str, *words: str, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
    done = subprocess.run([f"mosquitto_{program}", "-h", "127.0.0.1", "-p", str(broker.port), *words], input=stdin, capture_output=True,
                          timeout=TIMEOUT_S, check=False)
    return done.returncode, done.stdout, done.stderr


def ours(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes], program: str, *words: str) -> tuple[int, bytes, bytes]:
    capfdbinary.readouterr()
    status = main([program, "-h", "127.0.0.1", "-p", str(broker.port), *words])
    out, err = capfdbinary.readouterr()
    return status, out, err


def without_times(text: bytes) -> bytes:
    return EXPIRY.sub(rb"\1?", TIME.sub(b"TIME", text))


@pytest.mark.parametrize("text", FORMATS)
@pytest.mark.parametrize("level", ["311", "5"])
def test_each_format_prints_the_same(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes], text: str, level: str) -> None:
    for topic, more in (("f/text", ()), ("f/json", ("-q", "1")), ("f/json", ("--pretty", "-D", "SUBSCRIBE", "subscription-identifier", "7"))):
        if level == "311" and "-D" in more:
            more = ("--pretty",)
        words = ("-V", level, "-t", topic, "-C", "1", "-F", text, *more)
        one, other = theirs(broker, "sub", *words), ours(broker, capfdbinary, "sub", *words)
        assert without_times(other[1]) == without_times(one[1])
        assert other[0] == one[0] == 0
        assert other[2].strip() == one[2].strip()


@pytest.mark.parametrize("words", [("-v",), ("-N",), ("-v", "-N"), ("-R", "-W", "1"), ("--retained-only", "-W", "1"), ("-T", "f/#", "-W", "1"),
                                   ("-T", "g/#"), ("-E",), ("-W", "1", "--quiet"), ("-i", "kept", "-c"), ("-I", "kept"), ("-k", "10"), ("-q", "2")],
                         ids=" ".join)
def test_each_flag_of_sub_prints_the_same(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes], words: tuple[str, ...]) -> None:
    words = ("-t", "f/text", *(() if "-W" in words or "-E" in words else ("-C", "1")), *words)
    one, other = theirs(broker, "sub", *words), ours(broker, capfdbinary, "sub", *words)
    assert other == one


# words; the status is compared, and the first words of the error
WRONG = [
    "pub -t a", "pub -m x", "pub -t a/# -m x", "pub -t a -m x -q 3", "pub -t a -m x --bogus", "pub -t a -m x -n", "pub -t a -m x -P secret",
    "pub -t a -m x --will-payload y", "pub -t a -m x --will-topic #", "pub -t a -m x -i a -I b", "pub -t a -m x -k 3", "pub -t a -m x --repeat 0",
    "pub -t a -f /none", "pub -t a -s", "pub -t a -m x --cert /none", "pub -t a -m x --cafile /none", "pub -t a -m x -L http://h/x",
    "pub -t a -m x -V 7", "pub -t a -m x -c", "pub -t a -m x -D PUBLISH", "pub -t a -m x -D NONE content-type x",
    "pub -t a -m x -D CONNECT content-type x", "pub -t a -m x -D PUBLISH nonsense 1", "pub -t a -m x -D PUBLISH message-expiry-interval 99999999999",
    "sub", "sub -t a#", "sub -t a -C 0", "sub -t a -W 0", "sub -t a -c", "sub -t a -F %z", "sub -t a -F %", "sub -t a -F \\q", "sub -t a -V 7",
    "sub -t a -q 9", "sub -t a -U #/a", "sub -t a -T a#", "sub -t a -p", "sub -t a -p 99999",
]


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_ends_with_the_same_status(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch,
                                                        line: str) -> None:
    with open("/dev/null") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        one, other = theirs(broker, *line.split(" ")), ours(broker, capfdbinary, *line.split(" "))
    assert other[0] == one[0] == 1
    assert other[2].startswith(b"Error")
    assert b"Traceback" not in other[2]


@pytest.mark.parametrize("level", ["311", "5"])
def test_a_refused_login_ends_with_its_code(capfdbinary: pytest.CaptureFixture[bytes], level: str) -> None:
    with Broker("listener {port} 127.0.0.1\nallow_anonymous false\n") as closed:
        for program, words in (("pub", ("-t", "a", "-m", "x", "-V", level)), ("sub", ("-t", "a", "-V", level))):
            one, other = theirs(closed, program, *words), ours(closed, capfdbinary, program, *words)
            assert other[0] == one[0] == (135 if level == "5" else 5)
            assert other[2].startswith(one[2].splitlines()[0])
            assert b"-u USER -P PASSWORD" in other[2]


def test_no_broker_ends_with_the_same_status(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    nothing = Broker("")
    nothing.port = free_port()
    try:
        for program, words in (("pub", ("-t", "a", "-m", "x")), ("sub", ("-t", "a"))):
            one, other = theirs(nothing, program, *words), ours(nothing, capfdbinary, program, *words)
            assert other[0] == one[0] == 1
            assert other[2].startswith(one[2].strip())
    finally:
        nothing.close()


def test_a_denied_message_is_reported_by_both(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    words = ("-V", "5", "-q", "1", "-t", "closed/x", "-m", "x")
    assert ours(broker, capfdbinary, "pub", *words) == theirs(broker, "pub", *words)


def test_denied_subscriptions_are_reported_by_both(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """mosq denies a stream that does not exist."""
    words = ("-V", "5", "-t", "$stream/none", "-W", "30")
    with Broker("persistence true\npersistence_location {dir}\nstream all m/#\n") as streams:
        one = theirs(streams, "sub", *words)
        assert one[2].startswith(b"All subscription requests were denied.")
        assert ours(streams, capfdbinary, "sub", *words) == one


# ---------------------------------------------------------------- messages

def received(broker: Broker, name: str, count: int) -> list[bytes]:
    """Return what a durable session has received, by Debian's client."""
    _, out, _ = theirs(broker, "sub", "-i", name, "-c", "-q", "2", "-t", "m/#", "-C", str(count), "-W", "10", "-F", r"%t %q %x", "-R")
    return out.splitlines()


@pytest.mark.parametrize(("words", "stdin", "count"), [
    (("-m", "x"), b"", 1), (("-m", "-x"), b"", 1), (("-m", "-D"), b"", 1), (("-m", ""), b"", 1), (("-n",), b"", 1), (("-s",), b"a\nb\0\xff", 1),
    (("-l",), b"a\n\nb\xff\nend", 4), (("-l",), b"", 0), (("-m", "x", "--repeat", "3"), b"", 3), (("-f", "/etc/hostname"), b"", 1),
    (("-m", "x", "--repeat", "2", "--repeat-delay", "0.1"), b"", 2), (("-m", "x", "-M", "1", "--repeat", "5"), b"", 5),
], ids=str)
@pytest.mark.parametrize("qos", ["0", "2"])
def test_each_source_of_payloads_sends_the_same(broker: Broker, words: tuple[str, ...], stdin: bytes, count: int, qos: str) -> None:
    name = f"reader-{abs(hash((words, qos)))}"
    theirs(broker, "sub", "-i", name, "-c", "-q", "2", "-t", "m/#", "-E")
    assert theirs(broker, "pub", "-q", qos, "-t", "m/1", *words, stdin=stdin)[0] == 0
    done = subprocess.run([sys.executable, "-m", "mosq", "pub", "-h", "127.0.0.1", "-p", str(broker.port), "-q", qos, "-t", "m/1", *words], input=stdin,
                          capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    theirs(broker, "pub", "-q", qos, "-t", "m/end", "-m", "end")
    got = received(broker, name, 2 * count + 1)
    assert got[-1].startswith(b"m/end ")
    assert got[:count] == got[count:-1]


def test_properties_arrive_as_from_mosquitto_pub(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    words = ("-V", "5", "-r", "-t", "p/1", "-m", "x", "-D", "PUBLISH", "user-property", "k", "v", "-D", "publish", "user-property", "k2", "v 2",
             "-D", "PUBLISH", "content-type", "é", "-D", "PUBLISH", "correlation-data", "c", "-D", "PUBLISH", "payload-format-indicator", "1")
    shown = []
    for send in (lambda: theirs(broker, "pub", *words), lambda: ours(broker, capfdbinary, "pub", *words)):
        assert send()[0] == 0
        shown.append(theirs(broker, "sub", "-V", "5", "-t", "p/1", "-C", "1", "-F", "%P|%C|%D|%F|%r")[1])
    assert shown[0] == shown[1] == "k:v k2:v 2|é|c|1|1\n".encode()


def test_retained_messages_are_removed(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    for name in ("a", "b", "kept"):
        theirs(broker, "pub", "-r", "-t", f"old/{name}", "-m", name)
    status, out, _ = ours(broker, capfdbinary, "sub", "-t", "old/#", "-T", "old/kept", "--remove-retained", "-C", "2", "-v")
    assert (status, sorted(out.splitlines())) == (0, [b"old/a a", b"old/b b"])
    assert theirs(broker, "sub", "-t", "old/#", "-C", "1", "-v")[1] == b"old/kept kept\n"
    assert theirs(broker, "sub", "-t", "old/#", "-W", "1", "-v")[1] == b"old/kept kept\n"
