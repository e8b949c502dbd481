import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.split import WChoices
from equipoise.split.load_levels import arrange, new_levels, rise
from equipoise.split.tournament import grow, new_tree, play_again


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.lists(st.integers(0, 39), max_size=60))
@settings(deadline=None)  # the first example compiles
def test_the_final_is_won_by_the_first_of_the_least_loaded_workers(start, messages):
    loads, tree = np.array(start, dtype=np.int64), new_tree(len(start))
    grow(tree, loads)
    assert tree[1] == np.argmin(loads)
    for message in messages:
        worker = message % len(loads)
        loads[worker] += 1
        play_again(tree, loads, worker)
        assert tree[1] == np.argmin(loads)


@pytest.mark.parametrize("workers", [1, 2, 50])
def test_routes_do_not_depend_on_how_many_messages_come_at_once(workers):
    rng = np.random.default_rng(workers)
    stream = np.where(rng.random(5000) < 0.4, 7, rng.integers(0, 300, 5000))
    whole, piecewise = WChoices(workers, seed=2), WChoices(workers, seed=2)
    one = whole.route(stream)
    few = np.concatenate([piecewise.route(stream[at : at + 5]) for at in range(0, 5000, 5)])
    assert one.tolist() == few.tolist()
    assert whole.loads.tolist() == piecewise.loads.tolist()


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.lists(st.integers(0, 39), max_size=60))
@settings(deadline=None)
def test_levels_hold_the_workers_in_order_of_their_loads(start, messages):
    loads, levels = np.array(start, dtype=np.int64), new_levels(len(start))
    arrange(levels, loads)
    for message in [*messages, 0]:
        sorted_loads = loads[levels.order]
        assert np.all(np.diff(sorted_loads) >= 0)
        assert levels.order[levels.place].tolist() == list(range(len(loads)))
        assert levels.start[levels.level].tolist() == np.searchsorted(sorted_loads, loads, side="left").tolist()
        assert levels.stop[levels.level].tolist() == np.searchsorted(sorted_loads, loads, side="right").tolist()
        worker = message % len(loads)
        loads[worker] += 1
        rise(levels, loads, worker)
