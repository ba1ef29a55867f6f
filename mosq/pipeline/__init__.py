"""Run Spark jobs over the messages and events that the broker wrote to its streams (docs/pipeline.md).

The pipeline is a process of its own: the broker never imports this package. This module imports nothing, so that `mosq
pipeline doctor` works on a machine without Spark.
"""


def user() -> str:
    """Return the user of this process, for advice about permissions."""
    import os
    import pwd

    try:
        return f"the user {pwd.getpwuid(os.geteuid()).pw_name}"
    except KeyError:
        return f"the user with the number {os.geteuid()}"


class MosqPipelineError(Exception):
    """State in one text what is wrong, where it is, and what the user can do about it."""
