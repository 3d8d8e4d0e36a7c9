"""What a bundle shows of a module and its kernels: TVMScript, sources, the plan."""

from __future__ import annotations

from dataclasses import dataclass, field

import tvm

from tapml.kernels.plan import Artifact
from tapml.lowering.lower import Lowered
from tapml.platform import Platform
from tapml.suite.call import Json


@dataclass(frozen=True)
class Listing:
    """``module``: the lowered module as TVMScript, which TVM reads again; ``functions``: what was handed to TVM's code
    generator, where the platform tells.  Empty where it did not come that far.  ``orders``: of axes in the results that
    the module gives, ``None`` for a result that it leaves out.  ``plan`` and ``files``: the artifact's.  ``target``:
    TVM's, as JSON."""

    module: str = ""
    functions: str = ""
    orders: tuple[tuple[int, ...] | None, ...] = ()
    plan: Json = None
    files: dict[str, bytes] = field(default_factory=dict)
    target: Json = None
    notes: tuple[str, ...] = ()


def listing_of(platform: Platform, device: str, lowered: Lowered | None, artifact: Artifact | None) -> Listing:
    """Of what there is."""
    if lowered is None:
        return Listing()
    functions, target = "", None
    prepare = getattr(platform, "prepare", None)
    if prepare is not None:
        try:
            module, plan = prepare(lowered, device)
        except Exception:  # it is what fails: the error is the finding
            pass
        else:
            functions = script(module)
            artifact = artifact or Artifact(plan, {}, lowered.route)
    describe = getattr(platform, "target", None)
    if describe is not None:
        made = describe(device) if prepare is not None else describe()
        target = dict(made.export())
    return Listing(
        script(lowered.module),
        functions,
        lowered.results,
        artifact.plan.to_json() if artifact else None,
        dict(artifact.files) if artifact else {},
        _plain(target),
        lowered.notes,
    )


def script(module: tvm.IRModule) -> str:
    """TVMScript that says all there is."""
    text = str(module.script(show_meta=True))
    header = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# from ")]
    return "\n".join([*header, *(line for line in text.splitlines() if not line.startswith("# from "))]) + "\n"


def _plain(value: Json) -> Json:
    """TVM's maps, lists and strings as Python's."""
    if hasattr(value, "items"):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | int | float) or value is None:
        return value
    return [_plain(v) for v in value]
