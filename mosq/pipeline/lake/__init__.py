"""Tables on Delta Lake without Spark: where they are, their files, their commits, their upkeep, and their lock."""
