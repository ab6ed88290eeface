"""A headless Chromium that shows a page of the test's own, which looks into the page under test as a reader would."""

import html
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--virtual-time-budget=20000",
    "--enable-logging=stderr",
    "--v=0",
)
_LOOKING = """<!doctype html><meta charset="utf-8"><body>
<iframe id="page" src="{source}" width="1200" height="{height}"></iframe><pre id="answer">nothing</pre><script>
const frame = document.getElementById("page");
frame.addEventListener("load", async () => {{
  const page = frame.contentDocument;
  const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
  const painted = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  let answer;
  try {{ answer = await (async () => {{ {script} }})(); }} catch (error) {{ answer = {{ error: String(error) }}; }}
  document.getElementById("answer").textContent = JSON.stringify(answer);
}});
</script>"""


def chromium() -> str:
    """The browser; skips the test where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no chromium is installed: apt-get install chromium")
    return found


def look(page: Path, script: str, folder: Path, height: int = 6000) -> tuple[Any, str]:
    """What `script` returns of the page in a frame of that height, and what the browser had to say meanwhile.

    The script is the body of an async function that has `frame`, `page` (its document), `wait` and `painted`. A browser
    speaks up about errors and about what a security policy blocked.
    """
    looking = folder / "looking.html"
    looking.write_text(_LOOKING.format(source=page.as_uri(), height=height, script=script), encoding="utf-8")
    # The frame is of another origin by the rules of file:; the page's own security policy stays as it is.
    flags = (
        *_FLAGS,
        "--disable-web-security",
        "--allow-file-access-from-files",
        f"--window-size=1300,{height + 200}",
        f"--user-data-dir={folder / 'profile'}",
    )
    done = subprocess.run(
        [chromium(), *flags, "--dump-dom", looking.as_uri()],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=120,
        check=False,
    )
    text = done.stdout.partition('<pre id="answer">')[2].partition("</pre>")[0]
    assert text, done.stderr[-2000:]
    return json.loads(html.unescape(text)), "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
