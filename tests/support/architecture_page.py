"""The last section of docs/architecture.md: how large the product is.

    python tests/support/architecture_page.py

writes it anew, with the commit that was counted.
"""

import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
sys.path.append(str(ROOT / "tools"))
from count_lines import PRODUCT, count_packages  # noqa: E402

BEGIN, END = "<!-- figures: written by tests/support/architecture_page.py -->", "<!-- end of figures -->"


def sizes(commit: str) -> str:
    """How large the product and its tests are now."""
    packages = count_packages(ROOT)
    product = sum((made for name, made in packages.items() if name.split("/")[0] in PRODUCT), Counter[str]())
    others = packages["tests"]["lines"] - product["tests"]
    return textwrap.fill(
        f"At commit {commit} the product has {product['files']:,} files with {product['lines']:,} lines, "
        f"{product['code']:,} of code, {product['tokens']:,} tokens; its tests have {product['tests']:,} lines, "
        f"tests of the whole, trials and what tests share {others:,} more.",
        120,
    )


def block(commit: str) -> str:
    return "\n\n".join((BEGIN, sizes(commit), END))


if __name__ == "__main__":
    made = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + block(made.stdout.strip()) + rest.partition(END)[2], encoding="utf-8")
