"""User functions yield times in the zone of the session, within a window and in an ambiguous hour, too."""

import datetime as dt

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.spark.rows.arrow_rows import rows_to_arrow, to_arrow
from equipoise.spark.rows.pandas_rows import key_shower

NEW_YORK = "America/New_York"
WINDOW = {
    "type": "struct",
    "fields": [{"name": "start", "type": "timestamp"}, {"name": "end", "type": "timestamp"}],
}
INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("w", pa.struct([("start", INSTANT), ("end", INSTANT)]))])
AMBIGUOUS = pd.Timestamp("2025-11-02 01:30")


def shown(window):
    """Return a window as an aggregator receives it in the key."""
    return key_shower({"type": "struct", "fields": [{"name": "w", "type": WINDOW}]}, NEW_YORK)((window,))


@given(st.integers(0, 300 * 24).map(lambda hours: dt.datetime(2025, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=hours)))
def test_a_window_in_the_key_is_yielded_as_the_same_instants_in_every_time_zone(start):
    window = start, start + dt.timedelta(hours=1)
    [made] = rows_to_arrow([shown(window)], SCHEMA, NEW_YORK).column("w").to_pylist()
    assert (made["start"], made["end"]) == window


@pytest.mark.parametrize("local", [AMBIGUOUS, pd.Timestamp("2025-03-09 02:30")], ids=["ambiguous", "skipped"])
def test_a_time_that_the_clock_shows_twice_or_never_is_the_same_instant_in_a_struct_as_in_a_column(local):
    flat = to_arrow([pd.DataFrame({"w": [local]})], pa.schema([("w", INSTANT)]), NEW_YORK)
    nested = to_arrow([pd.DataFrame({"w": [{"start": local, "end": local}]})], SCHEMA, NEW_YORK)
    assert nested.column("w").to_pylist() == [dict.fromkeys(("start", "end"), flat.column("w")[0].as_py())]


def test_nan_within_an_array_of_an_aggregator_stays_nan():
    [made] = rows_to_arrow([([float("nan"), 1.0],)], pa.schema([("v", pa.list_(pa.float64()))]), "UTC").column("v")
    assert [each.is_valid for each in made] == [True, True]
