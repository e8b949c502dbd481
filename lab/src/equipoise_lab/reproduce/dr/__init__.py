"""Zvara et al., System-aware dynamic partitioning for batch and streaming workloads."""
