"""Whether code has changed: a digest of a module and of all modules of library and laboratory that it imports."""

import ast
from collections.abc import Iterator
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("equipoise", "equipoise_lab")


@cache
def digest(module: str) -> str:
    """Digest of the sources that a module is made of, the modules that it imports included.

    Parameters
    ----------
    module
        Full name of a module of the library or the laboratory.
    """
    found: dict[str, bytes] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        if name in found:
            continue
        source = _source(name)
        if source is None:
            continue
        found[name] = source
        pending += _imported_by(name)
    whole = sha256()
    for name in sorted(found):
        whole.update(name.encode() + b"\0" + found[name] + b"\0")
    return whole.hexdigest()[:16]


@cache
def _source(name: str) -> bytes | None:
    """Text of a module; ``None`` for a name that has no file."""
    path = _file(name)
    return None if path is None else path.read_bytes()


@cache
def _imported_by(name: str) -> tuple[str, ...]:
    return tuple(_imports(ast.parse(_source(name) or b"")))


def _imports(tree: ast.AST) -> Iterator[str]:
    """Modules of both packages that a module imports anywhere; other names are filtered out later."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name.split(".")[0] in _PACKAGES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in _PACKAGES:
            yield str(node.module)
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _file(name: str) -> Path | None:
    """File of a module; ``None`` for a name inside a module, and for the packages themselves, which only list names."""
    if name in _PACKAGES:
        return None
    try:
        spec = find_spec(name)
    except ModuleNotFoundError:  # a class or function of a module that is no package
        return None
    return Path(spec.origin) if spec is not None and spec.origin is not None else None
