"""Generate filters, and topics with the known number of matching filters.

Every corpus has the same mix in its own words: of ten filters six are exact, three have a `+` (in three positions) and
one ends with `#`; those of `wildcard-first` have a `+` at the front in addition. Topic number t is metric t % 10 of
group t // 10. The exact filter j and the `+` filter j match topic j alone, the `#` filter j all ten topics of group j.
So the number of matches of a topic is known without a model, and is at most three for any number of filters.

Filter i is the same in a corpus of any size. Filters and topics are in a random order, which is always the same.
"""

from __future__ import annotations

import contextlib
import random
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

PER_GROUP = 10
# most topics: few recur often and stay in the processor's caches; many do not
TRAFFIC = {"hot": 1_000, "wide": 50_000}
EXACT, PLUS, HASH = range(3)

LATIN = "abcdefghijklmnopqrstuvwxyz"
OTHERS = "бвгджзлшαβγδλπשמאبتج東京大阪한국กขकख"


@dataclass(frozen=True)
class Shape:
    """Hold templates: `g` is the group, `a` its hundreds, `b` the rest, `c` the metric, `l` a letter for each `a`."""

    title: str
    topic: str
    exact: str
    plus: tuple[str, str, str]
    hash: str
    letters: str = LATIN

    def write(self, template: str, group: int, metric: int) -> str:
        a = group // 100
        return template % {"g": group, "a": a, "b": group % 100, "c": metric, "l": self.letters[a % len(self.letters)]}

    def topic_at(self, t: int) -> str:
        return self.write(self.topic, t // PER_GROUP, t % PER_GROUP)

    def filter_at(self, i: int) -> str:
        kind, j = kind_of(i)
        if kind == HASH:
            return self.write(self.hash, j, 0)
        return self.write(self.exact if kind == EXACT else self.plus[j % 3], j // PER_GROUP, j % PER_GROUP)


def kind_of(i: int) -> tuple[int, int]:
    """Return the kind of filter i, and its number among the filters of its kind."""
    tens, one = divmod(i, 10)
    if one < 6:
        return EXACT, tens * 6 + one
    return (PLUS, tens * 3 + one - 6) if one < 9 else (HASH, tens)


def shape(title: str, topic: str, *, first: str = "", letters: str = LATIN) -> Shape:
    """Make a shape from a topic: a `+` may replace each of the three words in brackets, and a `#` begins at `|`."""
    head, tail = topic.split("|")
    words = [word.split("]")[0] for word in topic.split("[")[1:]]

    def plain(text: str) -> str:
        text = text.replace("[", "").replace("]", "").replace("|", "")
        return first + text[text.index("/"):] if first else text

    one, two, three = (plain(topic.replace(f"[{word}]", "+")) for word in words)
    return Shape(title, (head + tail).replace("[", "").replace("]", ""), plain(topic), (one, two, three),
                 plain(head) + "#", letters)


SHAPES = {
    "realistic": shape("26 kinds of site, devices, metrics", "[%(l)ssite]/%(a)d/[device]/%(b)d/|[metric]/%(c)d"),
    "skewed": shape("all begin with sensors/, many on the level below", "sensors/[eu]/%(g)d/|[status]/%(c)d/[value]"),
    "numeric": shape("the first level is one of many numbers", "%(g)d/[status]/|[now]/%(c)d/[value]"),
    "non-latin": shape("first levels and words in many scripts",
                       "%(l)s城%(a)d/[устройство]/%(b)d/|[μέτρηση]/%(c)d/[값]", letters=OTHERS),
    "deep": shape("14 levels", "plant/%(l)s/[building]/%(a)d/floor/1/hall/2/[line]/%(b)d/|[cell]/3/metric/%(c)d"),
    "wildcard-first": shape("every filter begins with +",
                            "%(l)ssite/%(a)d/[device]/%(b)d/|[metric]/%(c)d/[value]", first="+"),
}


@dataclass(frozen=True)
class Traffic:
    """Hold topics, and the number of deliveries of each."""

    topics: bytes               # one topic per line
    deliveries: bytes           # the number of deliveries of each topic

    def __len__(self) -> int:
        return len(self.deliveries)

    def expected(self, first: int = 0, count: int | None = None) -> int:
        return sum(self.deliveries[first:] if count is None else self.deliveries[first:first + count])


@dataclass(frozen=True)
class Corpus:
    """Hold a corpus of n filters."""

    name: str
    n: int                      # filters

    @property
    def shape(self) -> Shape:
        return SHAPES[self.name]

    def kinds(self) -> tuple[int, int, int]:
        tens, ones = divmod(self.n, 10)
        return tens * 6 + min(ones, 6), tens * 3 + min(max(ones - 6, 0), 3), tens

    def topics(self) -> int:
        """Return how many topics match at least one filter."""
        exact, plus, hash = self.kinds()
        return max(exact, plus, hash * PER_GROUP)

    def deliveries(self, t: int) -> int:
        exact, plus, hash = self.kinds()
        return (t < exact) + (t < plus) + (t // PER_GROUP < hash)

    def filters(self) -> bytes:
        order = list(range(self.n))
        random.Random(self.n).shuffle(order)
        return lines(self.shape.filter_at(i) for i in order)

    def retained(self) -> bytes:
        """Return as many topics as there are filters, with or without a matching filter."""
        order = list(range(self.n))
        random.Random(self.n).shuffle(order)
        return lines(self.shape.topic_at(t) for t in order)

    def traffic(self, name: str = "hot") -> Traffic:
        chosen = random.Random(self.n).sample(range(self.topics()), min(TRAFFIC[name], self.topics()))
        return Traffic(lines(self.shape.topic_at(t) for t in chosen), bytes(self.deliveries(t) for t in chosen))


def lines(texts: Iterable[str]) -> bytes:
    return "".join([text + "\n" for text in texts]).encode()


def stored_filters(corpus: Corpus, folder: Path = Path("build/corpora")) -> bytes:
    """Return the filters of a large corpus, from a file if they were made before, which is 20 times faster."""
    if corpus.n < 100_000:
        return corpus.filters()
    version = zlib.crc32(Path(__file__).read_bytes())
    path = folder / f"{corpus.name}-{corpus.n}-{version:08x}.txt"
    with contextlib.suppress(FileNotFoundError):
        return path.read_bytes()
    text = corpus.filters()
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob(f"{corpus.name}-{corpus.n}-*.txt"):
        old.unlink()
    made = path.with_suffix(".new")
    made.write_bytes(text)
    made.rename(path)
    return text
