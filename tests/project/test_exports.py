"""What is exported exists, is documented, and is all there is."""

import importlib
import inspect

import pytest

import equipoise
from equipoise import errors, plan, sketch
from equipoise.plan import PLANNERS, Planner, make_planner
from equipoise.sketch import Sketch
from equipoise_lab import bench

PACKAGES = ["equipoise", *(f"equipoise.{name}" for name in ("plan", "sketch", "checks", "dashboard"))]
PACKAGES += ["equipoise_lab.bench", "equipoise_lab.variants"]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_exported_name_exists_once_and_is_documented(name):
    module = importlib.import_module(name)
    assert len(set(module.__all__)) == len(module.__all__)
    for exported in module.__all__:
        value = getattr(module, exported)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name}.{exported} has no docstring"


def test_every_error_is_exported_under_the_one_root():
    classes = [v for v in vars(errors).values() if inspect.isclass(v) and v.__module__ == errors.__name__]
    assert all(issubclass(each, equipoise.EquipoiseError) for each in classes)
    assert {each.__name__ for each in classes} <= set(equipoise.__all__)
    assert len({each.code for each in classes}) == len(classes)
    tree = errors.__doc__ or ""
    assert all(each.__name__ in tree for each in classes)


@pytest.mark.parametrize(
    "method",
    [v for v in vars(plan).values() if inspect.isclass(v) and issubclass(v, Planner) and v is not Planner]
    + [v for v in vars(sketch).values() if inspect.isclass(v) and issubclass(v, Sketch) and v is not Sketch],
)
def test_every_method_states_its_guarantees_and_how_it_differs_from_its_paper(method):
    doc = inspect.getdoc(method) or ""
    assert "Guarantees\n---" in doc
    assert "Differs from the paper\n---" in doc


def test_every_planner_can_be_made_by_its_name():
    exported = {v for v in vars(plan).values() if inspect.isclass(v) and issubclass(v, Planner) and v is not Planner}
    assert set(PLANNERS.values()) == exported
    for name in PLANNERS:
        assert make_planner(name).name == name
    with pytest.raises(equipoise.InvalidArgumentError, match="kip"):
        make_planner("no such planner")
    with pytest.raises(equipoise.InvalidArgumentError, match="no option lam; it has histogram_scale, slack"):
        make_planner("kip", lam=2)


def test_every_benchmark_has_a_summary_and_can_be_run():
    for name in bench.BENCHMARKS:
        assert bench.summary(name)
        assert callable(bench.benchmark(name).run)
