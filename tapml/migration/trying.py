"""What workers that try candidates have in common: what they do first, and an executable that they look at afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from tapml.lowering.registry import load_extensions
from tapml.migration.worker import limit_address_space, report_stage
from tapml.platform import Executable, Execution


def prepare_worker(memory_mb: int, extensions: Iterable[str]) -> None:
    """Limit the memory of this process, and load the user's files one by one, each named before it may end the process.

    ``memory_mb``: megabytes that candidates may use; twice as many may be mapped.  Raises :class:`ExtensionError` for a
    file that does not load.
    """
    limit_address_space(memory_mb * 2)
    for extension in extensions:
        report_stage(f"loading {extension}")
        load_extensions([extension])


class Watched:
    """An executable that remembers its last execution; ``None`` when there was none, or it raised."""

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self.last: Execution | None = None

    def run(self, tensors: Sequence[torch.Tensor]) -> Execution:
        """See :class:`tapml.platform.Executable`."""
        self.last = None
        self.last = self._executable.run(tensors)
        return self.last
