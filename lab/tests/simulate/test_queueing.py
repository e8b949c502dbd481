import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.errors import InvalidArgumentError
from equipoise_lab.simulate.queueing import QueueOptions, Queues


def passed(targets, workers, sources=1, **options):
    queues = Queues(workers, sources, QueueOptions(**options))
    targets = np.asarray(targets)
    queues.feed(targets, np.arange(len(targets)) % sources)
    return queues.report()


def test_saturated_throughput_is_that_of_the_fullest_worker():
    for hot, expected in ((0.5, 2000), (0.8, 1250)):
        targets = (np.random.default_rng(1).random(100_000) > hot).astype(np.int64)
        report = passed(targets, 2, sources=4, service=1e-3, capacity=1000)
        assert report.throughput == pytest.approx(expected, rel=0.02)
        assert report.utilisation.max() == pytest.approx(1, abs=0.02)


def test_an_idle_system_takes_the_service_time_only():
    report = passed([0, 1] * 500, 2, service=1e-3, rate=100.0, capacity=None)
    assert report.latency == pytest.approx(1e-3)
    assert report.latency_median == pytest.approx(1e-3, rel=0.1)
    assert report.throughput == pytest.approx(100, rel=0.01)
    assert report.utilisation == pytest.approx([0.05, 0.05], rel=0.01)


def test_latencies_grow_without_bound_when_a_worker_gets_more_than_it_can_do():
    report = passed([0] * 1000, 1, service=1e-3, rate=2000.0, capacity=None)
    assert report.throughput == pytest.approx(1000, rel=0.01)
    assert report.latency == pytest.approx(np.mean([1e-3 + i * 0.5e-3 for i in range(1000)]))


def test_a_full_queue_holds_up_its_source_and_not_the_others():
    # source 0 sends to worker 0 alone, source 1 to worker 1 alone
    targets, sources = np.array([0, 1] * 100), np.array([0, 1] * 100)
    queues = Queues(2, 2, QueueOptions(service=1.0, capacity=2))
    queues.feed(targets, sources)
    assert queues.report().throughput == pytest.approx(2.0)
    blocked = Queues(2, 1, QueueOptions(service=1.0, capacity=1))
    blocked.feed(np.array([0, 0, 1]), np.zeros(3, dtype=np.int64))
    assert blocked.report().throughput == pytest.approx(3 / 2)  # the third waits behind the second, then runs beside it


def test_with_exponential_service_the_mean_wait_is_that_of_the_textbook():
    # D/M/1 at half load: sigma solves sigma = exp(-2 (1 - sigma)), the mean time in the system is service / (1 - sigma)
    sigma = 0.2
    for _ in range(100):
        sigma = np.exp(-2 * (1 - sigma))
    report = passed(np.zeros(300_000, dtype=int), 1, service=1.0, rate=0.5, capacity=None, exponential=True)
    assert report.latency == pytest.approx(1 / (1 - sigma), rel=0.02)


@settings(max_examples=40)
@given(
    targets=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    sources=st.integers(1, 3),
    capacity=st.integers(1, 5),
    cut=st.integers(0, 60),
)
def test_queues_bound_waiting_and_cuts_make_no_difference(targets, sources, capacity, cut):
    targets = np.array(targets)
    of = np.arange(len(targets)) % sources
    options = QueueOptions(service=1.0, capacity=capacity)
    one, two = Queues(4, sources, options), Queues(4, sources, options)
    one.feed(targets, of)
    two.feed(targets[:cut], of[:cut])
    two.feed(targets[cut:], of[cut:])
    report = one.report()
    assert report.latency == two.report().latency
    assert report.latency <= (len(targets) + 1) / 2 + 1e-9  # message i is done by time i + 1, whoever holds it up
    if sources == 1:  # behind what was there when the message before it found room; of several, one may hold up others
        assert report.latency <= capacity + 1 + 1e-9
    busiest = np.bincount(targets).max()
    assert busiest / report.utilisation.max() == pytest.approx(len(targets) / report.throughput)


@pytest.mark.parametrize(
    "wrong", [{"service": 0}, {"rate": 0}, {"capacity": 0}, {"rate": None, "capacity": None}, {"service": "fast"}]
)
def test_impossible_queues_are_refused(wrong):
    with pytest.raises(InvalidArgumentError):
        QueueOptions(**wrong)


def test_a_report_of_nothing_is_refused():
    with pytest.raises(InvalidArgumentError, match="feed"):
        Queues(1, 1, QueueOptions()).report()


def test_with_a_limit_of_messages_on_their_way_littles_law_holds():
    # 4 sources with 5 messages each: latency is 20 over the throughput
    targets = np.random.default_rng(1).integers(0, 4, 200_000)
    report = passed(targets, 4, sources=4, service=1e-3, capacity=None, pending=5)
    assert report.latency * report.throughput == pytest.approx(20, rel=0.02)
    assert report.throughput < 4000


def test_a_source_goes_on_when_any_of_its_messages_is_done():
    # the second message is to the free worker and done first, so the third need not wait for the first
    queues = Queues(2, 1, QueueOptions(service=1.0, capacity=None, pending=2))
    queues.occupy(np.array([10.0, 0.0]))
    queues.feed(np.array([0, 1, 1]), np.zeros(3, dtype=np.int64))
    assert queues.report().throughput == pytest.approx(3 / 11)
    assert queues.report().latency == pytest.approx((11 + 1 + 1) / 3)


def test_a_worker_that_is_occupied_takes_messages_later():
    queues = Queues(1, 1, QueueOptions(service=1.0, rate=1.0, capacity=None))
    queues.feed(np.zeros(10, dtype=np.int64), np.zeros(10, dtype=np.int64))
    queues.occupy(np.array([5.0]))
    queues.feed(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    assert queues.report().throughput == pytest.approx(11 / 16)
    assert queues.report().utilisation == pytest.approx([1.0])
