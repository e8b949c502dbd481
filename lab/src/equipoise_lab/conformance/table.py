"""Spark's own tests of its stateful operators for Python, and the cases that exercise what each of them does.

The names are those of the test methods in Spark's repository, under ``python/pyspark/sql/tests``. A test that Spark
runs in the pandas and in the Row form has cases that run in both. Spark runs the first two groups a second time in the
second format of its checkpoints (``*_checkpoint_v2.py``). That is a setting of Spark's own state, and one case here has
it. The tests of Spark's ``TwsTester`` are listed in ``tests/testing/spark_tests.py``.
"""

from equipoise_lab.conformance.case import Form

TRANSFORM_WITH_STATE = {
    "test_transform_with_state_basic": ("value", "append"),
    "test_transform_with_state_query_restarts": ("restart", "restart-with-table", "checkpoint-format-2"),
    "test_transform_with_state_proc_timer": ("processing-timer",),
    "test_transform_with_state_event_time": ("event-timer", "many-timers"),
    "test_transform_with_state_with_wmark_and_non_event_time": (
        "late-rows-time-mode-none",
        "late-rows-processing-time",
    ),
    "test_transform_with_state_non_contiguous_grouping_cols": ("key-columns-apart",),
    "test_transform_with_state_non_contiguous_grouping_cols_with_init_state": ("key-columns-apart-initial-state",),
    "test_transform_with_state_chaining_ops": ("chained", "chained-by-two-columns"),
    "test_transform_with_state_batch_query": ("batch",),
    "test_transform_with_state_batch_query_initial_state": ("batch-initial-state",),
    "test_transform_with_state_in_pandas_composite_type": ("nested-state", "row-values"),
    "test_composite_output_schema": ("nested-output",),
    "test_transform_with_state_with_timers_single_partition": (
        "event-timer-one-partition",
        "processing-timer-one-partition",
    ),
    "test_schema_evolution_scenarios": ("evolution", "evolution-float-to-double"),
    "test_schema_evolution_fails": ("evolution-narrowed",),
    "test_not_nullable_fails": ("state-not-nullable",),
    "test_transform_with_state_int_to_decimal_coercion": ("int-to-decimal", "int-to-decimal-off"),
    "test_transform_with_state_with_bytes_limit": (
        "chunks-few-bytes",
        "chunks-few-bytes-initial-state",
        "chunks-many-bytes",
        "chunks-many-bytes-initial-state",
    ),
    "test_transform_with_state_with_records_limit": (
        "chunks-one-row",
        "chunks-one-row-initial-state",
        "chunks-any-rows",
        "chunks-any-rows-initial-state",
        "chunks-two-rows",
    ),
    "test_transform_with_state_large_values": ("large-values",),
}
"""``pandas/streaming/test_pandas_transform_with_state.py`` and its Row form."""

STATE_VARIABLES = {
    "test_transform_with_state_basic": ("value",),
    "test_transform_with_state_non_exist_value_state": ("value-absent",),
    "test_transform_with_state_list_state": ("list",),
    "test_transform_with_state_list_state_large_list": ("long-list",),
    "test_transform_with_state_list_state_large_ttl": ("list-long-ttl",),
    "test_transform_with_state_map_state": ("map",),
    "test_transform_with_state_map_state_large_ttl": ("map-long-ttl",),
    "test_value_state_ttl_basic": ("value-long-ttl",),
    "test_value_state_ttl_expiration": ("ttl-expires",),
    "test_transform_with_state_init_state": ("initial-state", "restart-with-initial-state"),
    "test_transform_with_state_init_state_with_extra_transformation": ("initial-state-then-select",),
    "test_transform_with_state_init_state_with_timers": ("initial-state-timers",),
    "test_transform_with_map_state_metadata": ("spark-reads-maps",),
    "test_transform_with_map_state_metadata_with_init_state": ("spark-reads-maps-initial-state",),
    "test_transform_with_list_state_metadata": ("spark-reads-lists",),
    "test_transform_with_value_state_metadata": ("spark-reads-changes",),
    "test_transform_with_state_restart_with_multiple_rows_init_state": ("initial-state-from-statestore",),
    "test_transform_with_state_with_timers_single_partition": (
        "initial-state-timers-one-partition",
        "initial-state-from-statestore-one-partition",
    ),
}
"""``pandas/streaming/test_pandas_transform_with_state_state_variable.py`` and its Row form."""

GROUP_STATE: dict[str, tuple[str, ...]] = {
    "test_apply_in_pandas_with_state_basic": ("group-state",),
    "test_apply_in_pandas_with_state_basic_no_state": ("group-state-unused",),
    "test_apply_in_pandas_with_state_basic_no_state_no_data": ("group-state-nothing",),
    "test_apply_in_pandas_with_state_basic_more_data": ("group-state-more-rows",),
    "test_apply_in_pandas_with_state_basic_fewer_data": ("group-state-fewer-rows",),
    "test_apply_in_pandas_with_state_basic_with_null": ("group-state-null",),
    "test_apply_in_pandas_with_state_python_worker_random_failure": ("group-state-worker-dies",),
    "test_apply_in_pandas_with_state_int_to_decimal_coercion": ("group-state-decimal",),
}
"""``pandas/test_pandas_grouped_map_with_state.py``."""

REPARTITION: dict[str, tuple[str, ...]] = {
    "test_repartition_with_apply_in_pandas_with_state": ("group-state-repartitioned",),
    "test_repartition_with_streaming_tws": ("repartitioned",),
    "test_repartition_with_streaming_tws_in_pandas": ("repartitioned",),
    "test_repartition_with_streaming_tws_multiple_state_vars": ("repartitioned-variables",),
    "test_repartition_with_streaming_tws_in_pandas_multiple_state_vars": ("repartitioned-variables",),
}
"""``streaming/test_streaming_offline_state_repartition.py``, as far as its tests are of these operators."""

SPARK_TESTS: dict[str, dict[str, tuple[str, ...]]] = {
    "TransformWithState": TRANSFORM_WITH_STATE,
    "TransformWithStateStateVariable": STATE_VARIABLES,
    "GroupedApplyInPandasWithState": GROUP_STATE,
    "StreamingOfflineStateRepartition": REPARTITION,
}
"""Cases of each test, by Spark's test classes."""

FILES = {
    "TransformWithState": "pandas/streaming/test_pandas_transform_with_state.py",
    "TransformWithStateStateVariable": "pandas/streaming/test_pandas_transform_with_state_state_variable.py",
    "GroupedApplyInPandasWithState": "pandas/test_pandas_grouped_map_with_state.py",
    "StreamingOfflineStateRepartition": "streaming/test_streaming_offline_state_repartition.py",
}
"""File of each of these classes."""

FORMS_OF_SPARK: dict[str, tuple[Form, ...]] = {
    "TransformWithState": ("pandas", "row"),
    "TransformWithStateStateVariable": ("pandas", "row"),
    "GroupedApplyInPandasWithState": ("applyInPandasWithState",),
    "StreamingOfflineStateRepartition": (),
}
"""Forms in which Spark runs each test of a class; a repartition has tests of their own for each form."""

PANDAS_ONLY = frozenset(
    {
        "test_transform_with_state_int_to_decimal_coercion",
        "test_transform_with_state_with_bytes_limit",
        "test_transform_with_state_with_records_limit",
    }
)
"""Tests whose Row form returns at once in Spark."""

DIFFERENCES = {
    "Sink of a batch without rows": "With the time mode `none` Spark calls the sink with an empty batch after the "
    "watermark has moved. Here it is not called, since no timer could fire.",
    "Empty source": "With a time mode and a source that has no offset yet, such as an empty folder, the query begins "
    "with a batch without rows, so that later batches have other numbers.",
    "Processing-time timers": "With a trigger without an interval, batches without rows are a second apart, where "
    "Spark runs one after the other. With `availableNow` the query ends when the rows are processed, and "
    "`processAllAvailable` returns; with Spark neither happens.",
    "`availableNow` before Spark 4.2": "The last batch without rows is left to the next run.",
    "Writer's `outputMode`": "The default is `update`, except for `applyInPandasWithState`; Spark's is `append`.",
    "Late rows": "They change an aggregate in mode `update`, whose keys are kept; Spark drops them.",
    "`lastProgress.stateOperators`": "It is empty, since the state is not Spark's; see `query.batch_log()`.",
    "Checkpoint": "Spark's sources `statestore` and `state-metadata` do not read it; `read_state` does.",
}
"""Known differences from Spark that hold whatever the processor does."""
