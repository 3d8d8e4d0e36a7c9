"""Run the real ``tapml`` command in a place of its own, and see what it leaves there."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPT = Path(sys.executable).with_name("tapml")


@dataclass
class Place:
    """``work``: current directory of commands.  ``temporary``: their ``TMPDIR``; ``cache``: their ``TAPML_CACHE``."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in (self.work, self.temporary, self.cache):
            folder.mkdir(parents=True, exist_ok=True)

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    def start(self, *arguments: object, **environment: str) -> subprocess.Popen[str]:
        """The command, begun in a session of its own."""
        return subprocess.Popen(
            [str(SCRIPT), *map(str, arguments)],
            cwd=self.work,
            env=self.variables(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_listen_to_interrupts,
        )

    def variables(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        own = {"TMPDIR": str(self.temporary), "TAPML_CACHE": str(self.cache), "HF_HUB_OFFLINE": "1"}
        return {**os.environ, **own, **self.environment, **(more or {})}

    def run(self, *arguments: object, timeout: float = 120, **environment: str) -> subprocess.CompletedProcess[str]:
        """The command, to its end."""
        process = self.start(*arguments, **environment)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def processes(self) -> list[int]:
        """Processes that live in this place: those that have its ``TMPDIR`` in their environment."""
        wanted = f"TMPDIR={self.temporary}".encode()
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            try:
                if any(v.startswith(wanted) for v in (folder / "environ").read_bytes().split(b"\0")):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def wait_until_alone(self, seconds: float) -> list[int]:
        """Wait until no process is left; those that still are after ``seconds``."""
        end = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        return left

    def kill_all(self) -> None:
        """For the end of a test."""
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)

    def temporaries(self) -> list[str]:
        """What lies in ``TMPDIR``, but for the cache that PyTorch keeps there."""
        found = [str(p.relative_to(self.temporary)) for p in self.temporary.rglob("*")]
        return sorted(name for name in found if not name.startswith("torchinductor_"))


def _listen_to_interrupts() -> None:
    """A command started in the background of a script is born deaf to Ctrl-C, and so are all that it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def place(prefix: str) -> Iterator[Place]:
    """A new place with a short name (sockets need one), removed in the end."""
    import tempfile

    root = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir="/tmp" if os.path.isdir("/tmp") else None))
    made = Place(root)
    try:
        yield made
    finally:
        made.kill_all()
        shutil.rmtree(root, ignore_errors=True)


def comparable(data: dict[str, Any]) -> dict[str, Any]:
    """What ``--json`` says of a migration, apart from times, and from where kernels lie in the cache."""
    dropped = {"seconds", "cached", "suite", "artifact"}

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: sorted(v) if k == "kernels" else strip(v) for k, v in value.items() if k not in dropped}
        return [strip(v) for v in value] if isinstance(value, list) else value

    stripped: dict[str, Any] = strip(data)
    return stripped
