"""Prompt on Spark: a source whose batches are planned before they run, and queries over them."""
