"""Key groups have names, numbers and owners, and a new plan moves exactly the keys that change their group."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from equipoise import Plan
from equipoise.state.ownership import Handover, Layout, fingerprint_of, key_group, tail_group

fingerprints = st.integers(-(2**63), 2**63 - 1)
H = 8


@st.composite
def plans(draw):
    partitions = draw(st.integers(1, H))
    owner = st.integers(0, partitions - 1)
    tail = draw(st.lists(owner, min_size=H, max_size=H))
    return Plan(partitions, tail, draw(st.dictionaries(st.integers(-20, 20) | fingerprints, owner, max_size=6)))


def group_of(plan, key):
    return key_group(key) if key in plan.isolated else tail_group(key % H)


@given(fingerprints)
def test_a_name_tells_the_key(key):
    assert fingerprint_of(key_group(key)) == key
    assert len(key_group(key)) == 17
    assert key_group(key).isalnum()


@given(st.integers(0, 99_999))
def test_a_tail_group_isolates_no_key(number):
    assert fingerprint_of(tail_group(number)) is None
    assert tail_group(number) == f"t{number:05}"


@given(plans(), st.lists(fingerprints))
def test_every_group_has_one_owner_and_it_is_that_of_its_keys(plan, others):
    layout = Layout(plan)
    assert len(set(layout.names)) == len(layout.names) == len(layout.owners)
    assert set(layout.owners.tolist()) <= set(range(plan.partitions))
    for key in [*plan.isolated, *others]:
        number = layout.names.index(group_of(plan, key))
        assert layout.owners[number] == plan.assign(np.array([key]))[0]


@given(plans(), plans(), st.lists(fingerprints))
def test_a_handover_moves_exactly_the_keys_that_change_their_group(before, after, others):
    handover = Handover.between(before, after)
    moved_to = {}
    for group, source in handover.isolated.items():
        key = fingerprint_of(group)
        assert source == tail_group(key % H)
        assert key in handover.leaving[source]
        moved_to[key] = group
    for target, groups in handover.folded.items():
        for group in groups:
            key = fingerprint_of(group)
            assert target == tail_group(key % H)
            moved_to[key] = target
    for key in {*before.isolated, *after.isolated, *others}:
        if group_of(before, key) != group_of(after, key):
            assert moved_to.pop(key) == group_of(after, key)
    assert moved_to == {}
    assert sum(map(len, handover.leaving.values())) == len(handover.isolated)


@given(plans())
def test_the_same_plan_moves_nothing(plan):
    assert Handover.between(plan, plan) == Handover({}, {})
