"""Collect many small pandas frames and convert them to Arrow together.

Of a frame only its arrays are kept, as copies. Comparing the dtypes of a small frame, copying it and concatenating it
with others take longer than most of what is done with it, and thousands of frames, each a dozen objects, are traversed
by every garbage collection.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray


class FrameArrays(NamedTuple):
    """Copies of the arrays of a frame.

    Parameters
    ----------
    layout
        Labels of the columns; dtype of each array, and the places of its columns. Equal for frames that can be joined.
    arrays
        Arrays with a row for each column; empty for a frame that is kept whole.
    whole
        Copy of the frame, if it has columns that are not arrays of numpy.
    """

    layout: tuple[list[Any], list[tuple[Any, list[int]]]]
    arrays: Sequence[NDArray[Any]]
    whole: pd.DataFrame | None = None

    @classmethod
    def of(cls, frame: pd.DataFrame) -> "FrameArrays":
        """Return copies of the arrays of a frame."""
        blocks = frame._mgr.blocks  # noqa: SLF001 - the public ways take ten times as long
        arrays = [block.values for block in blocks]  # noqa: PD011 - of a block, not of a frame
        layout = [(array.dtype, block.mgr_locs.as_array.tolist()) for array, block in zip(arrays, blocks, strict=True)]
        if not arrays or not all(type(array) is np.ndarray for array in arrays):
            return cls((frame.columns.tolist(), layout), (), frame.copy())
        return cls((frame.columns.tolist(), layout), [array.copy() for array in arrays])


def joined_frames(frames: Sequence[FrameArrays]) -> Iterator[pd.DataFrame]:
    """Yield the frames again, consecutive ones of equal layout as one frame."""
    key: Callable[[FrameArrays], Any] = lambda each: each.layout  # noqa: E731 - its type is declared
    for (labels, layout), group in groupby(frames, key=key):
        alike = list(group)
        if alike[0].whole is not None:
            yield from (each.whole for each in alike if each.whole is not None)
            continue
        columns: dict[int, NDArray[Any]] = {}
        for number, (_, places) in enumerate(layout):
            columns |= zip(places, np.concatenate([each.arrays[number] for each in alike], axis=1), strict=True)
        made = pd.DataFrame({place: columns[place] for place in range(len(labels))})
        made.columns = pd.Index(labels, dtype=object) if labels else made.columns
        yield made
