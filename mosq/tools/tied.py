"""Start a program that the kernel kills when the caller ends, also by SIGKILL: no broker and no JVM is left behind."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# prctl(PR_SET_PDEATHSIG, SIGKILL) survives exec; a caller that ended before it is not the parent any more
TIE = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.getppid() == int(sys.argv[1]) or os._exit(1);"
    " os.execvp(sys.argv[2], sys.argv[2:])"
)


def tied(command: "Sequence[str]") -> list[str]:
    """Return the command line that runs `command` in the same process. The calling thread must live as long as it."""
    return [sys.executable, "-I", "-S", "-c", TIE, str(os.getpid()), *command]
