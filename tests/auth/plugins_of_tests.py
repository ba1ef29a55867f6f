"""Provide plugins that the tests load as an operator does: by module and class."""

import threading
import time

from mosq.auth.plugin import (
    ALLOW, DEFER, DENY, DROP, SUBSCRIBE, WRITE, Plugin, allow_as, allow_with, go_on,
)

made = []                       # every instance, the newest last


class Base(Plugin):
    def __init__(self, options):
        self.options, self.calls, self.closed, self.reloads = dict(options), [], 0, []
        made.append(self)

    def close(self):
        self.closed += 1


class ByName(Base):
    """Allow users called allow..., deny deny..., rename as-X to X, fail for the others except `defer`."""

    def authenticate(self, request):
        self.calls.append(request)
        user = request.username or "nobody"
        if user.startswith("as-"):
            return allow_as(user.removeprefix("as-"))
        for word, verdict in (("allow", ALLOW), ("deny", DENY), ("defer", DEFER), ("nobody", DEFER), ("none", None),
                              ("bad", allow_as("zero\0byte")), ("long", allow_as("x" * 70000)), ("on", go_on(b"x"))):
            if user.startswith(word):
                return verdict
        raise RuntimeError(f"no place for {request.password}")


class AllowsAll(Base):
    def authenticate(self, request):
        self.calls.append(request)
        return ALLOW


class Slow(Base):
    """Wait until the test lets it continue."""

    go = threading.Event()

    def authenticate(self, request):
        self.calls.append(request)
        self.go.wait(20)
        return ALLOW


class Concurrent(Base):
    concurrent = True
    threads = 4
    together = threading.Barrier(4)

    def authenticate(self, request):
        self.together.wait(20)          # four at a time, or the wait times out
        return ALLOW


class Challenge(Base):
    """Authenticate by the method `twice`: the client must answer a challenge with its reverse, two times."""

    def extended(self, step):
        self.calls.append(step)
        if step.method != "twice":
            return DEFER
        if step.data == b"raise":
            raise RuntimeError("secret")
        if step.first:
            step.state["left"] = 2
        elif step.data != step.state["challenge"][::-1]:
            return DENY
        else:
            step.state["left"] -= 1
        if not step.state["left"]:
            return allow_with(b"welcome", username=step.username or "somebody")
        step.state["challenge"] = b"abc%d" % step.state["left"]
        return go_on(step.state["challenge"])


class OtherMethod(Base):
    def extended(self, step):
        return ALLOW if step.method == "other" else DEFER


class Rules(Base):
    """Give `private/USER/...` to the user, allow all subscriptions, and decide nothing about `open/`."""

    def authorize(self, request):
        self.calls.append(request)
        if request.topic.startswith("fail"):
            raise RuntimeError
        if request.topic.startswith("open/"):
            return DEFER
        if request.access == SUBSCRIBE or request.topic.startswith(f"private/{request.username}/"):
            return ALLOW
        return DENY


class Shout(Base):
    topics_in = ("in/#", "$x/in")
    topics_out = ("out/+",)

    def message_in(self, message):
        self.calls.append(message)
        word = message.payload
        if word == b"drop":
            return DROP
        if word == b"fail":
            raise RuntimeError
        if word == b"bad":
            return message._replace(topic="a/#")
        if word == b"same":
            return None
        if word == b"publish":
            self.broker.publish("copy", word, 1, True)
        return message._replace(payload=word.upper(), qos=1)

    def message_out(self, message):
        return message._replace(payload=b"<" + message.payload + b">", topic="changed/" + message.topic)


class Passes(Base):
    """Allow everything and change nothing, a moment later."""

    topics_out = ("#",)

    def authorize(self, request):
        return ALLOW

    def message_out(self, message):
        time.sleep(0.001)
        return message


class Delays(Base):
    """Decide about topics that begin with `late` after more than a second, and about others at once."""

    def authenticate(self, request):
        return ALLOW

    def authorize(self, request):
        if request.topic.startswith("late") and request.access == WRITE:
            time.sleep(1.3)
        return ALLOW


class Twice(Base):
    topics_in = ("in/both",)

    def message_in(self, message):
        return message._replace(payload=message.payload * 2)


class Listens(Base):
    def __init__(self, options):
        super().__init__(options)
        self.seen = threading.Semaphore(0)

    def _note(self, kind, event):
        self.calls.append((kind, *event))
        self.seen.release()

    def connected(self, event):
        self._note("connected", event)

    def disconnected(self, event):
        self._note("disconnected", event)

    def subscribed(self, event):
        raise RuntimeError("secret")

    def tick(self):
        self._note("tick", ())


class Reloads(Base):
    def authenticate(self, request):
        return ALLOW if self.options.get("word") == (request.password or b"").decode() else DENY

    def reload(self, options):
        self.reloads.append(dict(options))
        self.options = dict(options)


class Refuses(Plugin):
    def __init__(self, options):
        raise ValueError("expected plugin_opt_url")


class Breaks(Plugin):
    def __init__(self, options):
        raise RuntimeError(options["password"])


class NotAPlugin:
    pass


class Stuck(Base):
    def authenticate(self, request):
        time.sleep(3600)
