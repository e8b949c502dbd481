import pytest

from equipoise import InvalidArgumentError
from equipoise_lab.bench.harness import Context, environment, interleaved, median


def test_contenders_take_turns_after_one_uncounted_run():
    calls = []
    seconds = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, repeats=2)
    assert calls[:2] == ["a", "b"]
    assert sorted(calls[2:4]) == sorted(calls[4:]) == ["a", "b"]
    assert {name: len(times) for name, times in seconds.items()} == {"a": 2, "b": 2}
    assert median([3.0, 1.0, 2.0]) == 2.0


def test_the_environment_names_commit_versions_and_cores():
    env = environment(seed=5)
    assert env.seed == 5
    assert env.cores >= 1
    assert {"python", "equipoise", "numpy", "numba"} <= set(env.versions)


def test_a_missing_data_set_is_named(tmp_path):
    assert Context().file("a.parquet") is None
    with pytest.raises(InvalidArgumentError, match=r"a\.parquet does not exist"):
        Context(data=tmp_path).file("a.parquet")
