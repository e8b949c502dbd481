"""Durable keyed state: entries of key groups in files of changes and snapshots, and their copy on each machine."""
