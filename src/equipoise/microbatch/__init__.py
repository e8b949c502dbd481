"""Prompt: micro-batches that are planned before they run."""

from equipoise.microbatch.accumulator import Accumulator, Batch, post_sorted
from equipoise.microbatch.baselines import (
    BLOCKS,
    blocks_of_tuples,
    few_fragments_blocks,
    first_fit_blocks,
    routed_blocks,
    time_blocks,
)
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
    "blocks_of_tuples",
    "few_fragments_blocks",
    "first_fit_blocks",
    "level_blocks",
    "level_buckets",
    "post_sorted",
    "prompt_blocks",
    "prompt_buckets",
    "routed_blocks",
    "time_blocks",
]
