"""Pictures say what they were given."""

import sys

import pytest

from equipoise import (
    KIP,
    Histogram,
    InvalidArgumentError,
    MismatchError,
    MissingPackageError,
    Plan,
    StorageError,
    diff,
    uniform_plan,
)
from equipoise.pictures import batch_log_figure, require_picture, save


def row(batch, **fields):
    return {
        "batch": batch,
        "seconds": 1.5,
        "imbalance_rows": 1.2,
        "imbalance_seconds": 1.4,
        "bound": None,
        "state_bytes": 2_000_000,
        "applied": False,
    } | fields


def legend(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def heights(axes):
    """Height of the bars of each partition, together."""
    found = {}
    for bar in axes.patches:
        place = round(bar.get_x() + bar.get_width() / 2)
        found[place] = found.get(place, 0) + bar.get_height()
    return found


def test_a_plan_is_drawn_by_its_key_groups():
    plan = Plan(2, [0, 1, 0, 0], {7: 1, 9: 1})
    [axes] = plan.plot().axes
    assert heights(axes) == {0: 3, 1: 3}
    assert legend(axes) == ["tail groups", "isolated keys"]


def test_a_plan_is_drawn_by_its_load_where_that_is_known():
    plan = Plan(2, [0, 1, 0, 0], {7: 1})
    [axes] = plan.plot(Histogram([7, 1], [0.5, 0.1])).axes
    assert heights(axes) == pytest.approx({0: 30, 1: 70})
    assert set(legend(axes)) == {"tail groups", "isolated keys", "mean"}
    with pytest.raises(MismatchError, match="hash seed"):
        plan.plot(Histogram([7], [0.5], hash_seed=1))


def test_a_difference_is_drawn_by_what_comes_and_goes():
    plain = uniform_plan(4)
    found = diff(plain, KIP().plan(plain, Histogram([1, 2], [0.5, 0.1])))
    [axes] = found.plot().axes
    bars = [bar.get_height() for bar in axes.patches]
    assert sum(each for each in bars if each > 0) == -sum(each for each in bars if each < 0)
    assert sum(each for each in bars if each > 0) == len(found.groups) + len(found.keys)
    assert axes.get_title(loc="left") == str(found)
    [nothing] = diff(plain, plain).plot().axes
    assert len(nothing.get_xticks()) > 1


def test_a_history_is_drawn_with_its_plans_and_its_bound():
    rows = [row(0), row(1, applied=True, bound=1.1), row(2, bound=1.1)]
    times, balance, state = batch_log_figure(rows).axes
    assert [line.get_label() for line in balance.lines[:3]] == legend(balance)
    assert "bound: no plan can do better" in legend(balance)
    assert list(state.lines[0].get_ydata()) == [2, 2, 2]
    assert list(times.lines[1].get_xdata()) == [1.5, 1.5]
    assert len(batch_log_figure([]).axes) == 3


def test_a_picture_that_cannot_be_written_is_reported(tmp_path, monkeypatch):
    require_picture(str(tmp_path / "x.png"))
    with pytest.raises(InvalidArgumentError, match=r"use one of .*\.png"):
        require_picture(str(tmp_path / "x.txt"))
    with pytest.raises(InvalidArgumentError, match="create it first"):
        require_picture(str(tmp_path / "no" / "x.png"))
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(StorageError, match="choose another path"):
        save(batch_log_figure([row(0)]), str(tmp_path / "folder.png"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingPackageError, match=r"needs matplotlib, .*pip install '\.\[plot\]'"):
        require_picture("x.png")
