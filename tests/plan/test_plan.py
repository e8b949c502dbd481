import json
import os
import stat
from hashlib import sha256

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise import DamagedError, InvalidArgumentError, Plan, UnknownFormatError, uniform_plan
from equipoise.plan.plan import _checksum

FINGERPRINT = st.integers(-(2**63), 2**63 - 1)


@st.composite
def plans(draw):
    partitions = draw(st.integers(1, 20))
    partition = st.integers(0, partitions - 1)
    return Plan(
        partitions,
        draw(st.lists(partition, min_size=partitions, max_size=60)),
        draw(st.dictionaries(FINGERPRINT, partition, max_size=30)),
        version=draw(st.integers(0, 10**6)),
        planner=draw(st.text(max_size=10)),
        reason=draw(st.text(max_size=30)),
        parent=draw(st.none() | st.integers(0, 10**6)),
    )


@given(plans(), st.lists(FINGERPRINT, max_size=50))
def test_a_key_goes_where_it_is_isolated_else_where_its_tail_group_goes(plan, keys):
    keys = [*keys, *plan.isolated]
    expected = [plan.isolated.get(key, plan.tail[key % plan.tail_groups]) for key in keys]
    assert plan.assign(keys).tolist() == expected


@given(plans())
def test_a_plan_survives_its_json_to_the_byte(plan):
    text = plan.to_json()
    again = Plan.from_json(text)
    assert again == plan
    assert again.to_json() == text


@given(plans(), st.text())
def test_the_checksum_is_that_of_the_plan_as_compact_json_with_sorted_keys(plan, reason):
    named = Plan(plan.partitions, plan.tail, plan.isolated, reason=reason, version=plan.version)
    content = json.loads(named.to_json())
    compact = json.dumps(content["plan"], sort_keys=True, separators=(",", ":"))
    assert content["sha256"] == sha256(compact.encode()).hexdigest()
    assert content["plan"]["reason"] == reason


def test_the_json_is_readable_and_says_what_it_is():
    content = json.loads(Plan(2, [0, 1], {-1: 1, 10: 0}, reason="by hand").to_json())
    assert (content["format"], content["format_version"]) == ("equipoise-plan", 2)
    assert content["plan"]["isolated"] == {"ffffffffffffffff": 1, "000000000000000a": 0}
    assert content["plan"]["reason"] == "by hand"


def test_the_order_in_which_keys_are_given_does_not_matter():
    assert Plan(2, [0, 1], {5: 0, -3: 1}).to_json() == Plan(2, [0, 1], {-3: 1, 5: 0}).to_json()


def test_any_change_of_a_stored_plan_is_noticed():
    text = Plan(3, [0, 1, 2, 0], {7: 2, 9: 1}, version=4, reason="hot").to_json()
    plan = Plan.from_json(text)
    for i in range(len(text)):
        for other in ("0", "z", " ", ""):
            changed = text[:i] + other + text[i + 1 :]
            try:
                assert Plan.from_json(changed) == plan, f"position {i} became {other!r} unnoticed"
            except (DamagedError, UnknownFormatError):
                continue


def test_a_truncated_file_is_refused_by_its_name(tmp_path):
    path = tmp_path / "plan.json"
    plan = uniform_plan(4)
    plan.save(path)
    assert Plan.load(path) == plan
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DamagedError, match=r"plan\.json.*restore it"):
        Plan.load(path)


def test_a_newer_format_is_refused_with_a_way_out():
    text = uniform_plan(2).to_json().replace('"format_version": 2', '"format_version": 3')
    with pytest.raises(UnknownFormatError, match="the release that wrote it"):
        Plan.from_json(text)


def test_a_plan_with_shards_as_of_format_1_is_refused():
    text = uniform_plan(2).to_json()
    with pytest.raises(UnknownFormatError, match="plan format 1"):
        Plan.from_json(text.replace('"format_version": 2', '"format_version": 1'))
    with pytest.raises(DamagedError, match="unknown field `widths`"):
        Plan.from_json(text.replace('"isolated": {}', '"isolated": {}, "widths": {}'))


def test_another_kind_of_json_is_refused():
    with pytest.raises(DamagedError, match="not a readable plan"):
        Plan.from_json('{"a": 1}')
    with pytest.raises(DamagedError, match="expected 'equipoise-plan'"):
        Plan.from_json(uniform_plan(2).to_json().replace("equipoise-plan", "something-else"))


def test_a_file_with_a_right_checksum_but_impossible_content_is_refused():
    content = json.loads(uniform_plan(2, 2).to_json())
    content["plan"]["isolated"] = {"not hexadecimal": 0}
    content["sha256"] = _checksum(content["plan"])
    with pytest.raises(DamagedError):
        Plan.from_json(json.dumps(content))


def test_saving_over_an_existing_plan_leaves_no_other_file(tmp_path):
    path = tmp_path / "plan.json"
    uniform_plan(2).save(path)
    uniform_plan(3).save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
    assert Plan.load(path).partitions == 3


def test_numbers_of_numpy_are_as_good_as_pythons():
    plan = Plan(np.int64(2), [0, 1], {np.int64(-5): np.int32(1)}, version=np.int64(3), parent=np.int8(2))
    assert Plan.from_json(plan.to_json()) == Plan(2, [0, 1], {-5: 1}, version=3, parent=2)


def test_a_saved_plan_can_be_read_by_whom_the_umask_lets(tmp_path):
    path = tmp_path / "plan.json"
    before = os.umask(0o022)
    try:
        uniform_plan(2).save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_saving_where_it_cannot_leaves_nothing_behind(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing.*plan\.json"):
        uniform_plan(2).save(tmp_path / "missing" / "plan.json")
    assert list(tmp_path.iterdir()) == []


def test_a_newer_format_of_another_shape_is_still_reported_as_newer():
    with pytest.raises(UnknownFormatError):
        Plan.from_json('{"format": "equipoise-plan", "format_version": 3, "content": []}')


def test_a_plan_cannot_be_changed():
    plan = uniform_plan(2)
    with pytest.raises(ValueError, match="read-only"):
        plan.tail[0] = 1
    with pytest.raises(TypeError):
        plan.isolated[1] = 0
    with pytest.raises(AttributeError):
        plan.partitions = 3


def test_a_plan_does_not_follow_the_array_it_was_made_from():
    tail = np.zeros(4, dtype=np.int32)
    plan = Plan(1, tail)
    tail[0] = 9
    assert plan.tail.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Plan(0, [0]), "partitions must be a whole number of at least 1, got 0"),
        (lambda: Plan(2.7, [0, 1, 0]), "partitions must be a whole number"),
        (lambda: Plan(2, [[0], [1]]), "got shape"),
        (lambda: Plan(3, [0, 1]), "at least 3 tail groups, got 2"),
        (lambda: Plan(2, [0, 2]), r"every tail group needs a partition, a whole number in 0\.\.1"),
        (lambda: Plan(2, [0, -1]), r"in 0\.\.1"),
        (lambda: Plan(2, [0.0, 1.0]), "a whole number"),
        (lambda: Plan(2, [0, 1], {5: 2}), "isolated key 0000000000000005 is mapped to partition 2"),
        (lambda: Plan(2, [0, 1], {5: 0.7}), "partition of a key must be a whole number"),
        (lambda: Plan(2, [0, 1], {1.5: 0}), "fingerprint must be a whole number"),
        (lambda: Plan(2, [0, 1], {"a": 0}), "fingerprint must be a whole number"),
        (lambda: Plan(2, [0, 1], {2**63: 1}), "64 signed bits"),
        (lambda: Plan(2, [0, 1], version=-1), "version must be a whole number of at least 0"),
        (lambda: Plan(2, [0, 1], version=1.5), "version must be a whole number"),
        (lambda: uniform_plan(0), "partitions must be"),
        (lambda: uniform_plan(2.5), "partitions must be"),
        (lambda: uniform_plan(4, 3), "tail_groups must be a whole number of at least 4"),
    ],
)
def test_an_impossible_plan_is_refused(make, message):
    with pytest.raises(InvalidArgumentError, match=message):
        make()
