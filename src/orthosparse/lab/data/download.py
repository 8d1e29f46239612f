"""One file over HTTP, checked, and continued where an earlier attempt broke off."""

import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# Called with the bytes that are there and, where the server says so, the bytes there will be.
Report = Callable[[int, int | None], None]
_CHUNK = 1 << 18
_NOTHING_THERE = 416  # HTTP's answer to a range beyond the end


def download(
    url: str, path: Path, *, known_hash: str | None = None, report: Report | None = None, attempts: int = 5
) -> Path:
    """Fetch `url` to `path`, which is only there once it is complete and its SHA-256 is right.

    What has come so far lies in ``path.part``; what is missing is asked for with a Range request, by the next attempt
    or by the next call.

    Raises:
        OSError: the server does not answer, or has no such file, or broke off more than `attempts` times.
        ValueError: the checksum is wrong. The next call begins anew.
    """
    import pooch

    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.part")
    resuming = _Resuming(part, report, attempts)
    pooch.get_logger().setLevel("WARNING")  # it tells of every file; the caller does
    pooch.retrieve(url, known_hash, fname=path.name, path=path.parent, downloader=resuming)
    return path


@dataclass(frozen=True)
class _Resuming:
    """A downloader for pooch that keeps its part when it is interrupted."""

    part: Path
    report: Report | None
    attempts: int
    pause: float = 0.5

    def __call__(self, url: str, output_file: str, _: object) -> None:
        for attempt in range(self.attempts):
            try:
                self._continue(url)
                break
            except (OSError, http.client.HTTPException) as error:
                refused = isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500
                if refused or attempt == self.attempts - 1:
                    raise OSError(f"{url}: {error}; what has come so far is kept, run again to go on") from error
                time.sleep(self.pause * 2**attempt)
        self.part.replace(output_file)

    def _continue(self, url: str) -> None:
        done = self.part.stat().st_size if self.part.exists() else 0
        # identity: a server that zips on the way would shift the positions.
        headers = {"User-Agent": "orthosparse", "Accept-Encoding": "identity"}
        if done:
            headers["Range"] = f"bytes={done}-"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as response:
                self._receive(response, done)
        except urllib.error.HTTPError as error:
            if error.code != _NOTHING_THERE:
                raise
            # The part is whole, or it is longer than the file and of no use.
            if error.headers.get("Content-Range") != f"bytes */{done}":
                self.part.unlink()
                raise ConnectionError("the part did not fit the file; begun anew") from error

    def _receive(self, response: http.client.HTTPResponse, done: int) -> None:
        if not (response.headers.get("Content-Range") or "").startswith(f"bytes {done}-"):
            done = 0  # the server sends the whole file
        length = response.headers.get("Content-Length")
        total = None if length is None else done + int(length)
        with self.part.open("r+b" if done else "wb") as file:
            file.seek(done)
            while chunk := response.read(_CHUNK):
                file.write(chunk)
                done += len(chunk)
                if self.report is not None:
                    self.report(done, total)
        if total is not None and done != total:
            raise ConnectionError(f"broken off at {done} of {total} bytes")
