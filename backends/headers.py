"""What inductor compiles once in each process or cache folder, before any graph: given from one process to others.

That is torch's C++ headers, precompiled, and libraries that show which vector instructions can be used. It takes most
of the CPU time of a small graph's first build. Inductor finds headers by name in a folder below TMPDIR, which each
worker has for itself, and the libraries in its cache folder, of which each variant has its own: each would compile them
again.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from bakeoff.backends.torch_internals import compiled_library, header_folder

_LIBRARY = ".so"
_PRECOMPILED = ".gch"
"""What g++ adds to a header's name. Inductor lets other compilers write `.pch`, which are left out: clang's name the
paths of their sources, and g++ reads none under that name."""


def link_headers(files: Sequence[Path]) -> None:
    """Let inductor in this process use these headers and libraries; what cannot be linked it compiles itself.

    They are hard links, so that a file which is replaced meanwhile does not vanish from a build.
    """
    folder = header_folder() if files else None
    for file in files:
        is_library = file.suffix == _LIBRARY
        if is_library or folder is not None:
            with suppress(OSError):
                target = compiled_library(file.name) if is_library else Path(str(folder)) / file.name
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(file, target)


def precompiled_headers() -> tuple[Path, ...]:
    """The headers that inductor has precompiled in this process, and their sources."""
    folder = header_folder()
    found = sorted(folder.glob(f"*{_PRECOMPILED}")) if folder is not None else []
    return tuple(file for made in found if made.with_suffix("").exists() for file in (made.with_suffix(""), made))
