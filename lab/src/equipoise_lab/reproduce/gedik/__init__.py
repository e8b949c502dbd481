"""Gedik, Partitioning Functions for Stateful Data Parallelism in Stream Processing."""
