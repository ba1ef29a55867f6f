"""Errors of a cluster. No text has a password."""


class AwayError(Exception):
    """Redis did not answer, or may not be used now. It may pass; the request may have been carried out. `sent`: whether
    it was sent; `refused`: Redis has answered with an error, and has done nothing."""

    def __init__(self, text: str, *, sent: bool = True, refused: bool = False) -> None:
        super().__init__(text)
        self.sent, self.refused = sent, refused


class RefusedError(Exception):
    """This node may not join: its configuration does not fit the cluster. It does not pass by itself."""
