"""The operators that a call decomposes into, each as a call of its own on the values that it has there."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from tapml.lowering.lower import decomposition
from tapml.repro.subject import Subject
from tapml.suite.call import encode_arguments

_NARROW = (torch.float16, torch.bfloat16)


def parts(subject: Subject, target: str) -> list[Subject]:
    """In the order of execution in PyTorch, in float32 where the call has 16-bit floats.

    Raises :class:`tapml.errors.UnsupportedError` where there is no decomposition, and whatever PyTorch raises.
    """
    case = subject.case()
    graph = decomposition(case.signature, target)
    recording = _Recording(fx.GraphModule(torch.nn.Module(), graph))
    with torch.no_grad():
        recording.run(*(t.float() if t.dtype in _NARROW else t for t in case.tensors))
    return recording.found


class _Recording(fx.Interpreter):
    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.found: list[Subject] = []

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, torch._ops.OpOverload):
            template, tensors = encode_arguments(list(args), dict(kwargs))
            self.found.append(Subject.made(str(target), template, [t.clone() for t in tensors]))
        return super().call_function(target, args, kwargs)
