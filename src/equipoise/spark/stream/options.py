"""Options of a keyed stream: one object from the user's call to the driver's settings."""

from dataclasses import dataclass

from equipoise.adapt import Elastic
from equipoise.adapt.combining import CombineMode, checked_combine
from equipoise.adapt.looking import LookMode, checked_look
from equipoise.arguments import at_least, whole
from equipoise.errors import InvalidArgumentError
from equipoise.spark.rows.options import BalanceOptions

TAIL_GROUPS = 64
"""Smallest default number of tail groups; the default is 16 for each partition."""

_GROUPS_PER_PARTITION = 16


@dataclass(frozen=True, kw_only=True)
class StreamOptions(BalanceOptions):
    """Options of ``balance`` on a streaming DataFrame.

    Parameters
    ----------
    numPartitions
        Number of partitions N; default ``spark.sql.shuffle.partitions``. With ``elastic``, N at the start.
    placement
        ``"plan"`` places keys by their load; ``"hash"`` keeps Spark's plain hash whatever the load.
    policy
        When to replan, and with which planner.
    elastic
        Bounds of N and the load at which it changes; default: N is fixed.
    orderBy
        Column or columns by which the rows of a key are sorted before the operator sees them.
    targetSeconds
        Time a batch may take; default the interval of the trigger, else 10. ``elastic`` plans for it.
    tailGroups
        Number of tail groups H, fixed when the query is created; default 16 for each partition, at least 64.
    look
        When to look at the keys of a micro-batch before it is placed: ``"auto"`` where the time saved exceeds the time
        of looking, as measured; ``"always"``; ``"never"``, and the plan follows from earlier batches.
    combine
        Whether map tasks reduce their rows of a key to one buffer before the exchange: ``"auto"`` where keys repeat
        often enough, as measured, and for keys too hot for one partition; ``"always"``; ``"never"``. Applies to
        operators with a ``merge`` and without ``orderBy``. The state of a key stays whole.
    cache
        Local folder for the executors' caches; default the system's temporary folder.
    cacheBytes
        Bytes that the caches of a keyed operator may take on one machine; default no bound. The groups whose last use
        is longest ago are deleted at the end of a task, and read from the checkpoint when they are needed again.
    retain
        Number of earlier versions of the state that stay readable.
    """

    elastic: Elastic | None = None
    orderBy: str | tuple[str, ...] = ()  # noqa: N815 - Spark's own name
    targetSeconds: float | None = None  # noqa: N815 - as Spark names options
    tailGroups: int | None = None  # noqa: N815 - as Spark names options
    look: LookMode = "auto"
    combine: CombineMode = "auto"
    cache: str | None = None
    cacheBytes: int | None = None  # noqa: N815 - as Spark names options
    retain: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.elastic, Elastic | None):
            raise InvalidArgumentError(
                f"elastic must be an equipoise.adapt.Elastic, for example Elastic(1, 64), got {self.elastic!r}"
            )
        columns = (self.orderBy,) if isinstance(self.orderBy, str) else tuple(self.orderBy)
        object.__setattr__(self, "orderBy", columns)
        if self.targetSeconds is not None and at_least("targetSeconds", self.targetSeconds, 0) == 0:
            raise InvalidArgumentError("targetSeconds is the time that a batch may take and must exceed 0")
        if self.tailGroups is not None and whole("tailGroups", self.tailGroups, 1) < self.most_partitions(1):
            raise InvalidArgumentError(
                f"tailGroups {self.tailGroups} is below the number of partitions, {self.most_partitions(1)}; "
                "give at least that"
            )
        checked_look(self.look)
        checked_combine(self.combine)
        if self.cacheBytes is not None:
            whole("cacheBytes", self.cacheBytes, 1)
        whole("retain", self.retain, 1)

    @property
    def order_by(self) -> tuple[str, ...]:
        """Columns by which the rows of a key are sorted."""
        return (self.orderBy,) if isinstance(self.orderBy, str) else self.orderBy

    @property
    def plain_hash(self) -> bool:
        """Whether keys stay where plain hash puts them."""
        return self.placement == "hash"

    def first_partitions(self, default: int) -> int:
        """Return N of the first batch, where ``default`` is the session's number of shuffle partitions."""
        count = self.numPartitions or default
        return count if self.elastic is None else min(max(count, self.elastic.minimum), self.elastic.maximum)

    def most_partitions(self, default: int) -> int:
        """Return the largest N that the query may use."""
        return self.first_partitions(default) if self.elastic is None else self.elastic.maximum

    def tail_groups(self, default: int, known: int | None) -> int:
        """Return H: as given, else that of the existing query, else by the number of partitions.

        Parameters
        ----------
        default
            The session's number of shuffle partitions.
        known
            H of the query in the checkpoint; ``None`` for a new query.
        """
        most = self.most_partitions(default)
        if self.tailGroups is None and known is not None:
            if known < most:
                raise InvalidArgumentError(
                    f"the query was created with {known} tail groups, so it cannot use {most} partitions; use fewer, "
                    "or begin a new checkpoint with a larger tailGroups"
                )
            return known
        if self.tailGroups is None:
            return max(TAIL_GROUPS, 1 << (_GROUPS_PER_PARTITION * most - 1).bit_length())
        if self.tailGroups < most:
            raise InvalidArgumentError(
                f"tailGroups {self.tailGroups} is below the number of partitions, {most}; give at least that"
            )
        return self.tailGroups
