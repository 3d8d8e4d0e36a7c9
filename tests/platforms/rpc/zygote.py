"""Imports TVM once, and then starts servers and trackers in no time: forks of this process.

A line ``KIND PORT KEY TRACKER_PORT [FUNCTION...]`` on standard input starts one, and its process id is printed.  KIND is
``server`` or ``tracker``; the server is the one of docs/rpc.md, which ends when it can serve no more; a TRACKER_PORT of 0
is none; the functions named are those that the server shall not have.
"""

from __future__ import annotations

import os
import signal
import sys

import tvm_ffi
from tvm.rpc.server import PopenRPCServerState
from tvm.rpc.tracker import PopenTrackerServerState


def serve(kind: str, port: str, key: str, tracker: str, *lacking: str) -> None:
    for name in lacking:
        tvm_ffi.registry.remove_global_func(name)
    first, end = int(port), int(port) + 1
    if kind == "tracker":
        PopenTrackerServerState("127.0.0.1", first, end).thread.join()
        return
    at = ("127.0.0.1", int(tracker)) if int(tracker) else None
    PopenRPCServerState("127.0.0.1", first, end, key=key, tracker_addr=at).thread.join()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        child = os.fork()
        if not child:
            os.setsid()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            silence = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(silence, descriptor)
            try:
                serve(*line.split())
            finally:
                os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main()
