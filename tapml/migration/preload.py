"""Imported once by the process that workers are forked from, so that a new worker is ready in milliseconds.

Nothing here may compute, or leave a thread: threads do not survive a fork.
"""

import importlib
import os
import threading

MODULES = (
    "tapml.lowering.converters.all",
    "tapml.migration.job",
    "tapml.numerics.judge",
    "tapml.suite.reader",
)

_POLL_SECONDS = 0.25


def _die_with(parent: int, done: threading.Event) -> None:
    """The fork server would see only after its imports, seconds later, that nobody is there any more."""
    while not done.wait(_POLL_SECONDS):
        if os.getppid() != parent:
            os._exit(1)


def _load() -> None:
    done = threading.Event()
    watch = threading.Thread(target=_die_with, args=(os.getppid(), done))
    watch.start()
    try:
        for name in MODULES:
            importlib.import_module(name)
    finally:
        done.set()
        watch.join()


_load()
