"""Measures of balance from the papers, one function each.

``loads`` is always the load of each worker (partition, channel, block), idle workers included: finite numbers of at
least 0, in any unit. If every load is 0, the work counts as balanced: ratios are 1, differences and deviations are 0.

References
----------
.. [DR] Zvara et al., "System-aware dynamic partitioning for batch and streaming workloads".
.. [PKG] Nasir et al., "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams".
.. [Gedik] Gedik, "Partitioning Functions for Stateful Data Parallelism in Stream Processing".
.. [Prompt] Abdelhamid et al., "Prompt: Dynamic Data-Partitioning for Distributed Micro-batch Stream Processing
   Systems".
.. [DKG] Dalabasmaz and Can, "Dynamic Key Grouping: A Load Balancing Algorithm for Distributed Stream Processing
   Engines".
"""

from equipoise.metrics.balance import (
    average_imbalance_fraction,
    average_imbalance_fraction_of_loads,
    balance_penalty,
    imbalance,
    load_imbalance,
    load_ratio,
    lower_bound,
    overall_balance_penalty,
    overall_imbalance,
    relative_load_imbalance,
    relative_migration,
    standard_deviation,
)
from equipoise.metrics.key_splits import (
    block_cardinality_imbalance,
    block_size_imbalance,
    count_distinct_keys,
    distribution_cost,
    key_split_ratio,
    micropartitioning_imbalance,
)
from equipoise.metrics.schedules import makespan, makespan_lower_bound

__all__ = [
    "average_imbalance_fraction",
    "average_imbalance_fraction_of_loads",
    "balance_penalty",
    "block_cardinality_imbalance",
    "block_size_imbalance",
    "count_distinct_keys",
    "distribution_cost",
    "imbalance",
    "key_split_ratio",
    "load_imbalance",
    "load_ratio",
    "lower_bound",
    "makespan",
    "makespan_lower_bound",
    "micropartitioning_imbalance",
    "overall_balance_penalty",
    "overall_imbalance",
    "relative_load_imbalance",
    "relative_migration",
    "standard_deviation",
]
