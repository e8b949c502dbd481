"""The same processor through Spark's stateful operators and through ``balance``, compared batch by batch."""
