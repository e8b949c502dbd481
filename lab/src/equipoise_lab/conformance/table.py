"""Spark's own tests of its stateful operators for Python, and the cases that exercise what each of them does.

The names are those of the test methods in Spark's repository, under ``python/pyspark/sql/tests``. A test that Spark
runs in the pandas and in the Row form has cases that run in both.
"""

TRANSFORM_WITH_STATE = {
    "test_transform_with_state_basic": ("value", "append"),
    "test_transform_with_state_query_restarts": ("restart",),
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

SPARK_TESTS: dict[str, dict[str, tuple[str, ...]]] = {
    "TransformWithState": TRANSFORM_WITH_STATE,
    "TransformWithStateStateVariable": STATE_VARIABLES,
    "GroupedApplyInPandasWithState": GROUP_STATE,
}
"""Cases of each test, by Spark's test classes."""

FORMS_OF_SPARK = {
    "TransformWithState": ("pandas", "row"),
    "TransformWithStateStateVariable": ("pandas", "row"),
    "GroupedApplyInPandasWithState": ("applyInPandasWithState",),
}
"""Forms in which Spark runs the tests of a class."""

PANDAS_ONLY = frozenset(
    {
        "test_transform_with_state_int_to_decimal_coercion",
        "test_transform_with_state_with_bytes_limit",
        "test_transform_with_state_with_records_limit",
    }
)
"""Tests whose Row form returns at once in Spark."""

TESTER = (
    "test_running_count_processor",
    "test_running_count_processor_pandas",
    "test_direct_access_to_value_state",
    "test_topk_processor",
    "test_topk_processor_pandas",
    "test_direct_access_to_list_state",
    "test_word_frequency_processor",
    "test_word_frequency_processor_pandas",
    "test_direct_access_to_map_state",
    "test_step_function",
    "test_row_by_row",
    "test_initial_state_row",
    "test_initial_state_pandas",
    "test_all_methods_processor",
    "test_both_initial_states_specified",
    "test_timer_registration_raises_error_in_none_mode",
    "test_delete_timer_raises_error_in_none_mode",
    "test_list_timers_raises_error_in_none_mode",
    "test_empty_input_row",
    "test_empty_input_pandas",
    "test_empty_initial_state_row",
    "test_empty_initial_state_pandas",
    "test_none_values_in_input",
    "test_single_row_input",
    "test_peek_nonexistent_state",
    "test_update_nonexistent_state",
    "test_peek_state_before_initialization",
    "test_clear_nonexistent_value_state",
    "test_clear_nonexistent_list_state",
    "test_clear_nonexistent_map_state",
    "test_delete_if_exists_nonexistent",
    "test_numeric_key",
    "test_tuple_key",
    "test_special_characters_in_key",
    "test_null_key_value_row",
    "test_null_key_value_pandas",
    "test_pandas_with_multiple_rows",
    "test_pandas_dtype_preservation",
    "test_processor_init_called_once",
    "test_delete_value_state",
    "test_delete_list_state",
    "test_delete_map_state",
    "test_delete_nonexistent_state_raises_error",
    "test_processing_time_timers",
    "test_processing_time_timers_pandas",
    "test_event_time_timers_manual_watermark",
    "test_late_event_filtering",
    "test_registers_on_time_events",
    "test_timer_registration_in_none_mode_raises_error",
    "test_set_processing_time_in_wrong_mode_raises_error",
    "test_set_watermark_in_wrong_mode_raises_error",
    "test_eventtime_mode_requires_extractor",
    "test_processing_time_must_move_forward",
    "test_watermark_must_move_forward",
    "test_timer_cannot_be_registered_in_past",
    "test_fuzz_running_count",
    "test_fuzz_topk",
    "test_fuzz_word_frequency",
)
"""``streaming/test_tws_tester.py``: its tests run without Spark, and those of ``equipoise.testing`` follow them."""
