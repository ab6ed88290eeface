"""Hashes the source code that decides a row's numbers: its component, its backends, and the measuring side.

Records are compared only if these hashes agree (bakeoff.record.comparable). Hashes are computed anew for each record,
since files may be edited while a sweep runs. Files are hashed by their names within their package, so a wheel and a
checkout of the same code agree. The hash of a user's own model is that of its description; each worker checks that its
file is still the one that was described.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from bakeoff.backends import backend_module, resolve_backend
from bakeoff.machine.files import sha256_of
from bakeoff.models import component_module, resolve_component
from bakeoff.models.brought.about import Source as UserSource
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import file_of
from bakeoff.models.pipelines import pipeline_modules
from bakeoff.record.schema import BackendSource, Source
from bakeoff.variant import Variant

_INSTRUMENT = ("bakeoff.worker", "bakeoff.process")
"""Packages that measure."""
_LAB = ("bakeoff", "bakeoff.backends", "bakeoff.models", "bakeoff.export")
"""Packages that a checkout keeps in folders of their own; a wheel has the last three inside the first."""
_ONLY_SHOW = ("report", "cli")
"""Parts of `bakeoff` that only show results."""
_DRAWN_BY = ("bakeoff.models.weights",)
"""Modules that decide weights but are imported by no component."""


def typed_backends(variant: Variant, source: Source | None) -> str:
    """Return a variant's backends as typed for a sweep; a user's own backend appears as package.module:ATTRIBUTE."""
    own = {each.name: each.reference for each in source.backends} if source is not None else {}
    return "+".join(str(use).replace(use.name, own.get(use.name, use.name), 1) for use in variant.backends)


def code_hash() -> str:
    """Return the hash of all code that determines numbers and statuses: everything except reports and commands."""
    named: dict[str, Path] = {}
    for package in _LAB:
        named |= {name: path for name, path in _files_of(package) if name.split("/")[1] not in _ONLY_SHOW}
    return _hash(named.items())


def instrument_hash() -> str:
    """Return the hash of the measuring side: the worker and the process that starts it."""
    return _hash(pair for package in _INSTRUMENT for pair in _files_of(package))


def component_hash(reference: str) -> str:
    """Return the hash of a component's code; `reference` is its name or package.module:SPEC.

    The hash covers the component's spec and network, what they import of bakeoff.models or of their own folder, and the
    code that draws its weights. Raises BakeoffError if a module cannot be found.
    """
    component = resolve_component(reference)
    if component.source_hash:
        return component.source_hash
    network = component.network
    return _hash(_closure([network, component_module(reference), *_DRAWN_BY], "bakeoff.models"))


def backend_source(reference: str) -> BackendSource:
    """Return a backend's name, file and hash; `reference` is its name or package.module:BACKEND.

    The hash covers the file and what it imports of bakeoff.backends or of its own folder. Raises BakeoffError if a
    module cannot be found.
    """
    module = backend_module(reference)
    name = resolve_backend(reference).name
    return BackendSource(name, reference, _module_file(module).name, _hash(_closure([module], "bakeoff.backends")))


def _files_of(package: str) -> Iterator[tuple[str, Path]]:
    """Yield (name, path) of every Python file of a package and its subpackages; names are independent of the layout."""
    spec = find_spec(package)
    prefix = package.replace(".", "/")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).rglob("*.py")):
            yield f"{prefix}/{path.relative_to(folder).as_posix()}", path


def _closure(modules: Iterable[str], shared: str) -> Iterator[tuple[str, Path]]:
    """Return (name, path) of `modules` and of all that they import of the package `shared` or of their own folder."""
    waiting, found = list(modules), dict[str, Path]()
    own = [module.rpartition(".")[0] for module in waiting]
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        path = found[module] = _module_file(module)
        for imported in imports(path, module):
            if imported.startswith(tuple(f"{package}." for package in (shared, *filter(None, own)))):
                waiting += [imported] if _exists(imported) else []
    return iter([(module.replace(".", "/"), path) for module, path in sorted(found.items())])


def imports(path: Path, module: str) -> Iterator[str]:
    """Yield the names of modules, or of attributes in them, that a file imports anywhere, including in functions.

    `module` is the file's own name, from which relative imports start. Raises SyntaxError if the file is not Python.
    """
    yield from _imported(path.read_bytes(), module if path.name == "__init__.py" else module.rpartition(".")[0])


@lru_cache(maxsize=1024)
def _imported(code: bytes, package: str) -> tuple[str, ...]:
    found: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found += (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*parents, *filter(None, [node.module])])
            found += (origin, *(f"{origin}.{name.name}" for name in node.names))
    return tuple(found)


def _exists(module: str) -> bool:
    """Return whether a module of this name exists, without importing its parent module to look for an attribute."""
    with suppress(BakeoffError):
        if _module_file(module.rpartition(".")[0]).name != "__init__.py":
            return False
    with suppress(BakeoffError):
        return bool(_module_file(module))
    return False


def _module_file(module: str) -> Path:
    try:
        parent = find_spec(module.rpartition(".")[0]) if "." in module else None
        # what is no package would be imported, only to say that no module is in it
        inside = parent is None or parent.submodule_search_locations is not None
        spec = find_spec(module) if inside else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise BakeoffError(f"the module '{module}' cannot be found; was it moved or renamed?", code="bad-user-code")
    return Path(spec.origin)


def _hash(named: Iterable[tuple[str, Path]]) -> str:
    """Return a hash of files and their names; a file that is found under two names counts once, under the longer
    one."""
    by_path: dict[Path, str] = {}
    for name, path in named:
        resolved = path.resolve()
        by_path[resolved] = max(by_path.get(resolved, ""), name, key=len)
    return _content_hash(sorted((name, path) for path, name in by_path.items()))[:12]


def check_unchanged(name: str, source: UserSource) -> None:
    """Check that a user's Python file or archive is still the one that was described; raise BakeoffError if it is not.

    A live module's folder is in the cache, where nobody edits it, and is not checked.
    """
    path = Path(source.path)
    if source.kind == "live":
        return
    found = file_hash(path) if source.kind == "function" else archive_hash(path)
    if found != source.hash:
        asked = f"{path.name}:{source.function}" if source.function else path.name
        text = f"{name}: {path.name}, or a file that it imports, was changed after it was described; name it as {asked}"
        raise BakeoffError(text, "bad-user-code")


def file_hash(path: Path) -> str:
    """Return the hash of a Python file and of what it imports of its own folder."""
    return _content_hash(code_of(path))


def pipeline_hash(reference: str) -> str:
    """Return the hash of a pipeline's code; `reference` is its name, FILE.py:CLASS or package.module:CLASS.

    The hash covers the pipeline's files and what they import of bakeoff.models or of their own folder. Raises
    BakeoffError if a file or module cannot be found.
    """
    file, _, _ = reference.rpartition(":")
    if file.endswith(".py"):
        return file_hash(file_of(file))
    return _hash(_closure(pipeline_modules(reference), "bakeoff.models"))


def archive_hash(path: Path) -> str:
    """Return the hash of an exported program's file."""
    return _content_hash([("", path)])


def content_hash(folder: Path) -> str:
    """Return the hash of the files in a live module's folder."""
    return _content_hash([(path.name, path) for path in sorted(folder.iterdir()) if path.is_file()])


def code_of(path: Path) -> Iterator[tuple[str, Path]]:
    """Return (name, path) of a Python file and of what it imports of its own folder.

    Raises BakeoffError if a file cannot be read or is not Python.
    """
    waiting, found = [path], dict[Path, str]()
    while waiting:
        file = waiting.pop()
        if file in found:
            continue
        found[file] = file.relative_to(path.parent).as_posix()
        try:
            names = list(imports(file, ".".join(file.relative_to(path.parent).with_suffix("").parts)))
        except OSError as error:
            raise BakeoffError(f"{file}: {error.strerror}; make it readable", "bad-user-code") from error
        except SyntaxError as error:
            raise BakeoffError(f"{file.name}, line {error.lineno}: {error.msg}; correct it", "bad-user-code") from error
        for name in names:
            place = path.parent.joinpath(*name.split("."))
            waiting += [one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()]
    return iter(sorted((name, file) for file, name in found.items()))


def _content_hash(files: Iterable[tuple[str, Path]]) -> str:
    digest = hashlib.sha256()
    for name, path in files:
        try:
            digest.update(f"{name} {sha256_of(path)}\n".encode())
        except OSError as error:
            raise BakeoffError(f"{path}: {error.strerror}; make it readable", "bad-user-code") from error
    return digest.hexdigest()[:16]
