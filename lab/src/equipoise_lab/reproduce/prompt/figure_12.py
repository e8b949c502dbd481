"""Figure 12 of Prompt: map and reduce tasks follow the rate and the keys, up and down."""

from collections.abc import Iterator

from equipoise.microbatch import AutoScale
from equipoise_lab.reproduce.context import Context
from equipoise_lab.reproduce.drawing import lines
from equipoise_lab.reproduce.exhibit import Claim, Exhibit, Setting
from equipoise_lab.reproduce.rows import Row, Rows
from equipoise_lab.reproduce.verdict import Finding, judged

_PARTS = {"rate and keys": (1, 1), "rate alone": (1, 0), "keys alone": (0, 1)}


def run(context: Context) -> Iterator[Row]:
    """Batches whose time is that of an even share of their tuples and keys, up to a peak and down again."""
    batches, peak, tasks = context["batches"], context["peak"], context["tasks"]
    for part, (rate_grows, keys_grow) in context.track(_PARTS.items()):
        scale = AutoScale(tasks, tasks, stride=context["stride"], patience=context["patience"])
        late = 0.0
        for number, height in enumerate([*_hill(batches), *[0.0] * context["batches at rest"]]):
            rate, keys = 1 + (peak - 1) * height * rate_grows, 1 + (peak - 1) * height * keys_grow
            load = context["load at the start"] * (rate / scale.maps + keys / scale.reduces) * tasks / 2
            ends = late + load  # in intervals since the batch was there
            late = max(0.0, ends - 1)
            yield {
                "part": part,
                "batch": number,
                "rests": number >= batches,
                "rate": rate,
                "load": load,
                "ends": ends,
                "map tasks": scale.maps,
                "reduce tasks": scale.reduces,
            }
            scale.next(load, rate, keys, behind=int(late))


def _hill(batches: int) -> list[float]:
    """From 0 to 1 and back."""
    return [1 - abs(2 * number / batches - 1) for number in range(batches)]


def _peak_and_end(rows: Rows, part: str, name: str) -> tuple[int, int, int]:
    line = rows.column(name, part=part)
    return line[0], max(line), line[-1]


def _formatted(rows: Rows, part: str) -> str:
    return ", ".join(
        "{} {}, at most {}, at last {}".format(n, *_peak_and_end(rows, part, n)) for n in ("map tasks", "reduce tasks")
    )


def _follows(rows: Rows) -> Finding:
    found = {n: _peak_and_end(rows, "rate and keys", n) for n in ("map tasks", "reduce tasks")}
    growth = max(rows.column("rate", part="rate and keys"))
    return judged(
        _formatted(rows, "rate and keys"),
        shape={
            "both grow at least in half the proportion of the load": all(
                top / start > 1 + (growth - 1) / 2 for start, top, _ in found.values()
            ),
            "both are back within a fifth of the start": all(end <= 1.2 * start for start, _, end in found.values()),
        },
    )


def _what_grew(rows: Rows) -> Finding:
    by_rate = {n: _peak_and_end(rows, "rate alone", n) for n in ("map tasks", "reduce tasks")}
    by_keys = {n: _peak_and_end(rows, "keys alone", n) for n in ("map tasks", "reduce tasks")}

    def grew(found: dict[str, tuple[int, int, int]], name: str) -> float:
        return found[name][1] / found[name][0]

    return judged(
        f"rate alone: {_formatted(rows, 'rate alone')}; keys alone: {_formatted(rows, 'keys alone')}",
        shape={
            "map tasks follow the rate more than reduce tasks do": grew(by_rate, "map tasks")
            > grew(by_rate, "reduce tasks"),
            "reduce tasks follow the keys more than map tasks do": grew(by_keys, "reduce tasks")
            > grew(by_keys, "map tasks"),
        },
    )


def _stable(rows: Rows) -> Finding:
    moving = rows.where(rests=False)
    share = sum(ends <= 1 for ends in moving.column("ends")) / len(moving)
    return judged(
        f"{share:.1%} of the batches end within their interval, waiting included; the longest takes "
        f"{max(moving.column('load')):.0%} of it",
        shape={"95 % of the batches end within their interval": share >= 0.95},
    )


EXHIBIT = Exhibit(
    name="prompt/figure-12",
    title="elasticity: tasks over a rise and fall of rate and keys (model of the batches)",
    section="Section 7.2, resource elasticity",
    settings={
        "tasks": Setting("not given", 8, 8, 8),
        "batches": Setting("not given", 40, 120, 120),
        "batches at rest": Setting("not given", 30, 30, 30),
        "peak": Setting("not given, times the start", 2.0, 3.0, 3.0),
        "load at the start": Setting("not given", 0.8, 0.8, 0.8),
        "patience": Setting("d, not given", 3, 3, 3),
        "stride": Setting("1", 1, 1, 1),
    },
    claims=(
        Claim("Tasks are added as the workload rises and removed as it falls", "as many as needed", _follows),
        Claim("The ratio of map to reduce tasks follows what changed", "rate: map, keys: reduce", _what_grew),
        Claim("Latency stays within the interval", "stable", _stable),
    ),
    run=run,
    draw=lambda rows: lines(
        Rows(
            {"part": row["part"], "batch": row["batch"], "what": what, "tasks": row[what]}
            for row in rows
            for what in ("map tasks", "reduce tasks")
        ),
        "batch",
        {"tasks": "tasks"},
        line="what",
        panel="part",
    ),
    note="Our AutoScale in a closed loop with a model: a batch takes as long as its tuples divided by the map tasks "
    "and its keys divided by the reduce tasks. The printed algorithm lists scale-out alone; scale-in is its mirror. "
    "That map tasks follow the rate and reduce tasks the keys is what the algorithm does by construction. Figure 12 "
    "(a), throughput over the number of tasks, is not run. `equipoise-lab bench prompt-elastic` scales a live query.",
)
