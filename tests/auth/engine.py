"""Provide the data plane as `Access` sees it (requests in, answers out), and a configuration to make one of."""

import threading

from mosq.server.access import Access
from mosq.config.errors import Origin
from mosq.config.plugin import Plugin
from mosq.config.model import Config, Listener
from mosq.records import LoginRequest, LoginWait
from tests.harness.effort import TIMEOUT_S as WAIT_S

LOADING = ("Loading plugin: ", "Plugin ")       # lines about the plugins when they are loaded


def plugin_line(path, deny_special_chars=True, number=1, **options):
    """Return a `plugin` line of a configuration with its `plugin_opt_` lines."""
    line = Plugin(path, None, "global", Origin("mosq.conf", number))
    line.options = list(options.items())
    line.deny_special_chars = deny_special_chars
    return line


def config_of(password_file=None, plugins=(), listeners=1, per_listener=False, **options):
    config = Config()
    config.listeners = [Listener(1883 + i) for i in range(listeners)]
    config.per_listener_settings = per_listener
    config.password_file = None if password_file is None else str(password_file)
    config.plugins = list(plugins)
    for listener in config.listeners:
        listener.plugins = []
    for name, value in {"auth_threads": 2, **options}.items():
        setattr(config, name, value)
    return config


class FakeEngine:
    """Collect answers; `ask` waits for the answer to a request."""

    def __init__(self):
        self.answers = []
        self.waits = []
        self.lines = []
        self.batches = 0
        self._new = threading.Condition()
        self._handle = 0
        self.access = None

    def start(self, config):
        self.access = Access(config, lambda kind, text: self.lines.append(text), self.answer)
        self.lines = [line for line in self.lines if not line.startswith(LOADING)]
        return self

    def answer(self, answers):
        with self._new:
            self.batches += 1
            self.answers.extend(answer for answer in answers if not isinstance(answer, LoginWait))
            self.waits.extend(answer for answer in answers if isinstance(answer, LoginWait))
            self._new.notify_all()

    def wait(self, done):
        with self._new:
            assert self._new.wait_for(lambda: done(self.answers), WAIT_S), self.answers
            return list(self.answers)

    def handle(self):
        self._handle += 1
        return self._handle

    def connect(self, user="ann", password=b"secret", security=0, client_id="c", address="192.0.2.1", method=None, data=None,
                identity=None):
        return LoginRequest(self.handle(), security, client_id, user, password, address, 40000, 5, method, data, identity)

    def ask(self, request):
        """Return the answer to a request."""
        self.access.take([request])
        handle = request.handle
        answers = self.wait(lambda so_far: any(a.handle == handle for a in so_far))
        return next(a for a in answers if a.handle == handle)

    def login(self, *args, **kwargs):
        return self.ask(self.connect(*args, **kwargs)).code
