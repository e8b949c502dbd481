"""Keys whose candidates are those of the worked examples."""

import itertools

import pytest


@pytest.fixture
def keys_with():
    """Find, for each name, a fingerprint that the splitter gives the wanted candidates."""

    def find(candidates_of, wanted):
        found = {}
        for name, workers in wanted.items():
            found[name] = next(
                key
                for key in itertools.count(1)
                if key not in found.values() and candidates_of(key).tolist()[: len(workers)] == workers
            )
        return found

    return find


@pytest.fixture
def stream_of():
    """Spell a stream of one-letter keys."""
    return lambda keys, letters: [keys[letter] for letter in letters]
