"""Fingerprints are Spark's ``xxhash64``; the expected values were computed by Spark 4.3.0."""

import numpy as np
import pytest

from equipoise import EquipoiseError
from equipoise.hashing import as_fingerprints, fingerprint, fingerprints, seeded_hashes

SPARK = [
    (("spark",), -1960931134668248110),
    (("storm",), -2928557970922724523),
    ((None,), 42),
    ((1,), -7001672635703045582),
    ((-7,), -1663473129717591079),
    ((True,), -6698625589789238999),
    ((1.5,), 7738255526519901366),
    ((-0.0,), -5252525462095825812),
    ((0.0,), -5252525462095825812),
    ((float("nan"),), -3127944061524951246),
    (("12345678",), 6863040065134489090),
    (("123456789012",), 1549582498302756521),
    (("a longer key than thirty-two bytes: é, ü and 中",), -3090466977300960116),
    ((b"\x00\xff\x10",), 5415089035989094387),
    ((1, "a"), -8527884376001292090),
    (("", 2), -7486599280499414272),
    ((None, 5), 6251837290343458373),
]


@pytest.mark.parametrize(("key", "expected"), SPARK, ids=[repr(key) for key, _ in SPARK])
def test_a_key_has_the_fingerprint_that_spark_gives_it(key, expected):
    assert fingerprint(*key) == expected


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([3], np.int32), 6258084186791473711),
        (np.array([-5], np.int16), 9201179564109417620),
        (np.array([0.25], np.float32), 4699417962019191693),
        (np.array(["spark"]), -1960931134668248110),
        (np.array([True]), -6698625589789238999),
    ],
)
def test_a_numpy_column_is_hashed_as_the_spark_type_of_its_width(array, expected):
    assert fingerprints(array).tolist() == [expected]


def test_seeded_hashes_are_what_spark_gives_for_the_seed_and_the_value_as_two_columns():
    assert seeded_hashes([123], 7).tolist() == [-5501790610576006562]
    assert fingerprints(np.array([7]), np.array([123])).tolist() == seeded_hashes([123], 7).tolist()


def test_rows_are_hashed_alike_alone_and_together():
    names, numbers = ["a", None, "ccc", ""], [1, 2, None, 4]
    together = fingerprints(names, numbers).tolist()
    assert together == [fingerprint(*row) for row in zip(names, numbers, strict=True)]


def test_null_is_a_key_like_any_other():
    column = fingerprints(["a", None, None])
    assert column[1] == column[2] != column[0]


def test_all_nans_are_one_key():
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    assert fingerprints(odd).tolist() == [fingerprint(float("nan"))] * 2


def test_values_of_numpy_and_of_other_byte_orders_are_the_same_keys():
    assert fingerprint(np.int64(1)) == fingerprint(1)
    assert fingerprints([np.str_("a"), None]).tolist() == fingerprints(["a", None]).tolist()
    assert fingerprints(np.array([1, 2], ">i8")).tolist() == fingerprints([1, 2]).tolist()


def test_an_empty_column_has_no_fingerprints():
    assert fingerprints([]).tolist() == []
    assert as_fingerprints([]).dtype == np.int64


@pytest.mark.parametrize(
    ("call", "part_of_message"),
    [
        (fingerprints, "at least one"),
        (lambda: fingerprints([1, 2], ["a"]), "different lengths"),
        (lambda: fingerprints([1, "a"]), "int, str"),
        (lambda: fingerprints([{"a": 1}]), "got dict"),
        (lambda: fingerprints([2**70]), "pass it as str"),
        (lambda: fingerprints(np.array([1 + 2j])), "complex"),
        (lambda: fingerprints(np.array([1], np.uint64)), "uint64"),
        (lambda: fingerprints("spark"), "use fingerprint() for one key"),
        (lambda: fingerprints(5), "a list of values"),
        (lambda: fingerprints(np.zeros((2, 2))), "pass one argument per column"),
        (lambda: fingerprints(["\ud800"]), "not valid Unicode"),
        (lambda: fingerprints([1], seed=0.5), "seed must be a whole number"),
        (lambda: as_fingerprints([0.5]), "fingerprints(column)"),
        (lambda: as_fingerprints([[1], [2]]), "one-dimensional"),
    ],
)
def test_a_key_that_cannot_be_hashed_is_refused_with_a_reason(call, part_of_message):
    with pytest.raises(EquipoiseError) as caught:
        call()
    assert part_of_message in str(caught.value)


def test_unsigned_fingerprints_are_taken_bit_for_bit():
    assert as_fingerprints(np.array([2**64 - 1], np.uint64)).tolist() == [-1]
