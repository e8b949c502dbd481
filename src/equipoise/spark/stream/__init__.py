"""Keyed state in Structured Streaming that moves with the load."""
