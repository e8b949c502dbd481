"""Schemas given as text are read without a session, and as Spark reads them."""

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from equipoise import InvalidArgumentError
from equipoise.spark.rows.ddl import parse_ddl

READ = [
    "",
    "n long",
    "n: long, `a b` string",
    "`odd ``name` INT NOT NULL COMMENT 'it\\'s odd', other double",
    "a tinyint, b smallint, c bigint, d byte, e short, f integer, g real, h float, i boolean",
    "a binary, b date, c timestamp, d timestamp_ntz, e timestamp_ltz, f void",
    "a decimal, b decimal(5), c dec(7, 2), d numeric(38,18), e char(3), f varchar(9)",
    "a array<struct<b: int, c map<string, array<date>>>>, d struct<>",
    "a struct<b int not null comment 'x', c: string>",
    "a interval day to second, b interval hour, c interval minute to second",
    "date date, timestamp timestamp, comment string",
    "int",
    "decimal(9,2)",
    "array<array<int>>",
    "struct<a:int,b:string>",
]
REFUSED = [
    "n",
    "n long,",
    "n long m int",
    "n lang",
    "n decimal(1,2,3)",
    "n decimal(39,2)",
    "n decimal(5,7)",
    "n interval second to day",
    "n interval day to day",
    "n array<int",
    "n varchar",
    "n interval to",
    "\u00a7 int",
]


@pytest.mark.parametrize("text", READ)
def test_text_is_read_as_spark_reads_it(spark, text):  # noqa: ARG001 - Spark's parser needs the session
    found = StructType.fromDDL(text)
    expected = found if isinstance(found, StructType) else StructType().add("value", found)
    assert parse_ddl(text).jsonValue() == expected.jsonValue()


@pytest.mark.parametrize("text", REFUSED)
def test_text_that_spark_refuses_is_refused_with_the_reason(text):
    with pytest.raises(InvalidArgumentError, match=r"cannot be read without a Spark session: expected .*, got "):
        parse_ddl(text)


@pytest.mark.parametrize("text", ["n string collate UTF8_LCASE", "n interval year to month", "n variant", "n time(6)"])
def test_types_that_need_a_session_are_refused_with_the_way_out(text):
    with pytest.raises(InvalidArgumentError, match="or start a session first"):
        parse_ddl(text)


def test_text_of_one_column_names_it():
    assert parse_ddl("host string, n long") == StructType(
        [StructField("host", StringType()), StructField("n", LongType())]
    )
