"""Prompt: micro-batches that are planned before they run."""

from collections.abc import Callable

from equipoise.microbatch.accumulator import Accumulator, Batch, post_sorted
from equipoise.microbatch.blocks import Blocks, prompt_blocks
from equipoise.microbatch.buckets import level_buckets, prompt_buckets
from equipoise.microbatch.levelled_blocks import level_blocks
from equipoise.microbatch.scaling import AutoScale, Scaled
from equipoise.microbatch.windows import Window

__all__ = [
    "BLOCKS",
    "Accumulator",
    "AutoScale",
    "Batch",
    "Blocks",
    "Scaled",
    "Window",
    "level_blocks",
    "level_buckets",
    "post_sorted",
    "prompt_blocks",
    "prompt_buckets",
]

BLOCKS: dict[str, Callable[[Batch, int], Blocks]] = {"level": level_blocks, "prompt": prompt_blocks}
"""Functions that cut a batch into blocks, by the name that the option ``method`` takes."""
