"""Hashes of the code of users' own models, by which a change since their description is found."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from bakeoff.models.brought.about import Source
from bakeoff.models.errors import BakeoffError
from bakeoff.models.lookup import file_of
from bakeoff.record.source import imports, loop_hash


def check_unchanged(name: str, source: Source) -> None:
    """Raises BakeoffError where the file of a function, or an archive, is another one than was described.

    A live module's folder lies in the cache, where nobody edits it.
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
    """Of a Python file and what it imports of its own folder."""
    return _hash(_code(path))


def pipeline_hash(reference: str) -> str:
    """Of a pipeline by its name, FILE.py:CLASS or package.module:CLASS.

    Raises BakeoffError when a file or module cannot be found.
    """
    file, _, _ = reference.rpartition(":")
    return file_hash(file_of(file)) if file.endswith(".py") else loop_hash(reference)


def archive_hash(path: Path) -> str:
    """Of an exported program."""
    return _hash([("", path)])


def content_hash(folder: Path) -> str:
    """Of the files of a live module's folder."""
    return _hash([(path.name, path) for path in sorted(folder.iterdir()) if path.is_file()])


def _code(path: Path) -> Iterator[tuple[str, Path]]:
    """The file and what it imports of its own folder, each with its name there."""
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


def _hash(files: Iterable[tuple[str, Path]]) -> str:
    digest = hashlib.sha256()
    for name, path in files:
        try:
            with path.open("rb") as file:
                digest.update(f"{name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        except OSError as error:
            raise BakeoffError(f"{path}: {error.strerror}; make it readable", "bad-user-code") from error
    return digest.hexdigest()[:16]
