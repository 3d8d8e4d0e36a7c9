"""TVM's RPC servers and trackers, on loopback, as processes that a test can kill."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Zygote:
    """The process that others are forked from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def fork(self, line: str) -> int:
        """Start what the line says; its process id."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


class Process:
    """A server or tracker: started, killed with all its children, and on request started again."""

    def __init__(
        self, zygote: Zygote, kind: str, key: str = "-", tracker: int = 0, lacking: Sequence[str] = ()
    ) -> None:
        self.port = free_port()
        self._zygote = zygote
        self._line = " ".join((kind, str(self.port), key, str(tracker), *lacking))
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self._pid = self._zygote.fork(self._line)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.01)
        raise AssertionError(f"{self._line} does not listen")

    def runs(self) -> bool:
        return Path(f"/proc/{self._pid}").exists()

    def kill(self) -> None:
        """As ``kill -9`` of everything that the server is."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._pid, signal.SIGKILL)
        while self.runs():
            time.sleep(0.01)

    def restart(self) -> None:
        """Kill it and start it again, as a supervisor does."""
        self.kill()
        self.start()

    def kill_sessions(self) -> None:
        """Kill the processes that serve a client, as a kernel that crashes does."""
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self._pid)], capture_output=True, text=True)
        assert listed.stdout.split(), "nobody is served"
        for pid in listed.stdout.split():
            os.kill(int(pid), signal.SIGKILL)

    def supervise(self) -> threading.Event:
        """Start it again whenever it ends, until the event is set."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.02):
                if not self.runs():
                    self.start()

        threading.Thread(target=watch, daemon=True).start()
        return done
