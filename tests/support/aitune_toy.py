"""Builds a variant of the toy with the real AITune, TensorRT and modelopt stubbed: `aitune_toy.py VARIANT FOLDER`.

A process of its own: the stubs, and what AITune sets when it is imported, stay there. Prints the proof and the largest
error of an output against eager as one JSON line.
"""

import json
import os
import sys
import warnings
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from aitune_stubs import stub_missing

NOT_IMPORTABLE = 77
"""The exit code where AITune, or what it imports beside TensorRT and modelopt, is missing."""


def main() -> int:
    text, folder = sys.argv[1], Path(sys.argv[2])
    os.environ["AITUNE_CACHE_DIR"] = str(folder / "aitune")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    os.chdir(folder)
    stub_missing()
    warnings.simplefilter("ignore")
    try:
        import aitune.torch  # noqa: F401
    except ImportError as error:
        print(error)
        return NOT_IMPORTABLE
    from toys import build_toy

    toy = build_toy(text, folder)
    print(json.dumps({"error": toy.error(), "proof": asdict(toy.proof)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
