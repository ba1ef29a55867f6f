# Test API of the bench room; see load_api.pyx.
from collections.abc import Iterable

from cext.bench.generator import Figures

def histogram_of(durations_ns: Iterable[int]) -> Figures: ...
def taken(numbers: Iterable[int]) -> tuple[list[int], list[tuple[int, int]]]: ...
