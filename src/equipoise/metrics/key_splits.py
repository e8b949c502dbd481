"""Measures of splitting keys: sizes of blocks, distinct keys of blocks, and fragments of a key."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from equipoise.arguments import whole
from equipoise.errors import InvalidArgumentError
from equipoise.metrics.balance import imbalance
from equipoise.metrics.inputs import ROUNDING, as_amounts, as_array, as_assignment


def count_distinct_keys(keys: ArrayLike, assignment: ArrayLike, blocks: int) -> NDArray[np.int64]:
    """||Block_i||, number of distinct keys in each block: the input of the measures below.

    Parameters
    ----------
    keys
        Key (fingerprint) of each message, or of each fragment of a key.
    assignment
        Block or worker of each of them, counted from 0.
    blocks
        Number of blocks or workers.

    Examples
    --------
    >>> count_distinct_keys([7, 7, 9, 9], [0, 1, 1, 1], blocks=3).tolist()
    [1, 2, 0]
    """
    blocks = whole("blocks", blocks, 1)
    targets = as_assignment(assignment, blocks)
    names = as_array(keys, "keys")
    if names.shape != targets.shape:
        raise InvalidArgumentError(f"{names.size} keys but {targets.size} assignments; give one for each message")
    try:
        distinct, index = np.unique(names, return_inverse=True)
    except TypeError as error:  # objects that cannot be compared
        raise InvalidArgumentError(f"keys must be of one type ({error}); pass their fingerprints") from error
    fragments = np.unique(targets * len(distinct) + index)
    return np.bincount(fragments // len(distinct), minlength=blocks)


def block_size_imbalance(sizes: ArrayLike) -> float:
    """BSI, block size imbalance: largest minus average block size [Prompt, equations 2 and 3].

    Parameters
    ----------
    sizes
        Tuples in each block, or in each reduce bucket.

    Examples
    --------
    >>> block_size_imbalance([97, 97, 97, 94])
    0.75
    """
    return imbalance(sizes)


def block_cardinality_imbalance(cardinalities: ArrayLike) -> float:
    """BCI, block cardinality imbalance: largest minus average number of distinct keys [Prompt, equation 4].

    Parameters
    ----------
    cardinalities
        Distinct keys in each block.

    Examples
    --------
    >>> block_cardinality_imbalance([2, 3, 3, 3])
    0.25
    """
    return imbalance(cardinalities)


def key_split_ratio(cardinalities: ArrayLike, distinct_keys: int) -> float:
    """KSR, key split ratio: number of key fragments divided by number of keys [Prompt, equation 5].

    A fragment is the tuples of one key in one block, so the number of fragments is the sum of the cardinalities. The
    ratio is 1 if no key is split. The sentence before equation 5 inverts the ratio; this follows the equation.

    Parameters
    ----------
    cardinalities
        Distinct keys in each block.
    distinct_keys
        K, distinct keys in all blocks together.

    Examples
    --------
    >>> key_split_ratio([2, 3, 3, 3], distinct_keys=8)
    1.375
    """
    counts = as_amounts(cardinalities, "cardinalities")
    distinct_keys = whole("distinct_keys", distinct_keys, 0)
    fragments = float(counts.sum())
    if not counts.max() <= distinct_keys <= fragments:
        raise InvalidArgumentError(
            f"{distinct_keys} distinct keys cannot make {fragments:g} fragments, up to {counts.max():g} in one block; "
            "count a key once in distinct_keys and once for each block it is in"
        )
    return fragments / distinct_keys if distinct_keys else 1.0


def micropartitioning_imbalance(
    sizes: ArrayLike,
    cardinalities: ArrayLike,
    distinct_keys: int,
    *,
    size_weight: float = 1 / 3,
    cardinality_weight: float = 1 / 3,
    split_weight: float = 1 / 3,
) -> float:
    """MPI, micro-batch partitioning imbalance: p_1 * BSI + p_2 * BCI + p_3 * KSR [Prompt, equation 6].

    Parameters
    ----------
    sizes
        Tuples in each block.
    cardinalities
        Distinct keys in each block.
    distinct_keys
        K, distinct keys in all blocks together.
    size_weight, cardinality_weight, split_weight
        p_1, p_2 and p_3, which add up to 1.

    Examples
    --------
    >>> round(micropartitioning_imbalance([97, 97, 97, 94], [2, 3, 3, 3], distinct_keys=8), 4)
    0.7917
    """
    weights = as_amounts([size_weight, cardinality_weight, split_weight], "weights")
    sizes, cardinalities = as_amounts(sizes, "sizes"), as_amounts(cardinalities, "cardinalities")
    if abs(weights.sum() - 1) > ROUNDING:
        raise InvalidArgumentError(f"the three weights must add up to 1, got {weights.sum():.6g}")
    if len(sizes) != len(cardinalities):
        raise InvalidArgumentError(
            f"{len(sizes)} sizes but {len(cardinalities)} cardinalities; give one of each for every block"
        )
    measures = (
        block_size_imbalance(sizes),
        block_cardinality_imbalance(cardinalities),
        key_split_ratio(cardinalities, distinct_keys),
    )
    return float(weights @ measures)


def distribution_cost(cardinalities: ArrayLike, distinct_keys: int) -> float:
    """DistCost, distribution cost: sum over workers of their distinct keys / distinct keys overall [DKG, equation 8].

    This is the average number of workers that hold a key, from 1 to the number of workers. Prompt's key split ratio is
    the same quantity.

    Parameters
    ----------
    cardinalities
        Distinct keys at each worker.
    distinct_keys
        Distinct keys at all workers together.

    Examples
    --------
    >>> distribution_cost([1, 2, 1], distinct_keys=2)
    2.0
    """
    return key_split_ratio(cardinalities, distinct_keys)
