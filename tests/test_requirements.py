import sys

import pytest

from equipoise import SparkUnavailableError
from equipoise.requirements import java_version, require_java, require_pyspark


def fake_java(folder, answer):
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!{sys.executable}\nimport sys\nprint({answer!r}, file=sys.stderr)\n", encoding="utf-8")
    java.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("answer", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_202"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("nothing of the kind", None),
    ],
)
def test_the_major_version_of_java_is_read(answer, major, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, answer)))
    assert java_version() == major


def test_without_java_one_sentence_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match=r"needs Java 17 or newer, but no Java was found; install it with:"):
        require_java()


def test_an_old_java_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path, 'java version "11.0.2"')))
    with pytest.raises(SparkUnavailableError, match="Java 11 was found; install"):
        require_java()


def test_a_java_home_that_leads_nowhere_counts_as_no_java(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(SparkUnavailableError, match="no Java was found"):
        require_java()


def test_without_pyspark_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("equipoise.requirements.find_spec", lambda _: None)
    with pytest.raises(SparkUnavailableError, match=r"needs pyspark, .*pip install '\.\[spark\]'"):
        require_pyspark()


def test_an_old_spark_is_named_before_it_is_imported(monkeypatch):
    monkeypatch.setattr("equipoise.requirements.version_of", lambda _: "3.5.1")
    with pytest.raises(SparkUnavailableError, match=r"Spark 3.5.1 cannot place rows.*4.1 or newer"):
        require_pyspark()
