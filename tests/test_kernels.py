import importlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import numba
import pytest

import equipoise
from equipoise import kernels
from equipoise.kernels import Kernel, kernel

LOW = """
from equipoise.kernels import kernel

STEP = 1

@kernel(inline="always")
def step(x):
    return x + STEP

@kernel(nogil=True)
def double(x):
    return 2 * x
"""
HIGH = """
from kernels_low import double, step
from equipoise.kernels import kernel

@kernel
def both(x):
    return double(step(x))

@kernel
def all_of(n):
    return sum([both(i) for i in range(n)])

@kernel
def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)

@kernel
def even(n):
    if n == 0:
        return True
    return odd(n - 1)

@kernel
def odd(n):
    if n == 0:
        return False
    return even(n - 1)

def in_python(x):
    return double(x)
"""


@pytest.fixture
def sources(tmp_path):
    """A folder with two modules, the second of which calls kernels of the first."""
    (tmp_path / "kernels_low.py").write_text(LOW)
    (tmp_path / "kernels_high.py").write_text(HIGH)
    return tmp_path


@pytest.fixture
def modules(sources, monkeypatch):
    """The two modules, newly imported."""
    monkeypatch.syspath_prepend(sources)
    for name in ("kernels_low", "kernels_high"):
        monkeypatch.setitem(sys.modules, name, None)  # forgotten afterwards
        del sys.modules[name]
    return importlib.import_module("kernels_low"), importlib.import_module("kernels_high")


def run(code, **variables):
    """Standard output of a program in a new interpreter; a variable that is None is unset."""
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    for name in [name for name, value in variables.items() if value is None]:
        del environment[name]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False, env=environment
    )


def output(code, **variables):
    result = run(code, **variables)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def test_kernels_call_kernels_of_their_own_and_of_other_modules(modules):
    _, high = modules
    assert high.both(3) == 8
    assert high.both(0.5) == 3.0
    assert high.all_of(3) == 2 + 4 + 6


def test_kernels_call_themselves_and_each_other(modules):
    _, high = modules
    assert high.factorial(5) == 120
    assert high.even(10)
    assert not high.odd(10)


def test_after_the_first_call_modules_call_the_dispatcher_of_numba(modules):
    low, high = modules
    assert isinstance(high.both, Kernel)
    high.both(1)
    assert numba.extending.is_jitted(high.both)
    assert numba.extending.is_jitted(low.double)
    assert isinstance(high.double, Kernel)
    high.in_python(1)
    assert high.double is low.double


def test_a_kernel_that_is_put_back_into_its_module_is_still_compiled_for_new_types(modules):
    low, high = modules
    stubs = low.step, low.double, high.both
    assert high.both(1) == 4
    low.step, low.double, high.both = high.step, high.double, _ = stubs
    assert high.both(1.5) == 5.0


def test_a_first_call_that_fails_can_be_repeated(modules, monkeypatch):
    _, high = modules
    made = kernels._new_dispatcher

    def interrupted(function, options):
        if function.__name__ == "double":
            raise ImportError("numba is being installed")
        return made(function, options)

    with monkeypatch.context() as patched:
        patched.setattr(kernels, "_new_dispatcher", interrupted)
        with pytest.raises(ImportError, match="being installed"):
            high.both(1)
    assert high.both(1) == 4


def test_a_kernel_has_the_name_and_signature_of_its_function(modules):
    low, _ = modules
    assert (low.double.__name__, low.double.__module__) == ("double", "kernels_low")
    assert low.double.py_func(4) == 8
    assert repr(low.double) == "<kernel kernels_low.double>"
    low.double(1)
    assert low.double.py_func(4) == 8  # numba's dispatcher has it too


def test_only_a_function_can_be_a_kernel():
    with pytest.raises(TypeError, match="expects a function"):
        kernel(len)


def test_kernels_are_pickled_by_name_before_and_after_they_are_compiled(modules):
    low, _ = modules
    stub = low.double
    assert pickle.loads(pickle.dumps(stub)) is stub  # noqa: S301 - our own
    stub(1)
    assert pickle.loads(pickle.dumps(stub)) is low.double  # noqa: S301 - our own
    assert len(pickle.dumps(stub)) < 200


@pytest.mark.parametrize("first", ["pass", "task(1)"], ids=["not yet compiled", "compiled"])
def test_functions_that_refer_to_kernels_can_be_sent_to_another_process(sources, first):
    pytest.importorskip("pyspark.cloudpickle")
    program = f"""
        import sys
        from pyspark import cloudpickle
        from kernels_high import both
        from equipoise.kernels import kernel

        @kernel
        def own(x):
            return both(x) + 1

        def task(x):
            return own(x) + both(x)

        {first}
        sys.stdout.write(cloudpickle.dumps(task).hex())
    """
    path = os.pathsep.join([str(sources), os.environ.get("PYTHONPATH", "")])
    sent = output(program, PYTHONPATH=path)
    received = f"from pyspark import cloudpickle; print(cloudpickle.loads(bytes.fromhex('{sent}'))(1))"
    assert output(received, PYTHONPATH=path) == "9\n"


def test_kernels_run_as_plain_python_if_compiling_is_disabled(sources):
    path = os.pathsep.join([str(sources), os.environ.get("PYTHONPATH", "")])
    program = "import kernels_high as k; print(k.all_of(3), k.in_python('a'), type(k.all_of).__name__)"
    assert output(program, PYTHONPATH=path, NUMBA_DISABLE_JIT=1) == "12 aa function\n"


def test_threads_that_race_for_the_first_call_all_get_the_result():
    program = """
        import sys
        from concurrent.futures import ThreadPoolExecutor
        from threading import Barrier

        import equipoise
        from equipoise import kernels
        from equipoise.split import PartialKey

        made, make = [], kernels._new_dispatcher

        def counted(function, options):
            made.append(function.__module__ + "." + function.__name__)
            return make(function, options)

        kernels._new_dispatcher = counted
        sys.setswitchinterval(1e-6)
        start = Barrier(8)

        def first_call(number):
            start.wait()
            if number % 2:
                return PartialKey(8).route([1, 2, 3]).tolist()
            return equipoise.fingerprints([1, 2, 3]).tolist()

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(first_call, range(8)))
        assert all(result == results[number % 2] for number, result in enumerate(results)), results
        assert len(made) == len(set(made)), made
        print(results[0][0])
    """
    assert int(output(program)) == equipoise.fingerprint(1)


# Tests may run as root, whom no permission stops. A regular file where a folder should be stops everybody.
NOWHERE = {
    "HOME": "/dev/null/home",
    "XDG_CACHE_HOME": "/dev/null/cache",
    "TMPDIR": "/dev/null/temporary",
    "PYTHONDONTWRITEBYTECODE": "1",
}
AS_BEFORE = """
import numba

@numba.njit(cache=True)
def rotate(x):
    return x << 1
"""
WORK = """
import json
import equipoise
from equipoise.plan import Plan
from equipoise.sketch import DriftHistogram, SpaceSaving
from equipoise.split import PartialKey

keys = equipoise.fingerprints(["a", "b", "a", None, "c", "a"], [1, 2, 1, 4, 5, 1])
sketch = SpaceSaving(2)
sketch.update_many(keys)
drift = DriftHistogram(4)
drift.update_many(keys)
plan = Plan(3, [0, 1, 2, 0], {int(keys[0]): 2})
work = {
    "fingerprints": keys.tolist(),
    "sketch": [each.tolist() for each in sketch.entries()],
    "drift": drift.to_bytes().hex(),
    "plan": plan.assign(keys).tolist(),
    "route": PartialKey(4).route(keys).tolist(),
}
"""


@pytest.fixture(scope="module")
def ordinary_work():
    """The results of an ordinary process."""
    namespace = {}
    exec(WORK, namespace)  # noqa: S102 - our own
    return namespace["work"]


@pytest.fixture(scope="module")
def read_only(tmp_path_factory):
    """A copy of the package in which nobody can make a folder for caches."""
    root = tmp_path_factory.mktemp("read_only")
    shutil.copytree(
        Path(equipoise.__file__).parent, root / "equipoise", ignore=shutil.ignore_patterns("__pycache__", "*.nb?")
    )
    (root / "as_before.py").write_text(AS_BEFORE)
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        (folder / "__pycache__").touch()
    return root


def test_a_cached_function_of_numba_cannot_even_be_defined_there(read_only):
    result = run("import as_before", PYTHONPATH=read_only, NUMBA_CACHE_DIR=None, **NOWHERE)
    assert "cannot cache function 'rotate': no locator available" in result.stderr


@pytest.mark.parametrize("numba_cache", [None, "/dev/null/numba"], ids=["no folder named", "the named folder is none"])
def test_kernels_compile_in_memory_where_no_cache_can_be_written(read_only, numba_cache, ordinary_work):
    before = sorted(read_only.rglob("*"))
    printed = output(
        WORK + "print(json.dumps([equipoise.__file__, equipoise.hashing._fold_longs.stats.cache_path, work]))",
        PYTHONPATH=read_only,
        NUMBA_CACHE_DIR=numba_cache,
        **NOWHERE,
    )
    package, cache, work = json.loads(printed)
    assert Path(package).is_relative_to(read_only)
    assert cache is None
    assert work == ordinary_work
    assert sorted(read_only.rglob("*")) == before


def test_kernels_of_a_package_in_an_archive_compile_in_memory_without_a_home(read_only, ordinary_work, tmp_path):
    archive = tmp_path / "packages.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in read_only.rglob("*.py"):
            packed.write(path, path.relative_to(read_only))
    settings = {"PYTHONPATH": archive, "NUMBA_CACHE_DIR": None, **NOWHERE}
    assert "NotADirectoryError" in run("import as_before; as_before.rotate(1)", **settings).stderr
    program = "import equipoise; print(equipoise.fingerprint('a', 1), equipoise.__file__)"
    first, package = output(program, **settings).split()
    assert int(first) == ordinary_work["fingerprints"][0]
    assert package.startswith(str(archive))


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.core.config, "CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_compiled_kernels_are_cached_where_numba_can_write(cache_folder, modules):
    _, high = modules
    high.both(1)
    assert {path.name.split("-")[0] for path in cache_folder.rglob("*.nbc")} == {
        "kernels_high.both",
        "kernels_low.double",
    }
    again = Kernel(high.both.py_func, {}).dispatcher()
    again(1)
    assert sum(again.stats.cache_hits.values()) == 1


def lose_the_folder(cache):
    shutil.rmtree(cache)
    cache.touch()


def lose_the_index(cache):
    index = next(cache.rglob("*.nbi"))
    index.unlink()
    index.mkdir()


def cut_the_index(cache):
    next(cache.rglob("*.nbi")).write_bytes(b"")


def spoil_the_index(cache):
    next(cache.rglob("*.nbi")).write_bytes(b"not a pickle")


@pytest.mark.parametrize("damage", [lose_the_folder, lose_the_index, cut_the_index, spoil_the_index])
def test_a_cache_that_is_lost_later_is_done_without(cache_folder, modules, damage):
    low, _ = modules
    assert low.double(1) == 2
    damage(cache_folder)
    assert low.double(1.5) == 3.0
    assert low.double(1) == 2
