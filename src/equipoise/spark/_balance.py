"""The entry ``balance``."""

from typing import Any

from pyspark.sql import DataFrame

from equipoise.spark.batch.balanced_frame import balance as balance_batch
from equipoise.spark.rows.keys import resolve_key
from equipoise.spark.stream.keyed_stream import KeyedStream
from equipoise.spark.stream.options import StreamOptions


def balance(df: DataFrame, *key: Any, **options: Any) -> Any:
    """Group a streaming DataFrame by key and place its state by the load."""
    if not getattr(df, "isStreaming", True):
        return balance_batch(df, *key, **options)
    return KeyedStream(df, resolve_key(df, list(key), streaming=True), StreamOptions(**options))
