"""Compute the rows of all tables from records, as columns of Arrow, without Spark."""
