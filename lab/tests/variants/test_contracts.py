"""The variants keep the promises of the library's methods, and say how they differ from their papers."""

import inspect
from functools import partial

import pytest

from equipoise import InvalidArgumentError, plan, split
from equipoise.checks import check_blocks, check_planner, check_splitter
from equipoise_lab.variants import (
    BLOCKS,
    PLANNERS,
    SPLITTERS,
    DynamicKeyCoded,
    DynamicKeyPrinted,
    KIPPrinted,
    make_planner,
    make_splitter,
)

DYNAMIC = {
    "coded": partial(DynamicKeyCoded, clock=lambda: 0.0),
    "printed": partial(DynamicKeyPrinted, clock=lambda: 0.0),
    "printed, filled": partial(DynamicKeyPrinted, fills=True, clock=lambda: 0.0),
}


@pytest.mark.parametrize("planner", [KIPPrinted(), KIPPrinted(histogram_scale=4)], ids=repr)
def test_a_planner_keeps_its_promises(planner):
    check_planner(planner)


@pytest.mark.parametrize("kind", DYNAMIC.values(), ids=DYNAMIC.keys())
def test_a_splitter_keeps_its_promises(kind):
    check_splitter(lambda workers, seed: kind(workers, seed=seed))


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_keep_their_promises(name):
    check_blocks(BLOCKS[name], capacity=name in {"first-fit", "few-fragments"}, whole_keys=name == "hash")


@pytest.mark.parametrize("method", [KIPPrinted, DynamicKeyCoded, DynamicKeyPrinted])
def test_every_variant_states_its_guarantees_and_how_it_differs_from_its_paper(method):
    doc = inspect.getdoc(method) or ""
    for section in ("Guarantees", "Differs from the paper", "Parameters", "References"):
        assert f"{section}\n---" in doc
    for parameter in inspect.signature(method).parameters:
        assert parameter in doc.split("Parameters\n", 1)[1]


def test_methods_of_library_and_laboratory_are_made_by_their_names():
    assert set(PLANNERS) - set(plan.PLANNERS) == {"kip-printed"}
    assert set(SPLITTERS) - set(split.SPLITTERS) == {"dynamic-key-coded", "dynamic-key-printed"}
    assert make_planner("kip-printed", slack=0.001) == KIPPrinted(slack=0.001)
    assert make_planner("kip") == plan.KIP()
    assert isinstance(make_splitter("dynamic-key-printed", workers=3, fills=True), DynamicKeyPrinted)
    with pytest.raises(InvalidArgumentError, match="kip-printed"):
        make_planner("best")
    with pytest.raises(InvalidArgumentError, match="no option fills"):
        make_splitter("dynamic-key-coded", workers=3, fills=True)
