"""A bucket on an S3 server of our own, which can be killed and started again with what it held."""

import os
import sys
import time
from pathlib import Path

import httpx2

from turnhold.cli.children import Child, free_port

BUCKET = "turnhold"


class Bucket:
    """The server and its one bucket; `make` it before it is used.

    The server keeps its objects in memory, and a recording of every request in `folder`, from which
    it gets them back.
    """

    def __init__(self, folder: Path) -> None:
        self._recording = folder / "recording"
        self._port = free_port(set())
        self._url = f"http://127.0.0.1:{self._port}"
        self._log = folder / "log"
        self.server: Child | None = None

    @property
    def settings(self) -> dict[str, str]:
        """What leads a worker and an API there."""
        return {
            "TURNHOLD_STORE": f"s3://{BUCKET}/sessions",
            "AWS_ENDPOINT_URL": self._url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def make(self) -> Child:
        """Start the server, and make the bucket."""
        program = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        recorded = {"MOTO_ENABLE_RECORDING": "1", "MOTO_RECORDER_FILEPATH": str(self._recording)}
        self.server = Child("S3 server", program, os.environ | recorded, self._log, 5.0)
        self._once_up("PUT", f"/{BUCKET}")
        return self.server

    def start_again(self) -> None:
        """Start the server after it was killed; it then has what it had."""
        assert self.server is not None
        whole = [line for line in self._recording.read_text().splitlines(True) if line.endswith("\n")]
        self._recording.write_text("".join(whole))
        self.server.start()
        self._once_up("POST", "/moto-api/recorder/replay-recording")

    def paths(self, session_id: str) -> list[str]:
        """The objects of a Session."""
        listed = self._once_up("GET", f"/{BUCKET}?list-type=2&prefix=sessions/{session_id}/")
        return [part.partition("<")[0] for part in listed.split("<Key>")[1:]]

    def _once_up(self, method: str, path: str) -> str:
        deadline = time.monotonic() + 60
        with httpx2.Client(trust_env=False, timeout=60) as http:
            while True:
                try:
                    answer = http.request(method, f"{self._url}{path}")
                    assert answer.is_success, answer.text
                    return answer.text
                except httpx2.TransportError:
                    assert self.server is not None
                    assert time.monotonic() < deadline, self.server.output()
                    time.sleep(0.1)
