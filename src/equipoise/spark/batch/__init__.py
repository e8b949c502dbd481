"""Keyed batch jobs: profile, advise, balance, aggregate, join."""
