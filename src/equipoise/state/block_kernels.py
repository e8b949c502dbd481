"""Kernels over blocks of entries; ``cached_blocks`` has the layout.

A pool is some blocks one after the other. ``is_value`` says which string of an entry is meant: the grouping key or the
value.
"""

from typing import Any

import numpy as np

from equipoise.kernels import kernel
from equipoise.state.byte_columns import Bytes, Integers, compare_strings
from equipoise.state.entry_columns import Flags, Unsigned


@kernel(nogil=True)
def number_at(pool: Bytes, at: int) -> Any:
    """Return the 4-byte number at ``at``."""
    return (
        np.int64(pool[at])
        | (np.int64(pool[at + 1]) << 8)
        | (np.int64(pool[at + 2]) << 16)
        | (np.int64(pool[at + 3]) << 24)
    )


@kernel(nogil=True)
def fingerprint_at(pool: Bytes, at: int) -> Any:
    """Return the unsigned 8-byte number at ``at``."""
    found = np.uint64(0)
    for k in range(8):
        found |= np.uint64(pool[at + k]) << np.uint64(8 * k)
    return found


@kernel(nogil=True)
def string_at(pool: Bytes, block: int, entry: int, is_value: int) -> tuple[int, int]:
    """First byte and length of the grouping key or the value of an entry."""
    count = number_at(pool, block)
    ends = block + 8 + 8 * count
    base = block + 8 + 16 * count
    if is_value:
        base += number_at(pool, ends + 4 * (count - 1))
        ends += 4 * count
    start = number_at(pool, ends + 4 * (entry - 1)) if entry else 0
    return base + start, number_at(pool, ends + 4 * entry) - start


@kernel(nogil=True)
def are_blocks(pool: Bytes, offsets: Integers) -> bool:
    """Whether all positions in each block are inside it, so that the other kernels read nothing else."""
    for number in range(len(offsets) - 1):
        block, length = offsets[number], offsets[number + 1] - offsets[number]
        if length < 8 or length % 8:
            return False
        count = number_at(pool, block)
        if count > (length - 8) // 16:
            return False
        used = 8 + 16 * count
        for ends in (block + 8 + 8 * count, block + 8 + 12 * count):
            before = 0
            for entry in range(count):
                end = number_at(pool, ends + 4 * entry)
                if end < before:
                    return False
                before = end
            used += before
        if used > length:
            return False
    return True


@kernel(nogil=True)
def find_in_blocks(
    pool: Bytes,
    offsets: Integers,
    cuts: Integers,
    fingerprints: Unsigned,
    keys: Bytes,
    key_starts: Integers,
    key_lengths: Integers,
    starts: Integers,
    lengths: Integers,
    exists: Flags,
) -> None:
    """Write where the value of each grouping key is, and whether it exists; block i has those from ``cuts[i]`` on."""
    for number in range(len(cuts) - 1):
        block = offsets[number]
        count, low = number_at(pool, block), 0
        for i in range(cuts[number], cuts[number + 1]):
            high = count
            while low < high:  # the first entry with this fingerprint; the next one is not before it
                middle = (low + high) // 2
                if fingerprint_at(pool, block + 8 + 8 * middle) < fingerprints[i]:
                    low = middle + 1
                else:
                    high = middle
            entry = low
            while entry < count and fingerprint_at(pool, block + 8 + 8 * entry) == fingerprints[i]:
                at, length = string_at(pool, block, entry, 0)
                if compare_strings(pool, at, length, keys, key_starts[i], key_lengths[i]) == 0:
                    starts[i], lengths[i] = string_at(pool, block, entry, 1)
                    exists[i] = True
                    break
                entry += 1


@kernel(nogil=True)
def list_entries(
    pool: Bytes,
    offsets: Integers,
    fingerprints: Unsigned,
    key_starts: Integers,
    key_lengths: Integers,
    value_starts: Integers,
    value_lengths: Integers,
) -> None:
    """Write the fingerprints, and the places of the strings, of all entries."""
    at = 0
    for number in range(len(offsets)):
        block = offsets[number]
        for entry in range(number_at(pool, block)):
            fingerprints[at] = fingerprint_at(pool, block + 8 + 8 * entry)
            key_starts[at], key_lengths[at] = string_at(pool, block, entry, 0)
            value_starts[at], value_lengths[at] = string_at(pool, block, entry, 1)
            at += 1


@kernel(nogil=True)
def _put_number(value: Any, size: int, out: Bytes, at: int) -> None:
    for k in range(size):
        out[at + k] = (value >> (8 * k)) & 0xFF


@kernel(nogil=True)
def _merge_order(
    pool: Bytes,
    block: int,
    first: int,
    last: int,
    fingerprints: Unsigned,
    keys: Bytes,
    key_starts: Integers,
    key_lengths: Integers,
    value_lengths: Integers,
    deleted: Flags,
    order: Integers,
    sums: Integers,
) -> int:
    """Write to ``order`` the entries of a block and of the changes from ``first`` to ``last``; return their number.

    An old entry is its number in the block, a change i is -1 - i.
    """
    count, old, new, merged = number_at(pool, block), 0, first, 0
    while old < count or new < last:
        side = -1 if new == last else 1  # -1: the old entry is before the change, 1: after it, 0: of the same key
        if old < count and new < last:
            known = fingerprint_at(pool, block + 8 + 8 * old)
            side = -1 if known < fingerprints[new] else 1
            if known == fingerprints[new]:
                at, length = string_at(pool, block, old, 0)
                side = compare_strings(pool, at, length, keys, key_starts[new], key_lengths[new])
        if side < 0:
            order[merged] = old
            merged += 1
            old += 1
        elif side == 0:  # the change replaces the entry
            sums[0] -= 1
            sums[1] -= string_at(pool, block, old, 0)[1] + string_at(pool, block, old, 1)[1]
            old += 1
        else:
            if not deleted[new]:
                order[merged] = -1 - new
                merged += 1
                sums[0] += 1
                sums[1] += key_lengths[new] + value_lengths[new]
            new += 1
    return merged


@kernel(nogil=True)
def _sizes(
    pool: Bytes, block: int, key_lengths: Integers, value_lengths: Integers, order: Integers, sizes: Integers
) -> None:
    """Write the bytes of each entry of ``order`` in a block."""
    for i in range(len(order)):
        entry = order[i]
        if entry < 0:
            sizes[i] = 16 + key_lengths[-1 - entry] + value_lengths[-1 - entry]
        else:
            sizes[i] = 16 + string_at(pool, block, entry, 0)[1] + string_at(pool, block, entry, 1)[1]


@kernel(nogil=True)
def _mark(pool: Bytes, block: int, fingerprints: Unsigned, entry: int) -> Any:
    return fingerprints[-1 - entry] if entry < 0 else fingerprint_at(pool, block + 8 + 8 * entry)


@kernel(nogil=True)
def merge_blocks(
    pool: Bytes,
    pool_offsets: Integers,
    part_cuts: Integers,
    most_bytes: int,
    split_bytes: int,
    fingerprints: Unsigned,
    keys: Bytes,
    key_starts: Integers,
    key_lengths: Integers,
    values: Bytes,
    value_starts: Integers,
    value_lengths: Integers,
    deleted: Flags,
    out: Bytes,
    offsets: Integers,
    lows: Unsigned,
    cuts: Integers,
    sums: Integers,
) -> int:
    """Merge each old block with its changes, and cut the result into new blocks; return their number."""
    made = 0
    for place in range(len(part_cuts) - 1):
        block, first, last = pool_offsets[place], part_cuts[place], part_cuts[place + 1]
        order = np.empty(number_at(pool, block) + last - first, np.int64)
        merged = _merge_order(
            pool, block, first, last, fingerprints, keys, key_starts, key_lengths, value_lengths, deleted, order, sums
        )
        order = order[:merged]
        sizes = np.empty(merged, np.int64)
        _sizes(pool, block, key_lengths, value_lengths, order, sizes)
        total = sizes.sum()
        parts = 1 if total <= most_bytes else -(-total // split_bytes)
        wanted, begin = -(-total // parts), 0
        while begin < merged:
            end, size = begin + 1, sizes[begin]
            lows[made] = _mark(pool, block, fingerprints, order[begin])
            before = lows[made]
            while end < merged:
                mark = _mark(pool, block, fingerprints, order[end])
                if size >= wanted and mark != before:
                    break
                before = mark
                size += sizes[end]
                end += 1
            offsets[made + 1] = _write_block(
                pool,
                block,
                fingerprints,
                keys,
                key_starts,
                key_lengths,
                values,
                value_starts,
                value_lengths,
                order[begin:end],
                out,
                offsets[made],
            )
            made += 1
            begin = end
        cuts[place] = made
    return made


@kernel(nogil=True)
def _write_block(
    pool: Bytes,
    block: int,
    fingerprints: Unsigned,
    keys: Bytes,
    key_starts: Integers,
    key_lengths: Integers,
    values: Bytes,
    value_starts: Integers,
    value_lengths: Integers,
    order: Integers,
    out: Bytes,
    at: int,
) -> int:
    """Write a block at ``at``; return its end."""
    count = len(order)
    _put_number(count, 4, out, at)
    base = at + 8 + 16 * count
    filled = 0
    for i in range(count):
        entry = order[i]
        if entry < 0:
            mark = fingerprints[-1 - entry]
            source, length, is_new = key_starts[-1 - entry], key_lengths[-1 - entry], True
        else:
            mark = fingerprint_at(pool, block + 8 + 8 * entry)
            source, length = string_at(pool, block, entry, 0)
            is_new = False
        for k in range(8):
            out[at + 8 + 8 * i + k] = (mark >> np.uint64(8 * k)) & np.uint64(0xFF)
        for k in range(length):
            out[base + filled + k] = keys[source + k] if is_new else pool[source + k]
        filled += length
        _put_number(filled, 4, out, at + 8 + 8 * count + 4 * i)
    base += filled
    filled = 0
    for i in range(count):
        entry = order[i]
        if entry < 0:
            source, length, is_new = value_starts[-1 - entry], value_lengths[-1 - entry], True
        else:
            source, length = string_at(pool, block, entry, 1)
            is_new = False
        for k in range(length):
            out[base + filled + k] = values[source + k] if is_new else pool[source + k]
        filled += length
        _put_number(filled, 4, out, at + 8 + 12 * count + 4 * i)
    end = base + filled
    return (end + 7) // 8 * 8
