"""Tests of processors without Spark: a tester for one key at a time, and whole queries with faults in their input."""
