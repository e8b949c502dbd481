"""Abdelhamid et al., Prompt: Dynamic Data-Partitioning for Distributed Micro-batch Stream Processing Systems."""
