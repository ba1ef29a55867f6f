"""Run the pipeline: the jobs of one run, compaction, status, and the checks before the first run."""
