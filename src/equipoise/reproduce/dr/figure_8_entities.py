"""Figure 8 (right) of DR: entity recognition by host, a stream with heavy work for each record and state."""

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from equipoise.reproduce.context import Context
from equipoise.reproduce.drawing import bars
from equipoise.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise.reproduce.rows import Row, Rows
from equipoise.reproduce.verdict import Finding, judged, near
from equipoise.simulate.workloads import sample, zipf_shares

if TYPE_CHECKING:
    from equipoise.spark import Aggregator

_FILE = "news_articles.parquet"
_METHODS: dict[str, dict[str, Any]] = {"hash": {"hash": True}, "DR": {}}
_FILES = 4


def run(context: Context) -> Iterator[Row]:
    """Recognise entities, which takes as long as a text is, and count them for each host."""
    from equipoise.bench.local_spark import local_spark  # noqa: PLC0415 - needs Spark
    from equipoise.bench.stream import read_batches, run_stateful, scratch, write_batches  # noqa: PLC0415 - as above

    hosts, lengths = _articles(context)
    parts = np.array_split(np.arange(len(hosts)), context["batches"] + 1)
    cases = [(partitions, method) for partitions in context["partitions"] for method in _METHODS]
    with local_spark(context["slots"]) as spark, scratch() as folder:
        batches = [{"key": [hosts[i] for i in part], "length": lengths[part]} for part in parts]
        write_batches(folder / "articles", batches, _FILES)
        per_character = context["seconds of an even batch"] * context["slots"] * len(parts) / lengths.sum()
        for partitions, method in context.track(cases):
            stream = read_batches(spark, folder / "articles", "key string, length long", _FILES)
            at, recognising = folder / f"{partitions}-{method}", _recognising(per_character)
            taken = run_stateful(stream, recognising, "key string, n long", partitions, at, **_METHODS[method])
            yield {"partitions": partitions, "method": method, "seconds": sum(taken[1:]), "records": len(hosts)}


def _articles(context: Context) -> tuple[list[str], Any]:
    """Hosts and lengths of texts in the order in which they come, recorded or drawn."""
    path = context.file(_FILE)
    if path is None:
        rng = np.random.default_rng(context.seed)
        drawn = sample(zipf_shares(context["hosts"], 1.0), context["records"], rng)
        usual = rng.lognormal(8.5, 0.7, context["hosts"])
        return [f"host-{host}" for host in drawn], rng.poisson(usual[drawn])
    table = pq.read_table(path, columns=["key", "text"])
    table = table.take(list(range(0, table.num_rows, max(1, table.num_rows // context["records"]))))
    return table["key"].to_pylist(), np.array([len(text or "") for text in table["text"].to_pylist()])


def _recognising(seconds_per_character: float) -> "Aggregator":
    """Texts of each host, with a service time that goes by their length; a host is not split."""
    from equipoise.spark import Aggregator  # noqa: PLC0415 - needs Spark

    class Recognising(Aggregator):
        """Counts the texts of a host."""

        bufferSchema = "n long"  # noqa: N815 - as Spark names schemas

        def zero(self) -> tuple[Any, ...]:
            """No text."""
            return (0,)

        def reduce(self, buffer: tuple[Any, ...], rows: Any) -> tuple[Any, ...]:
            """Wait and count."""
            time.sleep(seconds_per_character * float(rows["length"].sum()))
            return (buffer[0] + len(rows),)

        def finish(self, key: tuple[Any, ...], buffer: tuple[Any, ...]) -> tuple[Any, ...]:
            """The count."""
            return (*key, *buffer)

    return Recognising()


def _six_times(rows: Rows) -> Finding:
    found = {
        partitions: rows.mean("seconds", partitions=partitions, method="hash")
        / rows.mean("seconds", partitions=partitions, method="DR")
        for partitions in rows.distinct("partitions")
    }
    return judged(
        ", ".join(f"{partitions} partitions {ratio:.2f}" for partitions, ratio in found.items()),
        shape={"DR is faster with every number of partitions": min(found.values()) > 1},
        numbers={"six times, within a quarter": all(near(ratio, 6) for ratio in found.values())},
    )


EXHIBIT = Exhibit(
    name="dr/figure-8-entities",
    title="entity recognition by host, with state",
    section="Section 6, entity recognition in web domains",
    settings={
        "records": Setting("40,000", 300, 4_000, 10_000),
        "hosts": Setting("not given", 30, 200, 200),
        "batches": Setting("not given", 2, 4, 8),
        "slots": Setting("36", 4, 16, 16),
        "partitions": Setting("several", (4,), (16,), (16, 24, 32)),
        "seconds of an even batch": Setting("not given", 0.1, 1.5, 4.0),
    },
    claims=(
        Claim(
            "DR speeds up entity recognition by a factor of 6, with every number of partitions",
            "6",
            _six_times,
            looked_into="The factor is what hash loses to chance: its fullest of N partitions over an even one. It "
            "cannot be 6 where no host is that heavy, and where one is, no partitioning by host can take it apart",
        ),
    ),
    run=run,
    draw=lambda rows: bars(rows, "partitions", {"seconds": "seconds"}, line="method"),
    note="A service time that waits and goes by the length of a text, instead of a model; a count of texts for each "
    "host as state, and no windows. The first batch, in which Spark starts, is not counted. DR is told nothing of the "
    "lengths: it measures what each host takes. With --data the articles are recorded ones.",
    files=(_FILE,),
    spark=True,
)
