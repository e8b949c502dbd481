"""Streams and workers simulated in one process."""
