"""A receiver and a reader to be killed: run in a process of its own, again and again, until all tuples are read.

The reader does what Spark does: it keeps where it is, asks for the next batch, writes the rows of its blocks under the
number of the batch, keeps that it did, and commits.
"""

import json
import sys
import time
from pathlib import Path

from pyspark.sql.types import LongType, StructField, StructType

from equipoise.microbatch import receiver
from equipoise.microbatch.spool import Spool
from equipoise.spark.prompt.source import PlannedReader

COUNT = 3000
END = "the story ends well"


def main(folder):
    receiver._LATE_BATCHES = 10**9  # a loaded machine seals late at so short an interval
    options = {
        "spool": str(folder / "spool"), "key": "key", "feed": "generate", "rate": "5000", "count": str(COUNT),
        "keys": "50", "interval": "0.1", "blocks": "3",
    }  # fmt: skip
    reader = PlannedReader(options, StructType([StructField("key", LongType())]), {})
    kept = folder / "offset.json"
    offset = json.loads(kept.read_text()) if kept.exists() else reader.initialOffset()
    if not kept.exists():
        write(kept, offset)
    until = time.monotonic() + 120
    while sum(len(json.loads(path.read_text())) for path in folder.glob("batch-*.json")) < COUNT:
        assert time.monotonic() < until, "tuples are missing"
        latest = reader.latestOffset(offset, None)
        if latest == offset:
            time.sleep(0.02)
            continue
        rows = []
        for partition in reader.partitions(offset, latest):
            for batch in reader.read(partition):
                rows += batch.column("key").to_pylist()
        write(folder / f"batch-{offset['batch']:06d}.json", rows)
        offset = latest
        write(kept, offset)
        reader.commit(offset)
    reader.stop()
    assert Spool(folder / "spool").numbers()
    sys.stdout.write(END)


def write(path, value):
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value))
    temporary.rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
