"""Errors in configuration files, with their place, and the texts of other errors."""


class Origin:
    """The file and line of a value."""

    __slots__ = ("file", "line", "within")

    def __init__(self, file: str, line: int, within: "Origin | None" = None) -> None:
        self.file, self.line = file, line
        self.within = within            # the include_dir line that read this file

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class ConfigError(Exception):
    """An error in a configuration: the problem, what was expected, and the place."""

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


def text_of(error: Exception) -> str:
    """Return the text of our own errors, or the reason of the system with the path that it is about."""
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    path = getattr(error, "filename", None)
    return text if path is None or str(path) in text else f"{path}: {text}"
