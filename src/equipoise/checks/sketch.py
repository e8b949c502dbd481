"""Conformance checks for sketches: bounds, merging, stored form, and errors.

A sketch describes the last ``total`` of the weight it has counted: all of it, unless the sketch is windowed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from equipoise.errors import CheckError, DamagedError, InvalidArgumentError, MismatchError, UnknownFormatError
from equipoise.framing import seal, unseal
from equipoise.readable import fingerprint_text
from equipoise.sketch.base import MAX_TOTAL, Sketch
from equipoise.sketch.lossy_counting import LossyCounting
from equipoise.sketch.space_saving import SpaceSaving

Make = Callable[[], Sketch]
"""Function that makes an empty sketch, with the same parameters at each call."""

_ROUNDING = 1e-9
_ABSENT = [-987_654_321, 4_242_424_242_424_242]  # keys that are in no stream


@dataclass(frozen=True, eq=False)
class Stream:
    """Input of the checks, with a name for messages."""

    name: str
    keys: NDArray[np.int64]
    weights: NDArray[np.int64]

    def feed(self, sketch: Sketch) -> Sketch:
        """Count the whole stream at once; return the sketch."""
        sketch.update_many(self.keys, self.weights)
        return sketch

    def first(self, count: int) -> "Stream":
        """Return the first ``count`` messages."""
        return Stream(f"the beginning of {self.name}", self.keys[:count], self.weights[:count])

    def true_counts(self, last: int) -> dict[int, int]:
        """Return the true weight of every key within the ``last`` weight; 0 for keys that occur only before."""
        ends = np.cumsum(self.weights)
        forgotten = int(self.weights.sum()) - last
        counted = np.clip(ends - forgotten, 0, self.weights)
        keys, inverse = np.unique(self.keys, return_inverse=True)
        counts = np.zeros(len(keys), dtype=np.int64)
        np.add.at(counts, inverse, counted)
        return dict(zip(keys.tolist(), counts.tolist(), strict=True))


def streams() -> Iterator[Stream]:
    """Yield streams of unusual shapes, the same at each call."""
    rng = np.random.default_rng(11)
    zipf = rng.zipf(1.3, 8000) % 3000
    shapes = {
        "skewed keys": zipf,
        "no keys": np.empty(0, dtype=np.int64),
        "a single key": np.full(3000, 5),
        "equally frequent keys": rng.integers(0, 1500, 6000),
        "keys in turn": np.tile(np.arange(700), 8),
        "every key once, then a hot one": np.concatenate([np.arange(4000), np.full(1500, -7)]),
        "a hot key, then every key once": np.concatenate([np.full(1500, -7), np.arange(4000)]),
        "hot keys that change": np.concatenate([zipf[:4000], -1 - zipf[4000:]]),
        "extreme keys": rng.choice([-(2**63), 2**63 - 1, 0, -1, 1], 2000),
    }
    for name, keys in shapes.items():
        yield Stream(name, keys.astype(np.int64), np.ones(len(keys), dtype=np.int64))
    yield Stream("skewed keys with weights", zipf, rng.integers(1, 50, len(zipf)))
    yield Stream("a few enormous weights", zipf[:2000], 1 + (rng.random(2000) < 0.01) * rng.integers(1, 10**9, 2000))


def check_bounds(make: Make) -> None:
    """``lower <= true <= upper`` holds for tracked, dropped and absent keys, halfway and at the end."""
    for stream in streams():
        for part in (stream.first(len(stream.keys) // 2), stream):
            sketch = part.feed(make())
            fed = int(part.weights.sum())
            if not min(fed, 1) <= sketch.total <= fed:
                _fail("bounds", sketch, part.name, f"total is {sketch.total} after a weight of {fed}")
            _compare("bounds", sketch, part.name, part.true_counts(sketch.total))


def check_one_at_a_time(make: Make) -> None:
    """Updates one by one, in chunks and all at once give the same bytes."""
    for stream in streams():
        part = stream.first(1200)
        whole, single, chunks = part.feed(make()), make(), make()
        for key, weight in zip(part.keys.tolist(), part.weights.tolist(), strict=True):
            single.update(key, weight)
        for at in range(0, len(part.keys), 77):
            chunks.update_many(part.keys[at : at + 77], part.weights[at : at + 77])
        for other, how in ((single, "one at a time"), (chunks, "in chunks of 77")):
            if other.to_bytes() != whole.to_bytes():
                _fail("one at a time", whole, part.name, f"counting {how} differs from counting all at once")


def check_default_weight(make: Make) -> None:
    """Without weights, every key counts 1."""
    for stream in streams():
        ones = Stream(stream.name, stream.keys, np.ones_like(stream.weights))
        plain = make()
        plain.update_many(stream.keys)
        if plain.to_bytes() != ones.feed(make()).to_bytes():
            _fail(
                "default weight", plain, stream.name, "counting without weights differs from counting with weights of 1"
            )


def check_unsigned_keys(make: Make) -> None:
    """Signed and unsigned forms of a fingerprint are the same key, in updates and in queries."""
    for stream in streams():
        part = stream.first(1200)
        signed, unsigned, single = part.feed(make()), make(), make()
        bits = part.keys.view(np.uint64)
        unsigned.update_many(bits, part.weights)
        for key, weight in zip(bits.tolist(), part.weights.tolist(), strict=True):
            single.update(key, weight)
        for other, how in ((unsigned, "in an array"), (single, "one at a time")):
            if other.to_bytes() != signed.to_bytes():
                _fail(
                    "unsigned keys",
                    signed,
                    part.name,
                    f"counting unsigned keys {how} differs from counting signed keys",
                )
        for key in _sample(part.true_counts(signed.total)):
            found = (signed.lower(key), signed.upper(key))
            for form in (key % 2**64, np.int64(key), np.uint64(key % 2**64)):
                if (signed.lower(form), signed.upper(form)) != found:  # type: ignore[arg-type]
                    _fail(
                        "unsigned keys", signed, part.name, f"key {fingerprint_text(key)} has other bounds as {form!r}"
                    )


def check_merge_bounds(make: Make) -> None:
    """The bounds of a merged sketch hold for both inputs together, also after further updates."""
    more = next(streams()).first(500)
    for left, right in _pairs():
        a, b = left.feed(make()), right.feed(make())
        name = f"{left.name} merged with {right.name}"
        merged = a.merge(b)
        if merged.total != a.total + b.total:
            _fail("merge bounds", merged, name, f"total is {merged.total}, expected {a.total} + {b.total}")
        truth = _added(left.true_counts(a.total), right.true_counts(b.total))
        _compare("merge bounds", merged, name, truth)
        more.feed(merged)
        if merged.total == a.total + b.total + len(more.keys):  # otherwise it is windowed and has dropped weight
            _compare(
                "merge bounds",
                merged,
                f"{name}, after further updates",
                _added(truth, more.true_counts(len(more.keys))),
            )


def check_merge_commutes(make: Make) -> None:
    """``a.merge(b)`` and ``b.merge(a)`` give the same bounds."""
    for left, right in _pairs():
        a, b = left.feed(make()), right.feed(make())
        one, other = a.merge(b), b.merge(a)
        for key in _sample(_added(left.true_counts(a.total), right.true_counts(b.total))):
            found = (one.lower(key), one.upper(key)), (other.lower(key), other.upper(key))
            if found[0] != found[1]:
                name = f"{left.name} merged with {right.name}"
                _fail(
                    "merge commutes",
                    one,
                    name,
                    f"key {fingerprint_text(key)} has bounds {found[0]} in one order, {found[1]} in the other",
                )


def check_merge_leaves_operands(make: Make) -> None:
    """Merging, and updating the merged sketch, changes neither operand."""
    for left, right in _pairs():
        a, b = left.feed(make()), right.feed(make())
        before = a.to_bytes(), b.to_bytes()
        right.feed(a.merge(b))
        if (a.to_bytes(), b.to_bytes()) != before:
            _fail("merge leaves operands", a, f"{left.name} merged with {right.name}", "an operand was changed")


def check_merge_refused(make: Make) -> None:
    """Merging with another class raises ``MismatchError``; merging beyond ``MAX_TOTAL`` is refused."""
    sketch = next(streams()).first(300).feed(make())
    stranger: object = LossyCounting(0.1) if isinstance(sketch, SpaceSaving) else SpaceSaving(3)
    heavy = make()
    heavy.update(1, MAX_TOTAL // 2 + 1)
    attempts: list[tuple[object, Sketch, type[Exception]]] = [(stranger, sketch, MismatchError)]
    if 2 * heavy.total > MAX_TOTAL:  # otherwise it is windowed
        attempts.append((heavy, heavy, InvalidArgumentError))
    for other, one, expected in attempts:
        what = f"merging with a {type(other).__name__} of total {getattr(other, 'total', 0)}"
        try:
            one.merge(other)  # type: ignore[arg-type]
        except expected:
            continue
        except Exception as error:  # noqa: BLE001 - any other error is the finding
            _fail("merge refused", one, what, f"raised {error!r}; expected {expected.__name__}")
        _fail("merge refused", one, what, f"was accepted; expected {expected.__name__}")


def check_round_trip(make: Make) -> None:
    """A sketch that is stored and read has the same bytes and answers, also after further updates."""
    more = next(streams())
    for stream in streams():
        sketch = stream.feed(make())
        copy = type(sketch).from_bytes(sketch.to_bytes())
        for moment in ("after reading", "after further updates"):
            if copy.to_bytes() != sketch.to_bytes():
                _fail("round trip", sketch, stream.name, f"{moment} its bytes differ")
            if copy.total != sketch.total or copy.top(50) != sketch.top(50) or copy.histogram() != sketch.histogram():
                _fail("round trip", sketch, stream.name, f"{moment} its answers differ")
            more.feed(sketch)
            more.feed(copy)


def check_deterministic(make: Make) -> None:
    """Equal updates give equal bytes, and queries change nothing."""
    for stream in streams():
        asked, silent = make(), make()
        for half in (slice(None, len(stream.keys) // 2), slice(len(stream.keys) // 2, None)):
            for sketch in (asked, silent):
                sketch.update_many(stream.keys[half], stream.weights[half])
            _ask_everything(asked)
        if asked.to_bytes() != silent.to_bytes():
            _fail("deterministic", asked, stream.name, "queries between updates changed the bytes")


def check_damage_refused(make: Make) -> None:
    """Altered, truncated or extended bytes, and bytes of another kind, raise ``DamagedError``."""
    sketch = next(streams()).first(300).feed(make())
    data = sketch.to_bytes()
    rng = np.random.default_rng(12)
    header, trailer = range(min(64, len(data))), range(len(data) - 8, len(data))
    for at in {*header, *trailer, *rng.integers(0, len(data), 100).tolist()}:
        altered = bytearray(data)
        altered[at] ^= int(rng.integers(1, 256))
        _refused(sketch, bytes(altered), DamagedError, f"byte {at} of {len(data)} altered")
    for length in {*header, *rng.integers(0, len(data), 50).tolist(), len(data) - 1}:
        _refused(sketch, data[:length], DamagedError, f"cut to {length} of {len(data)} bytes")
    _refused(sketch, data + b"\0", DamagedError, "one byte added")
    payload = unseal(sketch.kind, sketch.format_version, data)
    _refused(sketch, seal("something-else", sketch.format_version, payload), DamagedError, "sealed as something else")
    _refused(sketch, seal(sketch.kind, sketch.format_version, {}), DamagedError, "sealed without contents")


def check_unknown_version_refused(make: Make) -> None:
    """Bytes of another format version are refused as ``UnknownFormatError``."""
    sketch = next(streams()).first(300).feed(make())
    payload = unseal(sketch.kind, sketch.format_version, sketch.to_bytes())
    for version in (0, sketch.format_version + 1, 65_535):
        _refused(sketch, seal(sketch.kind, version, payload), UnknownFormatError, f"sealed as format {version}")


def check_top(make: Make) -> None:
    """``entries`` are in order of decreasing count, ties by fingerprint, each key once; ``top`` is their beginning."""
    for stream in streams():
        sketch = stream.feed(make())
        keys, counts = sketch.entries()
        pairs = list(zip(keys.tolist(), counts.tolist(), strict=True))
        if pairs != sorted(pairs, key=lambda pair: (-pair[1], pair[0])):
            _fail("top", sketch, stream.name, "entries are not in order of decreasing count, then fingerprint")
        if len(set(keys.tolist())) != len(keys):
            _fail("top", sketch, stream.name, "a key is listed twice")
        for k in (0, 1, 10, len(pairs) + 5):
            if sketch.top(k) != pairs[:k]:
                _fail("top", sketch, stream.name, f"top({k}) is not the beginning of entries()")


def check_histogram(make: Make) -> None:
    """Stated shares lie within ``error`` of the true shares; unlisted keys have at most ``unlisted``."""
    for stream in streams():
        sketch = stream.feed(make())
        truth = stream.true_counts(sketch.total)
        for k in (None, 0, 1, 10):
            histogram = sketch.histogram(k)
            if (histogram.total, histogram.hash_seed) != (sketch.total, sketch.hash_seed):
                _fail("histogram", sketch, stream.name, "total or hash seed differ from those of the sketch")
            if k is not None and len(histogram) > k:
                _fail("histogram", sketch, stream.name, f"asked for {k} keys, got {len(histogram)}")
            listed = dict(histogram)
            for key, count in truth.items():
                share = count / max(sketch.total, 1)
                if key in listed and abs(listed[key] - share) > histogram.error + _ROUNDING:
                    what = (
                        f"key {fingerprint_text(key)} has share {share}, stated {listed[key]}, error {histogram.error}"
                    )
                    _fail("histogram", sketch, stream.name, what)
                if key not in listed and share > histogram.unlisted + _ROUNDING:
                    what = f"unlisted key {fingerprint_text(key)} has share {share}, above {histogram.unlisted}"
                    _fail("histogram", sketch, stream.name, what)


def check_bad_arguments_refused(make: Make) -> None:
    """Weights that are not positive integers, keys that are not integers and negative sizes are refused."""
    sketch = next(streams()).first(300).feed(make())
    before = sketch.to_bytes()
    attempts: dict[str, Callable[[], object]] = {
        "a weight of 0": lambda: sketch.update(1, 0),
        "a negative weight": lambda: sketch.update_many([1, 2], [3, -1]),
        "a fractional weight": lambda: sketch.update(1, 1.5),  # type: ignore[arg-type]
        "fractional weights": lambda: sketch.update_many([1], [1.5]),
        "an enormous weight": lambda: sketch.update(1, MAX_TOTAL + 1),
        "weights of an enormous sum": lambda: sketch.update_many([1, 2], [2**62, 2**62]),
        "fewer weights than keys": lambda: sketch.update_many([1, 2], [1]),
        "keys that are text": lambda: sketch.update_many(["a"]),
        "a key that is text": lambda: sketch.update("a"),  # type: ignore[arg-type]
        "a key of more than 64 bits": lambda: sketch.update(2**64),
        "lower of text": lambda: sketch.lower("a"),  # type: ignore[arg-type]
        "upper of more than 64 bits": lambda: sketch.upper(2**64),
        "upper of fewer than -(2**63)": lambda: sketch.upper(-(2**63) - 1),
        "top(1.5)": lambda: sketch.top(1.5),  # type: ignore[arg-type]
        "histogram(1.5)": lambda: sketch.histogram(1.5),  # type: ignore[arg-type]
        "top(-1)": lambda: sketch.top(-1),
        "histogram(-1)": lambda: sketch.histogram(-1),
    }
    for what, attempt in attempts.items():
        try:
            attempt()
        except InvalidArgumentError:
            continue
        except Exception as error:  # noqa: BLE001 - any other error is the finding
            _fail("bad arguments refused", sketch, what, f"raised {error!r}; expected InvalidArgumentError")
        _fail("bad arguments refused", sketch, what, "was accepted; expected InvalidArgumentError")
    if sketch.to_bytes() != before:
        _fail("bad arguments refused", sketch, "refused arguments", "changed the sketch")


SKETCH_CHECKS: tuple[Callable[[Make], None], ...] = (
    check_bounds,
    check_one_at_a_time,
    check_default_weight,
    check_unsigned_keys,
    check_merge_bounds,
    check_merge_commutes,
    check_merge_leaves_operands,
    check_merge_refused,
    check_round_trip,
    check_deterministic,
    check_damage_refused,
    check_unknown_version_refused,
    check_top,
    check_histogram,
    check_bad_arguments_refused,
)
"""All checks; each can also be run by itself."""


def check_sketch(make: Make) -> None:
    """Run all checks of a sketch; raise ``CheckError`` at the first that fails.

    Parameters
    ----------
    make
        Function that makes an empty sketch, with the same parameters at each call.

    Examples
    --------
    >>> from equipoise.sketch import SpaceSaving
    >>> check_sketch(lambda: SpaceSaving(capacity=50))
    """
    for check in SKETCH_CHECKS:
        check(make)


def _pairs() -> Iterator[tuple[Stream, Stream]]:
    """Yield every stream with the next one, and the last with the first."""
    inputs = list(streams())
    yield from zip(inputs, inputs[1:] + inputs[:1], strict=True)


def _added(left: dict[int, int], right: dict[int, int]) -> dict[int, int]:
    return {key: left.get(key, 0) + right.get(key, 0) for key in left.keys() | right.keys()}


def _sample(truth: dict[int, int]) -> list[int]:
    """Return the hottest keys, some of the others, and absent keys."""
    by_count = sorted(truth, key=lambda key: (-truth[key], key))
    return by_count[:100] + by_count[100 :: max(1, len(by_count) // 100)] + _ABSENT


def _compare(check: str, sketch: Sketch, stream: str, truth: dict[int, int]) -> None:
    """Compare the bounds of a sketch with the true counts."""
    for key in _sample(truth):
        lower, true, upper = sketch.lower(key), truth.get(key, 0), sketch.upper(key)
        if not lower <= true <= upper:
            _fail(
                check,
                sketch,
                stream,
                f"key {fingerprint_text(key)} has a true count of {true}, outside [{lower}, {upper}]",
            )


def _ask_everything(sketch: Sketch) -> None:
    sketch.entries()
    sketch.top(5)
    sketch.histogram(5)
    sketch.lower(1)
    sketch.upper(_ABSENT[0])
    sketch.to_bytes()


def _refused(sketch: Sketch, data: bytes, expected: type[Exception], what: str) -> None:
    try:
        type(sketch).from_bytes(data)
    except expected:
        return
    except Exception as error:  # noqa: BLE001 - any other error is the finding
        _fail("stored form", sketch, what, f"raised {error!r}; expected {expected.__name__}")
    _fail("stored form", sketch, what, f"was accepted; expected {expected.__name__}")


def _fail(check: str, sketch: Sketch, stream: str, what: str) -> NoReturn:
    raise CheckError(f"{check}: {type(sketch).__name__} over {stream}: {what}")
