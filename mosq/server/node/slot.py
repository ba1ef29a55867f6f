"""One worker of a cluster, as the parent of a node sees it: it runs here, or at another node."""

from mosq.server.workers.slot import Slot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mosq.server.workers.channel import Channel


class NodeSlot(Slot):
    """The place of a worker. The agent decides when a process starts, and under which token."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.token = 0                  # of the process that runs, or ran last
        self.next_token = 0             # of the process that starts next; 0: none
        self.served = False             # whether that process has served clients
        self.stop_s: float | None = None        # until when the process may stop in good order; None: it shall run
        self.uses = 0                   # the document of dynamic security that it uses: count in documents.py
        self.report_s: float | None = None      # when the agent learns that the process has ended; None: it knows

    @property
    def is_here(self) -> bool:
        """Return whether this node has a process of the worker."""
        return self.pid != 0

    @property
    def is_starting(self) -> bool:
        """Return whether a process has not finished its start."""
        return self.pid != 0 and not self.ready

    def began(self, pid: int, channel: "Channel", now_s: float) -> None:
        """Note a new process."""
        super().began(pid, channel, now_s)
        self.token, self.next_token, self.served, self.stop_s, self.report_s = self.next_token, 0, False, None, None

    def shall_start(self, token: int, now_s: float) -> None:
        """Start a process with this token, as soon as there is no other one."""
        self.next_token, self.report_s = token, None
        self.due_s = now_s if not self.pid else None

    def shall_not_start(self) -> None:
        """Forget a start that has not begun."""
        self.next_token, self.due_s, self.report_s = 0, None, None
