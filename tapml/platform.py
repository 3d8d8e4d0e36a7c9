"""What a platform is, and the one look-up by name.

A platform is a package ``tapml.platforms.<target>`` (folder ``platforms/<target>``) with a module ``platform`` that has an
object ``PLATFORM``, which meets :class:`Platform`.  A module ``needs``, if there is one, says what the platform uses of
this machine: a function ``examine`` that returns :class:`tapml.doctor.Finding`, quick and without heavy imports.  A package
without the module ``platform`` is shared by several.  Nothing else in tapml knows which platforms there are.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tapml.errors import DeviceError, TapmlError, UnsupportedError, UsageError

if TYPE_CHECKING:
    import torch

    from tapml.doctor import Finding
    from tapml.kernels.plan import Artifact
    from tapml.kernels.runner import Fault
    from tapml.lowering.lower import Lowered
    from tapml.suite.call import Signature


@dataclass(frozen=True)
class DeviceInfo:
    """Where kernels execute: ``llvm:cpu``, ``vulkan:lavapipe``, ``metal:emulated``.

    ``emulated`` devices must be called that wherever a result is shown.  ``aside``: asked only when it is named, as it is
    another machine's, or another device with its compiler told otherwise.  ``details``: driver, features, limits.
    """

    name: str
    description: str
    emulated: bool = False
    aside: bool = False
    details: dict[str, str] = field(default_factory=dict)

    @property
    def mode(self) -> str:
        return "emulated" if self.emulated else "native"

    def to_json(self) -> dict[str, object]:
        """What a result says of where it was found."""
        return {
            "device": self.name,
            "mode": self.mode,
            "description": self.description,
            "details": self.details,
        }


@dataclass(frozen=True)
class Execution:
    """One run of an operator: its results in the order of the signature, the kernels launched, and the seconds taken.

    ``notes`` says what the executor did around the kernels (a copy into an overlapping argument, say); ``faults`` what
    is wrong whatever the results are.
    """

    results: tuple[torch.Tensor, ...]
    launches: int
    seconds: float
    notes: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()


class Executable(Protocol):
    """An operator, loaded on a device."""

    def run(self, tensors: Sequence[torch.Tensor]) -> Execution:
        """Execute on tensor arguments with the shapes, dtypes and strides of the signature.

        Arguments are not changed; what an in-place operator writes comes back as a result.  Raises
        :class:`tapml.errors.DeviceError` when the device fails.
        """


class Device(Protocol):
    """An open device."""

    info: DeviceInfo

    def load(self, artifact: Artifact, signature: Signature) -> Executable:
        """Make a compiled operator ready to run."""


class Machine(Protocol):
    """Another machine, that has a processor and maybe more devices."""

    def describe(self, target: str) -> DeviceInfo:
        """Its device for a target, after a look whether it is there.  Raises :class:`DeviceError` when it is not."""

    def processor(self) -> dict[str, str]:
        """TVM's target of its processor: ``kind``, ``mtriple``, ``mcpu``.  Raises :class:`DeviceError`."""

    def open(self, target: str) -> Device:
        """Its device for a target, which runs artifacts that consist of one library of functions of tensors.

        The machine is waited for when there is something to run, not here.
        """


class Platform(Protocol):
    """Our code for one target: its TVM target, legalisation, compiler and devices.

    One that compiles for other machines as well has an attribute ``elsewhere`` that is true, and takes their URLs
    (:func:`is_remote`) where it takes the names of its devices.  One whose kernels are functions that TVM calls may have a
    method ``prepare(lowered, device)``: those functions as TVM's code generator gets them, and the plan that calls them.
    """

    name: str

    def devices(self) -> tuple[DeviceInfo, ...]:
        """The devices that are here now, best first."""

    def fingerprint(self, device: str) -> str:
        """Text that changes whenever compiled code does: TVM target, compiler versions, our own passes."""

    def build(self, lowered: Lowered, device: str) -> Artifact:
        """Legalise, schedule and compile a lowered signature.

        Raises :class:`tapml.errors.CompileError` or :class:`tapml.errors.UnsupportedError`.
        """

    def open(self, device: str) -> Device:
        """Open a device by name.  Raises :class:`tapml.errors.DeviceError` when it is not here."""


def is_remote(device: str) -> bool:
    """Whether a device's name is the URL of a device on another machine."""
    return "://" in device


def reach(device: str) -> Machine:
    """The other machine that a URL names.  Raises :class:`UsageError` for a URL that nobody understands."""
    scheme = device.partition("://")[0]
    schemes = _packages_with("reach")
    if scheme not in schemes:
        known = ", ".join(f"{name}://" for name in schemes)
        raise UsageError(f"expected the URL of a device to begin with {known}, found {device!r}")
    machine: Machine = importlib.import_module(f"tapml.platforms.{scheme}.reach").reach(device)
    return machine


def platform_names() -> tuple[str, ...]:
    """Names of all platforms: the packages in ``tapml.platforms`` that have a module ``platform``."""
    return _packages_with("platform")


def _packages_with(module: str) -> tuple[str, ...]:
    import tapml.platforms

    return tuple(
        sorted(
            m.name
            for m in pkgutil.iter_modules(tapml.platforms.__path__)
            if m.ispkg and any(Path(folder, m.name, f"{module}.py").is_file() for folder in tapml.platforms.__path__)
        )
    )


def find_platform(target: str) -> Platform:
    """The platform of a target.  Raises :class:`UsageError` naming those that exist."""
    if target not in platform_names():
        raise UsageError(
            f"expected a target out of {', '.join(platform_names())}, found {target!r}",
            hint="`tapml devices` lists targets and devices",
        )
    platform: Platform = importlib.import_module(f"tapml.platforms.{target}.platform").PLATFORM
    return platform


def platform_file(target: str, name: str) -> Path | None:
    """A file of a platform's folder, by name, if it has one (``replay.py``: how to launch its plans without tapml)."""
    import tapml.platforms

    found = (Path(folder, target, name) for folder in tapml.platforms.__path__)
    return next((path for path in found if path.is_file()), None)


def platform_needs() -> list[Finding]:
    """What each platform uses of this machine, whether it is here, and how to get it."""
    found: list[Finding] = []
    for target in platform_names():
        name = f"tapml.platforms.{target}.needs"
        if importlib.util.find_spec(name) is not None:
            found.extend(importlib.import_module(name).examine())
    return found


def all_devices() -> list[tuple[str, tuple[DeviceInfo, ...], str]]:
    """(target, its devices, why there are none) of every platform."""
    found: list[tuple[str, tuple[DeviceInfo, ...], str]] = []
    for target in platform_names():
        try:
            found.append((target, find_platform(target).devices(), ""))
        except TapmlError as error:
            found.append((target, (), error.message))
        except ImportError as error:
            found.append((target, (), f"a package is not installed: {error}"))
    return found


def find_device(platform: Platform, name: str | None) -> DeviceInfo:
    """The named device of a platform, or its best one.

    Raises :class:`DeviceError` when it is not here, or not where its URL says; :class:`UnsupportedError` for the URL of
    a device of another machine when the platform does not compile for those.
    """
    if name is not None and is_remote(name):
        machine = reach(name)
        if not getattr(platform, "elsewhere", False):
            raise UnsupportedError(
                f"{name.partition('://')[0]} for target {platform.name} is not there yet",
                hint="--target llvm runs on other machines; `tapml devices` lists devices that are here",
            )
        return machine.describe(platform.name)
    here = platform.devices()
    for info in here:
        if name is None or info.name == name:
            return info
    known = ", ".join(d.name for d in here) or "none"
    wanted = f"device {name!r}" if name else "any device"
    raise DeviceError(
        f"expected {wanted} for target {platform.name}, found {known}",
        hint="`tapml devices` lists what is here",
    )
