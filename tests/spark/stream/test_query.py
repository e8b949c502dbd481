"""A checkpoint is given back when its query is known to have ended, and not before."""

import copy
import pickle

import pytest
from pyspark.errors import StreamingQueryException

from equipoise.spark.stream.query import StatefulQuery, is_active_here
from equipoise.state.fencing import claim, tenancy
from equipoise.storage import Storage


class Spark:
    """Spark's query, as far as it can be reached: ``end`` is what waiting for it comes to."""

    def __init__(self, end, active):
        self.end, self.active = end, active

    def awaitTermination(self):  # noqa: N802 - Spark's own name
        if self.end is not None:
            raise self.end

    @property
    def isActive(self):  # noqa: N802 - Spark's own name
        if self.active is None:
            raise ConnectionError("no route")
        return self.active


@pytest.mark.parametrize(
    ("end", "active", "reported"),
    [
        (None, False, "ended"),
        (StreamingQueryException("it failed"), None, "ended"),
        (ConnectionError("lost"), False, "ended"),
        (ConnectionError("lost"), True, "running"),
        (ConnectionError("lost"), None, "running"),
    ],
    ids=["ended", "failed", "lost and ended", "lost and running", "lost for good"],
)
def test_a_checkpoint_is_released_when_the_query_is_known_to_have_ended(tmp_path, end, active, reported):
    storage = Storage(str(tmp_path))
    epoch = claim(storage, lambda _: False)
    query = StatefulQuery(Spark(end, active), [epoch], None, lambda: False)
    query._releasing.join()
    assert tenancy(storage) == reported
    assert not is_active_here(epoch.owner)
    assert claim(storage, is_active_here).number == 2  # a lost one is taken over, and fenced off


def test_a_copy_of_a_query_and_one_whose_start_failed_have_no_query_instead_of_recursing(tmp_path):
    epoch = claim(Storage(str(tmp_path)), lambda _: False)
    query = StatefulQuery(Spark(None, False), [epoch], None, bool)
    query._releasing.join()
    assert copy.copy(query).isActive is False
    with pytest.raises(AttributeError, match="'StatefulQuery' object has no attribute 'query'"):
        StatefulQuery.__new__(StatefulQuery).isActive  # noqa: B018 - reading it raises
    with pytest.raises(TypeError, match="pickle"):  # its thread and its lock
        pickle.dumps(query)
