"""What the readers of configuration files raise."""


class Origin:
    """Where a value stands."""

    __slots__ = ("file", "line", "within")

    def __init__(self, file: str, line: int, within: "Origin | None" = None) -> None:
        self.file, self.line = file, line
        self.within = within            # the include_dir that led here

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
        origin = self.origin
        while origin is not None:
            lines += f"\nError found at {origin}."
            origin = origin.within
        return lines
