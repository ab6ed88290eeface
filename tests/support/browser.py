"""A headless Chromium. It shows a page of the test, which loads the page under test in a frame and examines it."""

import json
import os
import shutil
import signal
import subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
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
    "--enable-logging=stderr",
    "--v=0",
)
_LOOKING = """<!doctype html><meta charset="utf-8"><body>
<iframe id="page" src="{source}" width="1200" height="{height}"></iframe><script>
const frame = document.getElementById("page");
frame.addEventListener("load", async () => {{
  const page = frame.contentDocument;
  const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));
  const painted = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  let answer;
  try {{ answer = await (async () => {{ {script} }})(); }} catch (error) {{ answer = {{ error: String(error) }}; }}
  await fetch("{address}", {{ method: "POST", mode: "no-cors", body: JSON.stringify(answer) }});
}});
</script>"""


_PATIENCE_S = 100


class _Ear(HTTPServer):
    timeout = _PATIENCE_S
    answer: bytes | None = None


class _Hearing(BaseHTTPRequestHandler):
    server: _Ear

    def do_POST(self) -> None:
        self.server.answer = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Suppress the server's log."""


def chromium() -> str:
    """The browser; skips the test if there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no chromium is installed: apt-get install chromium")
    return found


def look(page: Path, script: str, folder: Path, height: int = 6000) -> tuple[Any, str]:
    """The result of `script` for the page in a frame of this height, and the messages of the browser.

    The script is the body of an async function that has `frame`, `page` (its document), `wait` and `painted`. A browser
    speaks up about errors and about what a security policy blocked. The answer comes by a request to a server of the
    test's own: printing the document when it is loaded, or when a virtual clock runs out, can come before the drawing.
    """
    with _Ear(("127.0.0.1", 0), _Hearing) as ear:
        looking = folder / "looking.html"
        address = f"http://127.0.0.1:{ear.server_port}/"
        text = _LOOKING.format(source=page.as_uri(), height=height, script=script, address=address)
        looking.write_text(text, encoding="utf-8")
        # The frame is of another origin by the rules of file:; the page's own security policy stays as it is.
        flags = (
            *_FLAGS,
            "--disable-web-security",
            "--allow-file-access-from-files",
            f"--window-size=1300,{height + 200}",
            f"--user-data-dir={folder / 'profile'}",
        )
        heard = folder / "browser.log"
        with heard.open("wb") as log:
            browser = subprocess.Popen(
                [chromium(), *flags, looking.as_uri()], stdout=subprocess.DEVNULL, stderr=log, start_new_session=True
            )
            try:
                ear.handle_request()
            finally:
                os.killpg(browser.pid, signal.SIGKILL)
                browser.wait()
        said = heard.read_text(encoding="utf-8", errors="replace")
        assert ear.answer is not None, f"no answer in {_PATIENCE_S} s: {said[-2000:]}"
        return json.loads(ear.answer), "\n".join(line for line in said.splitlines() if "CONSOLE" in line)
