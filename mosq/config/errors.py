"""What the readers of configuration files raise."""


class Origin:
    """Where a value stands."""

    __slots__ = ("file", "line")

    def __init__(self, file: str, line: int) -> None:
        self.file, self.line = file, line

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class ConfigError(Exception):
    """A mistake in a configuration: what is wrong and what was expected, and where."""

    def __init__(self, text: str, origin: Origin | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.origin = origin

    def __str__(self) -> str:
        lines = f"Error: {self.text}"
        return lines if self.origin is None else f"{lines}\nError found at {self.origin}."
