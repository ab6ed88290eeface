"""The C++ headers of torch that inductor precompiles: taken out of one process, and given to builds in others.

Precompiling them takes most of the CPU time of a small graph's first build. Inductor finds them by name in a folder
below TMPDIR, which each worker has for itself, so each would precompile them again.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bakeoff.backends.torch_internals import header_folder

_PRECOMPILED = ".gch"
"""What g++ adds to a header's name. Inductor lets other compilers write `.pch`, which are left out: clang's name the
paths of their sources, and g++ reads none under that name."""


def link_headers(files: Sequence[Path]) -> None:
    """Let inductor in this process use these precompiled headers; what cannot be linked it precompiles itself.

    They are hard links, so that a header which is replaced meanwhile does not vanish from a build.
    """
    folder = header_folder() if files else None
    if folder is None:
        return
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            with suppress(FileExistsError):
                os.link(file, folder / file.name)


def precompiled_headers() -> tuple[Path, ...]:
    """The headers that inductor has precompiled in this process, and their sources."""
    folder = header_folder()
    found = sorted(folder.glob(f"*{_PRECOMPILED}")) if folder is not None else []
    return tuple(file for made in found if made.with_suffix("").exists() for file in (made.with_suffix(""), made))
