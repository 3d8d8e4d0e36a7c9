"""The script of a bundle, run in a clean process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tapml.platform import is_remote, platform_file
from tapml.repro import reproduce
from tapml.repro.failure import Failure
from tapml.suite.call import Json

SCRIPT = "reproduce.py"
_SECONDS = 300.0
"""Beyond those that the candidate may take: imports on a busy machine, the device."""


@dataclass(frozen=True)
class Confirmation:
    """What ``reproduce.py`` did in a clean process.  ``how``: the first way that reproduces the failure, empty when none does;
    ``runs``: by way, exit code and what it printed."""

    how: str
    runs: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def reproduced(self) -> bool:
        return bool(self.how)

    @property
    def device(self) -> str:
        """What the script says of the device that it ran on; empty where that is the CPU."""
        lines = self.runs[self.how][1].splitlines() if self.how else []
        return next((line.partition(" ")[2].strip() for line in lines if line.startswith("device ")), "")

    @property
    def words(self) -> str:
        """One line."""
        if self.reproduced:
            return "reproduced"
        last = "; ".join(f"--how {how}: {conclusion(text)}" for how, (_, text) in self.runs.items())
        return f"DOES NOT REPRODUCE: {last or 'there is no way to run it without tapml'}"


def conclusion(text: str) -> str:
    """The last line that says something."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].partition("; recorded was: ")[0] if lines else "said nothing"


def ways(failure: Failure) -> tuple[str, ...]:
    """How the script may try it, what needs the least first."""
    listing = failure.finding.listing
    remote = is_remote(failure.device.name)
    if (
        listing is None or listing.functions or not listing.files
    ):  # no kernels of their own, or functions that TVM calls
        if failure.target != "llvm":  # the CPU stands for no other target
            return ()
    elif failure.device.emulated or remote or platform_file(failure.target, "replay.py") is None:
        return ("tapml",)
    else:
        return ("replay", "tapml")
    found = []
    if failure.route != "converter":
        found.append("import")
    if listing is not None and listing.module:
        found.append("module")
    if listing is not None and listing.functions:
        found.append("kernels")
    if listing is not None and listing.files and not remote:
        found.append("library")
    return tuple(found)


def confirm(folder: Path, failure: Failure, described: Callable[[str], Json]) -> Confirmation:
    """Run the script in each way until one reproduces the failure: Python in isolated mode, elsewhere, a clean environment.

    ``described``: what ``bundle.json`` has to say for a way; it is left with the one that reproduces, or the first.
    """

    def choose(how: str) -> None:
        (folder / "bundle.json").write_text(json.dumps(described(how), indent=1) + "\n")

    runs: dict[str, tuple[int, str]] = {}
    with tempfile.TemporaryDirectory() as elsewhere:
        kept = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "VK_ICD_FILENAMES", "OCL_ICD_VENDORS", "XDG_RUNTIME_DIR")
        environment = {name: os.environ[name] for name in kept if name in os.environ}
        for how in ways(failure):
            choose(how)
            try:
                done = subprocess.run(
                    [sys.executable, "-I", str(folder / SCRIPT)],
                    cwd=elsewhere,
                    env={**environment, "TMPDIR": elsewhere},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=_SECONDS + failure.seconds,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                runs[how] = (reproduce.CANNOT, "did not end")
                continue
            runs[how] = (done.returncode, done.stdout.decode(errors="replace").replace(str(folder), "."))
            if done.returncode == reproduce.REPRODUCED:
                return Confirmation(how, runs)
    choose(next(iter(runs), "module"))
    return Confirmation("", runs)
