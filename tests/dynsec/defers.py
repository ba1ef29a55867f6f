"""Provide a plugin that decides about one topic, and leaves the others to dynamic security."""

from mosq.auth.plugin import ALLOW, DEFER, AclRequest, Plugin, Verdict


class Defers(Plugin):
    def authorize(self, request: AclRequest) -> Verdict:
        return ALLOW if request.topic == "never" else DEFER
