"""What compilers and drivers in this process write to standard error, caught so that it can stand in an error.

Libraries such as clspv, PoCL's compiler and Mesa write to file descriptor 2 past ``sys.stderr``.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_one_at_a_time = threading.Lock()


@contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """Keep what is written to file descriptor 2 meanwhile, by any thread; the function that is given returns it."""
    with _one_at_a_time, tempfile.TemporaryFile() as said:
        kept = os.dup(2)
        os.dup2(said.fileno(), 2)

        def words() -> str:
            return os.pread(said.fileno(), 1 << 20, 0).decode(errors="replace")

        try:
            yield words
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def errors_in(words: str) -> str:
    """The errors among what a compiler said, without the source lines that it quotes."""
    lines = [line.strip() for line in words.splitlines()]
    return "; ".join([x for x in lines if "error:" in x] or [x for x in lines if x])[:600]
