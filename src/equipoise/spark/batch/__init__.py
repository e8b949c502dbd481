"""Keyed batch jobs: profile, advise, balance and join."""
