"""Nasir et al., Partial Key Grouping."""
