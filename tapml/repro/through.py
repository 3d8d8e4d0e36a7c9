"""A bundle's kernels on their device by way of tapml: for targets whose kernels cannot be launched otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from tapml.kernels.plan import Artifact, Plan
from tapml.platform import find_platform
from tapml.suite.call import Json, Signature, TensorSpec


class FaultError(Exception):
    """The device saw the kernels do what they must not; ``code`` as in the recorded failure."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def replay(folder: Path, bundle: Json, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The results, from the sources in the bundle.  Raises :class:`FaultError`, and what the device raises."""
    plan = Plan.from_json(bundle["plan"])
    files = {path.name: path.read_bytes() for path in sorted((folder / "kernels").iterdir())}
    specs = tuple((r["name"], TensorSpec.from_json(r)) for r in bundle["results"])
    signature = Signature(bundle["operator"], "[[],{}]", tuple(map(TensorSpec.from_json, bundle["tensors"])), specs)
    device = find_platform(bundle["target"]).open(bundle["device"])
    print(f"device     {device.info.name} ({device.info.mode}): {device.info.description}")
    execution = device.load(Artifact(plan, files, bundle["route"]), signature).run(tensors)
    if execution.faults:
        raise FaultError(execution.faults[0].code, "; ".join(f.explanation for f in execution.faults))
    return list(execution.results)
