"""Errors of a cluster. No text has a password."""


class AwayError(Exception):
    """Redis did not answer, or may not be used now. It may pass; the request may have been carried out."""


class RefusedError(Exception):
    """This node may not join: its configuration does not fit the cluster. It does not pass by itself."""
