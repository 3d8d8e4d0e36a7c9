"""Run as a program: writers that are killed (SIGKILL) at each file-system operation, and what the next writer finds.

usage: killed_writer.py DIRECTORY new|replace.  Prints one JSON line for each kill, and at last one for
a writer that lived: ``{"moment": n, "event": name, "status": "killed"|"done", "before": OUTCOME, "restored": OUTCOME,
"after": OUTCOME, "left": [names]}``, where OUTCOME is the seed of the suite that opens, or the message of the error.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from suite_making import records_of, tensors_case

from tapml.errors import SuiteError
from tapml.suite import Suite, SuiteWriter

EVENTS = ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "fcntl.flock", "shutil.rmtree")
CASES = [tensors_case(torch.full((40,), float(i)), number=i) for i in range(2)]


def write(path: Path, seed: int, force: bool) -> None:
    with SuiteWriter(path, force=force, pack_bytes=200) as writer:
        for case in CASES:
            writer.add_case(case)
        writer.commit(records_of(CASES), info={"seed": seed})


def outcome(path: Path) -> Any:
    try:
        suite = Suite.open(path)
        assert len(list(suite.cases())) == len(CASES)
        return suite.info["seed"]
    except SuiteError as error:
        return f"{error} | {error.hint}"


def killed_at(moment: int, path: Path, force: bool) -> tuple[str, str]:
    """Fork a writer that kills itself at the ``moment``-th operation; returns its status, and the operation."""
    reader, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        seen = 0

        def audit(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal seen
            if event in EVENTS:
                if seen == moment:
                    os.write(sender, event.encode())
                    os.kill(os.getpid(), signal.SIGKILL)
                seen += 1

        sys.addaudithook(audit)
        write(path, 2, force)
        os._exit(0)
    os.close(sender)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reader) as file:
        return ("killed" if os.WIFSIGNALED(status) else "done"), file.read()


def main() -> None:
    root, replace = Path(sys.argv[1]), sys.argv[2] == "replace"
    torch.set_num_threads(1)
    os.fsync = lambda descriptor: None  # the kernel outlives its processes
    for moment in range(1000):
        folder = root / str(moment)
        folder.mkdir()
        path = folder / "s"
        if replace:
            write(path, 1, force=False)
        status, event = killed_at(moment, path, force=replace)
        before = outcome(path)
        try:
            SuiteWriter(path).close()  # cleans up and restores, and may find a suite
        except Exception as error:
            assert "is a suite already" in str(error), error
        restored = outcome(path)
        write(path, 3, force=True)
        left = sorted(p.name for p in folder.iterdir())
        line = {"moment": moment, "event": event, "status": status, "before": before, "restored": restored}
        print(json.dumps({**line, "after": outcome(path), "left": left}), flush=True)
        if status == "done":
            return


if __name__ == "__main__":
    main()
