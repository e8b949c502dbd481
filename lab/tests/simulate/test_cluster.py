import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise import KIP
from equipoise.checks import check_splitter
from equipoise.errors import InvalidArgumentError
from equipoise.metrics import average_imbalance_fraction, count_distinct_keys
from equipoise.split import PartialKey
from equipoise_lab.simulate.cluster import Cluster, ClusterOptions, simulate, splitter_of
from equipoise_lab.simulate.key_spread import KeySpread
from equipoise_lab.simulate.planned import Planned
from equipoise_lab.simulate.queueing import QueueOptions
from equipoise_lab.simulate.streams import make_stream


def chunks(messages=20_000, **options):
    options = {"keys": 2000, "exponent": 1.0, "seed": 5, **options}
    return list(make_stream(options.pop("name", "zipf"), messages, **options))


def test_figures_are_those_of_the_measures_on_the_whole_assignment():
    stream = chunks()
    result = simulate(splitter_of("partial-key", 7), [c for part in stream for c in np.array_split(part, 9)])
    targets = PartialKey(7).route(np.concatenate(stream))
    assert result.messages == len(targets)
    assert result.loads.tolist() == np.bincount(targets, minlength=7).tolist()
    assert result.average_imbalance == pytest.approx(average_imbalance_fraction(targets, 7))
    distinct = count_distinct_keys(np.concatenate(stream), targets, 7)
    assert result.keys_at_workers.tolist() == distinct.tolist()
    assert result.keys == len(np.unique(np.concatenate(stream)))
    assert result.distribution_cost == pytest.approx(distinct.sum() / result.keys)
    assert result.imbalance_over_time[-1].tolist() == [len(targets), result.imbalance]
    assert len(result.imbalance_over_time) == 9


@pytest.mark.parametrize("load", ["local", "global", "probed"])
@pytest.mark.parametrize("step", [3, 64, 10_000])
def test_sources_route_as_if_messages_came_one_by_one(load, step):
    stream = np.concatenate(chunks(500, keys=30))
    options = ClusterOptions(sources=3, load=load, probe_every=40, step=step)
    cluster = Cluster(splitter_of("partial-key", 5), options)
    for part in np.array_split(stream, 7):
        cluster.feed(part)
    sources = [PartialKey(5)] * 3 if load == "global" else [PartialKey(5) for _ in range(3)]
    loads = np.zeros(5, dtype=np.int64)
    for t, key in enumerate(stream.tolist()):
        if load == "probed" and t and t % 40 == 0:
            for source in sources:
                source.probe(loads, sources=3)
        loads[sources[t % 3].route([key])[0]] += 1
    assert cluster.result().loads.tolist() == loads.tolist()


def test_local_estimates_disagree_with_the_oracle_and_are_nearly_as_good():
    options = {"sources": 5, "oracle": True}
    local = simulate(splitter_of("partial-key", 10), chunks(100_000), ClusterOptions(**options))
    oracle = simulate(splitter_of("partial-key", 10), chunks(100_000), ClusterOptions(**options, load="global"))
    assert oracle.agreement == 1.0
    assert 0.3 < local.agreement < 0.9
    assert local.average_imbalance < 10 * oracle.average_imbalance


def test_skewed_sources_get_different_numbers_of_messages_and_balance_still_holds():
    cluster = Cluster(splitter_of("partial-key", 5), ClusterOptions(sources=4, source_skew=1.2))
    for part in chunks(50_000, exponent=0.8):
        cluster.feed(part)
    sent = [int(splitter.loads.sum()) for splitter in cluster.splitters]
    assert sum(sent) == 50_000
    assert max(sent) > 1.5 * min(sent)
    assert cluster.result().average_imbalance < 1e-3


def test_splitters_that_remember_keys_are_one_for_all_sources():
    cluster = Cluster(splitter_of("static-potc", 5), ClusterOptions(sources=4))
    assert len(cluster.splitters) == 1
    for part in chunks():
        cluster.feed(part)
    assert cluster.result().distribution_cost == 1.0


@pytest.mark.parametrize("period", [100, 777])
def test_partial_results_are_handed_over_at_the_end_of_each_period(period):
    stream = np.concatenate(chunks(5000, keys=50))
    options = ClusterOptions(aggregation_period=period)
    result = simulate(splitter_of("partial-key", 4), np.array_split(stream, 3), options)
    targets = PartialKey(4).route(stream)
    whole = len(stream) // period
    pairs = [
        len(set(zip(stream[i : i + period].tolist(), targets[i : i + period].tolist(), strict=True)))
        for i in range(0, whole * period, period)
    ]
    assert result.aggregation == pytest.approx(sum(pairs) / len(stream))
    assert result.partial_results == pytest.approx(np.mean(pairs))


def test_the_longer_the_period_the_fewer_partial_results_are_handed_over():
    costs = [
        simulate(splitter_of("shuffle", 4), chunks(), ClusterOptions(aggregation_period=period)).aggregation
        for period in (100, 1000, 10_000)
    ]
    assert costs == sorted(costs, reverse=True)
    assert 0 < costs[-1] < costs[0] <= 1


def test_dkg_sees_the_time_of_the_stream_and_spreads_a_hot_key():
    stream = chunks(400_000, name="country-skew", skew=0.8)
    ours, two = (
        simulate(splitter_of(name, 10), stream, ClusterOptions(rate=4000, step=1000))
        for name in ("dynamic-key", "partial-key")
    )
    assert ours.loads.max() < 0.6 * two.loads.max()
    assert ours.distribution_cost < 5


def test_with_queues_the_time_of_the_queues_counts():
    options = ClusterOptions(sources=2, queue=QueueOptions(service=1e-3, capacity=100), step=500)
    stream = chunks(600_000, name="country-skew", skew=0.8)  # minutes, of which the first 15 seconds are warm-up
    ours, two = (simulate(splitter_of(name, 10), stream, options).queue for name in ("dynamic-key", "partial-key"))
    assert ours.throughput > 1.5 * two.throughput


def test_a_planner_can_take_the_place_of_a_splitter():
    stream = chunks(60_000)
    ours, plain = (simulate(splitter_of(name, 8, every=10_000), stream) for name in ("kip", "uniform"))
    assert plain.distribution_cost == 1.0
    assert ours.loads.max() < plain.loads.max()
    check_splitter(lambda workers, seed: Planned(KIP(), workers, every=500, seed=seed))


def test_names_that_are_neither_are_answered_with_those_there_are():
    with pytest.raises(InvalidArgumentError, match=r"partial-key.*kip"):
        splitter_of("pkg", 4)


def test_a_planner_is_not_made_without_the_time_of_its_plans():
    with pytest.raises(InvalidArgumentError, match="give every"):
        splitter_of("kip", 4)


@pytest.mark.parametrize(
    "wrong",
    [{"sources": 0}, {"load": "none"}, {"step": 0}, {"rate": 0}, {"aggregation_period": 0}, {"source_skew": -1}],
)
def test_impossible_clusters_are_refused(wrong):
    with pytest.raises(InvalidArgumentError):
        ClusterOptions(**wrong)


def test_a_result_of_nothing_is_refused():
    with pytest.raises(InvalidArgumentError, match="feed"):
        Cluster(splitter_of("shuffle", 2)).result()


# where keys are


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 69)), min_size=1, max_size=200), st.integers(0, 200))
def test_the_spread_of_keys_is_exact_while_there_is_room(pairs, cut):
    keys, targets = (np.array(column) for column in zip(*pairs, strict=True))
    spread = KeySpread(70, capacity=32)
    spread.add(keys[:cut], targets[:cut])
    spread.add(keys[cut:], targets[cut:])
    assert spread.level == 0
    assert spread.keys() == len(set(keys.tolist()))
    assert spread.replicas() == len(set(pairs))
    assert spread.keys_at_workers().tolist() == [len({k for k, w in pairs if w == n}) for n in range(70)]
    assert all(spread.workers_of(key) == len({w for k, w in pairs if k == key}) for key in set(keys.tolist()))


def test_beyond_its_room_the_spread_is_estimated_from_a_sample():
    keys = np.tile(np.arange(50_000), 2)
    targets = np.concatenate([np.arange(50_000) % 7, np.arange(1, 50_001) % 7])
    spread = KeySpread(7, capacity=4000)
    before = spread._bits.nbytes + spread._names.nbytes
    spread.add(keys, targets)
    assert spread.level > 0
    assert spread.keys() == pytest.approx(50_000, rel=0.1)
    assert spread.replicas() == 2 * spread.keys()
    assert spread._bits.nbytes + spread._names.nbytes == before
    spread.clear()
    assert (spread.keys(), spread.replicas()) == (0, 0)


def test_sources_can_be_given_with_the_messages():
    stream = np.concatenate(chunks(2000, keys=100))
    sources = np.random.default_rng(3).integers(0, 3, len(stream))
    cluster = Cluster(splitter_of("partial-key", 5), ClusterOptions(sources=3, step=64))
    for keys, given_sources in zip(np.array_split(stream, 4), np.array_split(sources, 4), strict=True):
        cluster.feed(keys, given_sources)
    alone = [np.bincount(PartialKey(5).route(stream[sources == source]), minlength=5) for source in range(3)]
    assert cluster.result().loads.tolist() == sum(alone).tolist()


def test_handing_over_partial_results_takes_workers_time():
    queue = QueueOptions(service=1e-3, capacity=100)
    options = {"queue": queue, "aggregation_period": 1000}
    free, costly = (
        simulate(splitter_of("shuffle", 5), chunks(), ClusterOptions(**options, hand_over=cost)) for cost in (0.0, 1e-3)
    )
    assert free.aggregation == costly.aggregation > 0
    slower = free.queue.throughput / costly.queue.throughput
    assert slower == pytest.approx(1 + costly.aggregation, rel=0.1)
