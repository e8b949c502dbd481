"""Every splitter can be made by its name and says what it promises."""

import inspect

import pytest

from equipoise import split
from equipoise.errors import InvalidArgumentError
from equipoise.split import SPLITTERS, Splitter, make_splitter

EXPORTED = {v for v in vars(split).values() if inspect.isclass(v) and issubclass(v, Splitter) and v is not Splitter}


def test_every_exported_splitter_is_registered_under_its_name():
    assert set(SPLITTERS.values()) == EXPORTED
    for name in SPLITTERS:
        assert make_splitter(name, workers=3).name == name


@pytest.mark.parametrize("kind", sorted(EXPORTED, key=lambda each: each.name))
def test_every_splitter_states_its_guarantees_and_how_it_differs_from_its_paper(kind):
    doc = inspect.getdoc(kind) or ""
    for section in ("Guarantees", "Differs from the paper", "Parameters", "References", "Examples"):
        assert f"{section}\n---" in doc
    for parameter in inspect.signature(kind).parameters:
        assert parameter in doc.split("Parameters\n", 1)[1]


@pytest.mark.parametrize("name", split.__all__)
def test_every_exported_name_exists_and_is_documented(name):
    value = getattr(split, name)
    assert not callable(value) or inspect.getdoc(value)


def test_an_unknown_splitter_or_option_is_answered_with_those_there_are():
    with pytest.raises(InvalidArgumentError, match="partial-key"):
        make_splitter("pkg", workers=3)
    with pytest.raises(InvalidArgumentError, match="no option width; it has workers, choices, seed"):
        make_splitter("partial-key", workers=3, width=2)
    with pytest.raises(InvalidArgumentError, match="workers="):
        make_splitter("partial-key")
