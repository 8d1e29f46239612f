"""A small server on this machine that keeps files, understands ranges, and can break off."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Server:
    """Serves `files` by path; `cut` bytes into an answer the connection breaks, `breaks` times."""

    def __init__(self):
        self.files, self.ranges, self.breaks, self.cut, self.understands_ranges = {}, [], 0, 0, True
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self}))

    def url(self, path):
        return f"http://127.0.0.1:{self.http.server_port}/{path}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        data = self.owner.files.get(self.path.lstrip("/"))
        asked = self.headers.get("Range")
        self.owner.ranges.append(asked)
        if data is None:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.owner.understands_ranges else 0
        if start >= len(data):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(data)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        rest = data[start:]
        if self.owner.breaks > 0:
            self.owner.breaks -= 1
            rest = rest[: self.owner.cut]
        self.wfile.write(rest)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server():
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.shutdown()
    thread.join()
    made.http.server_close()
