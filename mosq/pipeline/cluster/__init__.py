"""Run the pipeline on a Spark cluster: what executors need, whether they have it, and a cluster of one machine."""
