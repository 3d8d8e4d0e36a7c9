"""Runs a Chromium until it ends or the process that started it does, however that dies, and removes what it leaves.

Started as a script with a pipe as its standard input: ``keeper.py DIRECTORY PROGRAM ARGUMENTS``.  The pipe's end is the
starter's.  The browser's profile is ``DIRECTORY/profile``.  The exit code is the browser's.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time

_POLL_SECONDS = 0.2
_REMOVE_SECONDS = 3.0


def main() -> int:
    directory, *command = sys.argv[1:]
    own = {"XDG_CONFIG_HOME": directory, "XDG_CACHE_HOME": directory}  # else it leaves crash reports in the user's
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))  # a browser reserves address space as if it cost nothing
    try:
        program = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, env={**os.environ, **own})
        while program.poll() is None:
            if select.select([sys.stdin], [], [], _POLL_SECONDS)[0]:  # nobody writes: the pipe has ended
                break
        with contextlib.suppress(ProcessLookupError):  # all have ended
            os.killpg(program.pid, signal.SIGKILL)  # what it started goes with it
        return program.wait()
    finally:
        _remove(directory)


def _remove(directory: str) -> None:
    """Remove the directory, and the one that Chromium makes for its socket, beside it since its path has to be short."""
    with contextlib.suppress(OSError):  # it never got so far
        socket = os.readlink(os.path.join(directory, "profile", "SingletonSocket"))
        if os.path.basename(socket) == "SingletonSocket" and os.path.isabs(socket):
            shutil.rmtree(os.path.dirname(socket), ignore_errors=True)
    end = time.monotonic() + _REMOVE_SECONDS
    while os.path.exists(directory) and time.monotonic() < end:  # files of what is just dying may still come
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the pipe says when to end
    sys.exit(main())
