"""Simulation of streams, workers and planners in one process."""
