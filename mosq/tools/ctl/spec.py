"""Commands of a module as data: arguments, the request, the formatting of the answer. The command line, the shell, its
completion and docs/control.md use the same table."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Values = dict[str, str]
    Build = Callable[[Values], dict[str, Any]]
    Show = Callable[[Any], Iterable[str]]

WORD, USER, GROUP, ROLE, CLIENT = "word", "username", "groupname", "rolename", "clientid"
PASSWORD = "password"           # prompted for if it is missing
NUMBER = "number"
ALLOW = ("allow", "deny")
NEAR_MAX = 3                    # suggestions for an unknown word


class BadInputError(Exception):
    """Invalid input of the user; the text says what was expected."""


class Arg:
    """One argument. `kind`: the kind of name, for completion; or the allowed words."""

    __slots__ = ("flags", "kind", "name", "required")

    def __init__(self, name: str, kind: "str | tuple[str, ...]" = WORD, required: bool = True,
                 flags: tuple[str, ...] = ()) -> None:
        self.name, self.kind, self.required = name, kind, required
        self.flags = flags      # given after one of these flags, not by position

    @property
    def shown(self) -> str:
        """Return the argument as the usage line shows it."""
        text = "|".join(self.kind) if isinstance(self.kind, tuple) else f"<{self.name}>"
        if self.flags:
            text = f"{self.flags[0]} {text}"
        return text if self.required else f"[{text}]"

    def checked(self, value: str) -> str:
        """Return the value in the spelling of the table. Raises BadInputError."""
        if isinstance(self.kind, tuple):
            for word in self.kind:
                if word.lower() == value.lower():
                    return word
            raise BadInputError(f"{value!r} is not a valid {self.name}; expected {' or '.join(self.kind)}."
                                f"{nearest(value, self.kind)}")
        if self.kind == NUMBER and not value.lstrip("-").isdecimal():
            raise BadInputError(f"{value!r} is not a number; {self.name} must be a number.")
        return value


class Spec:
    """One command."""

    __slots__ = ("args", "build", "help", "name", "section", "show")

    def __init__(self, name: str, help_: str, args: tuple[Arg, ...] = (), build: "Build | None" = None,
                 show: "Show | None" = None, section: str = "") -> None:
        self.name, self.help, self.args, self.show, self.section = name, help_, args, show, section
        self.build: Build = build if build is not None else self._as_given

    @property
    def usage(self) -> str:
        """Return the usage line of the command."""
        return " ".join([self.name, *(arg.shown for arg in self.args)])

    def _as_given(self, values: "Values") -> "dict[str, Any]":
        """Return the arguments under their names; numbers as numbers."""
        return {arg.name: int(values[arg.name]) if arg.kind == NUMBER else values[arg.name]
                for arg in self.args if arg.name in values}

    def read(self, words: "list[str]") -> "Values":
        """Return the words by argument name. Raises BadInputError."""
        values: Values = {}
        flags = {flag: arg for arg in self.args for flag in arg.flags}
        places = [arg for arg in self.args if not arg.flags]
        rest = iter(words)
        for word in rest:
            arg = flags.get(word)
            if arg is not None:
                value = next(rest, None)
                if value is None:
                    raise BadInputError(f"{word} argument given, but no {arg.name} provided.")
                values[arg.name] = arg.checked(value)
            elif places:
                arg = places.pop(0)
                values[arg.name] = arg.checked(word)
            else:
                raise BadInputError(f"Too many arguments: {word!r}. Expected: {self.usage}")
        missing = [arg.name for arg in places if arg.required]
        if missing:
            raise BadInputError(f"Not enough arguments: {', '.join(missing)} missing. Expected: {self.usage}")
        return values

    def command(self, values: "Values") -> "dict[str, Any]":
        """Return the command as JSON object."""
        return {"command": self.name, **self.build(values)}


def nearest(name: str, known: "Iterable[str]") -> str:
    """Return a question with the known words that may be meant, with a space before it; "" if none is near."""
    from difflib import get_close_matches

    by_lower = {word.lower(): word for word in known}
    word = name.lower()
    begins = [one for one in by_lower if len(word) > 1 and one.startswith(word)]
    near = list(dict.fromkeys([*get_close_matches(word, by_lower), *begins]))[:NEAR_MAX]
    return f" Did you mean {' or '.join(repr(by_lower[one]) for one in near)}?" if near else ""


class Module:
    """The commands of one topic."""

    __slots__ = ("help", "name", "specs", "topic_of")

    def __init__(self, name: str, help_: str, specs: "Iterable[Spec]", topic_of: "Callable[[Spec], str]") -> None:
        self.name, self.help, self.topic_of = name, help_, topic_of
        self.specs = {spec.name.lower(): spec for spec in specs}

    def find(self, name: str) -> "Spec | None":
        """Find a command, case-insensitively as in mosquitto_ctrl."""
        return self.specs.get(name.lower())
