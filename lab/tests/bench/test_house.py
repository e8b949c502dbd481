"""The figures of the house are those of the files."""

from equipoise_lab.bench import Context, house, run


def test_all_figures_of_the_house_are_measured():
    metrics = run("house", Context(quick=True)).metrics
    assert set(metrics) == {
        "library_lines", "lab_lines", "modules_over_500", "readme_words", "wheel_kib", "import_ms", "import_modules",
        "balance_import_ms", "balance_import_modules",
    }  # fmt: skip
    assert all(value > 0 for name, value in metrics.items() if name != "modules_over_500")
    assert metrics["import_modules"] < metrics["balance_import_modules"]


def test_lines_are_counted_for_each_python_file(tmp_path):
    package = tmp_path / "package"
    (package / "inner").mkdir(parents=True)
    (package / "one.py").write_text("a = 1\n\nb = 2\n", encoding="utf-8")
    (package / "inner" / "two.py").write_text("c = 3", encoding="utf-8")
    (package / "page.html").write_text("not\ncounted\n", encoding="utf-8")
    assert house.line_counts(package) == {"package/inner/two.py": 1, "package/one.py": 3}


def test_an_import_is_measured_in_a_fresh_interpreter():
    ms, modules = house.import_cost("import json, equipoise_lab")
    assert ms > 0
    assert modules > 1
    assert house.import_cost("pass")[1] == 0
