"""Kernels: functions that numba compiles when they are first called.

``@kernel`` replaces ``@numba.njit(cache=True)``. It differs in two ways:

- Importing a module with kernels does not import numba. The first call of a kernel imports numba, makes numba's
  dispatchers of the kernel and of every kernel it calls, and replaces the kernels by the dispatchers in their modules.
  From the second call on, a module calls numba's dispatcher directly.
- The compiled code is cached on disk if numba finds a writable folder: ``NUMBA_CACHE_DIR``, ``__pycache__`` beside the
  source, or the user's cache folder. Without one, as in YARN containers with a read-only installation and no home, the
  kernel is compiled in memory once in each process.

A kernel calls another kernel by its global name. numba's own settings apply: with ``NUMBA_DISABLE_JIT=1`` kernels run
as plain Python.
"""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import update_wrapper
from pickle import PickleError
from threading import RLock
from types import CodeType, FunctionType
from typing import Any, Literal, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])

_making = RLock()
"""Held while dispatchers are made; compiling happens later, under numba's own lock."""


class Kernel:
    """Function whose numba dispatcher is made on the first call.

    Parameters
    ----------
    function
        Function to compile.
    options
        Options of ``numba.njit``.
    """

    __name__: str
    __qualname__: str

    def __init__(self, function: FunctionType, options: dict[str, Any]) -> None:
        update_wrapper(self, function)
        self.py_func = function
        """The plain Python function; numba's dispatcher has an attribute of the same name."""
        self._options = options
        self._dispatcher: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the compiled function; the calling module calls it directly from then on."""
        dispatcher = self._dispatcher or self.dispatcher()
        _rebind(sys._getframe(1).f_globals, self, dispatcher)  # noqa: SLF001 - documented in spite of its name
        return dispatcher(*args, **kwargs)

    def dispatcher(self) -> Callable[..., Any]:
        """Return numba's dispatcher, or with ``NUMBA_DISABLE_JIT=1`` a plain function; make it if it is missing."""
        with _making:
            made: dict[Kernel, Callable[..., Any]] = {}
            dispatcher = self._make(made)
            # other threads see a dispatcher only now, when all that it calls has one
            for each, its_dispatcher in made.items():
                each._dispatcher = its_dispatcher  # noqa: SLF001 - of this class
                _rebind(each.py_func.__globals__, each, its_dispatcher)
            return dispatcher

    def _make(self, made: "dict[Kernel, Callable[..., Any]]") -> Callable[..., Any]:
        """Return the dispatcher; add it to ``made`` if it is new, and so for each kernel that this one calls."""
        known = self._dispatcher or made.get(self)
        if known is not None:
            return known
        function = self.py_func
        # numba compiles a copy, whose globals have dispatchers in place of kernels
        namespace = dict(function.__globals__)
        copied = FunctionType(
            function.__code__, namespace, function.__name__, function.__defaults__, function.__closure__
        )
        copied.__kwdefaults__ = function.__kwdefaults__
        copied.__module__, copied.__qualname__, copied.__doc__ = self.__module__, self.__qualname__, self.__doc__
        made[self] = dispatcher = _new_dispatcher(copied, self._options)
        for name in _names(function.__code__):
            called = namespace.get(name)
            if isinstance(called, Kernel):
                namespace[name] = called._make(made)
        return dispatcher

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle a kernel of a module by its name, any other by its function."""
        module, name = self.__module__, self.__qualname__
        found = getattr(sys.modules.get(module), name, None)
        if module != "__main__" and (found is self or (found is not None and found is self._dispatcher)):
            return _find, (module, name)
        return Kernel, (self.py_func, self._options)

    def __repr__(self) -> str:
        return f"<kernel {self.__module__}.{self.__qualname__}>"


@overload
def kernel(function: F, /) -> F: ...


@overload
def kernel(
    *, inline: Literal["never", "always"] = "never", nogil: bool = False, parallel: bool = False
) -> Callable[[F], F]: ...


def kernel(
    function: Callable[..., Any] | None = None,
    /,
    *,
    inline: Literal["never", "always"] = "never",
    nogil: bool = False,
    parallel: bool = False,
) -> Any:
    """Compile a function with numba, in nopython mode, when it is first called.

    Parameters
    ----------
    function
        The function, if the decorator is used without options.
    inline
        ``"always"``: numba copies the function into the kernels that call it.
    nogil
        Release Python's global lock while it runs.
    parallel
        Run array expressions and ``numba.prange`` on several threads.

    Examples
    --------
    >>> @kernel
    ... def twice(x):
    ...     return 2 * x
    >>> twice(21)
    42
    """
    options = {"inline": inline, "nogil": nogil, "parallel": parallel}

    def decorated(plain: Callable[..., Any]) -> Kernel:
        if not isinstance(plain, FunctionType):
            raise TypeError(f"@kernel expects a function written in Python, got {plain!r}")
        return Kernel(plain, options)

    return decorated if function is None else decorated(function)


def _rebind(namespace: dict[str, Any], stub: Kernel, dispatcher: Callable[..., Any]) -> None:
    """Put the dispatcher where a module has the kernel under its name."""
    if namespace.get(stub.__name__) is stub:
        namespace[stub.__name__] = dispatcher


def _names(code: CodeType) -> Iterator[str]:
    """Names of the globals that code refers to, with those of the comprehensions and functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _find(module: str, name: str) -> Any:
    """Find a kernel that was pickled by name."""
    return getattr(importlib.import_module(module), name)


def _new_dispatcher(function: FunctionType, options: dict[str, Any]) -> Callable[..., Any]:
    """Make numba's dispatcher, with a cache on disk if there is a place for one."""
    from numba import njit  # noqa: PLC0415 - takes longer than all other imports together

    dispatcher: Any = njit(**options)(function)
    if isinstance(dispatcher, FunctionType):  # NUMBA_DISABLE_JIT=1
        return dispatcher
    try:
        dispatcher.enable_caching()
    except (RuntimeError, OSError, ValueError):  # no locator available; its folder went away; a strange archive
        return dispatcher  # type: ignore[no-any-return]
    dispatcher._cache = _OptionalCache(dispatcher._cache)  # noqa: SLF001 - numba has no other way to name a cache
    return dispatcher  # type: ignore[no-any-return]


_CACHE_ERRORS = (OSError, EOFError, PickleError)
"""A file cannot be read or written, or an index ends early or is damaged; numba reads the index to save, too."""


class _OptionalCache:
    """numba's cache on disk of one function, which compiles instead of raising when it cannot read or write.

    numba checks once, when the dispatcher is made, that the folder can be written to. The folder can be lost later: a
    full disk, a file system that is mounted read-only, an archive whose cache is in a home that does not exist.
    """

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, signature: Any, target: Any) -> Any:
        """Load compiled code; ``None`` if there is none that can be read."""
        with suppress(*_CACHE_ERRORS):
            return self._cache.load_overload(signature, target)
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Save compiled code if it can be written."""
        with suppress(*_CACHE_ERRORS):
            self._cache.save_overload(signature, compiled)
