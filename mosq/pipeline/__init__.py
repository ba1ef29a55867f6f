"""The data pipeline: Spark jobs over what the broker carried (docs/pipeline.md). A process of its own: the broker never
imports this package, and this module imports nothing, so that `mosq pipeline doctor` works where Spark does not."""


class MosqPipelineError(Exception):
    """What is wrong, where, and what to do about it, in one text."""
