# Access checks for benchmarks; see acl_bench.pyx.
from collections.abc import Sequence

class AclBench:
    def __init__(self, rules: Sequence[tuple[bytes | None, str, str, bytes]],
                 asks: Sequence[tuple[bytes | None, bytes, bytes]]) -> None: ...
    def seconds(self, loops: int, known_user: bool = True) -> tuple[float, int]: ...
