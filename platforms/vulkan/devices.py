"""The Vulkan devices of this machine, through the package ``vulkan`` (a cffi binding of the loader)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tapml.errors import DeviceError
from tapml.kernels.device_names import numbered, slug
from tapml.kernels.limits import Limits, Names, loop_iterations
from tapml.platform import DeviceInfo

VALIDATION = "TAPML_VULKAN_VALIDATION"
"""Environment variable: any value switches Khronos' validation layer on, which writes to standard output."""
_LAYER = "VK_LAYER_KHRONOS_validation"
_SOFTWARE = {"llvmpipe": "lavapipe", "swiftshader": "swiftshader"}
"""What the driver calls itself -> what everybody calls it."""
_CORE = (
    "robustBufferAccess",
    "shaderFloat64",
    "shaderInt64",
    "shaderInt16",
)
_CHAIN = {
    "16BIT_STORAGE": (
        "VkPhysicalDevice16BitStorageFeatures",
        "",
        ("storageBuffer16BitAccess", "uniformAndStorageBuffer16BitAccess", "storagePushConstant16"),
    ),
    "VARIABLE_POINTERS": (
        "VkPhysicalDeviceVariablePointersFeatures",
        "",
        ("variablePointersStorageBuffer", "variablePointers"),
    ),
    "8BIT_STORAGE": (
        "VkPhysicalDevice8BitStorageFeatures",
        "VK_KHR_8bit_storage",
        ("storageBuffer8BitAccess", "uniformAndStorageBuffer8BitAccess", "storagePushConstant8"),
    ),
    "SHADER_FLOAT16_INT8": (
        "VkPhysicalDeviceShaderFloat16Int8Features",
        "VK_KHR_shader_float16_int8",
        ("shaderFloat16", "shaderInt8"),
    ),
    "SHADER_ATOMIC_INT64": (
        "VkPhysicalDeviceShaderAtomicInt64Features",
        "VK_KHR_shader_atomic_int64",
        ("shaderBufferInt64Atomics",),
    ),
}
"""Feature structures: the end of their sType -> type, extension where Vulkan is older than 1.2, features of interest."""


_LIMITS: Names = {
    "threads": "maxComputeWorkGroupInvocations",
    "block": ("maxComputeWorkGroupSize.x", "maxComputeWorkGroupSize.y", "maxComputeWorkGroupSize.z"),
    "blocks": ("maxComputeWorkGroupCount.x", "maxComputeWorkGroupCount.y", "maxComputeWorkGroupCount.z"),
    "shared_bytes": "maxComputeSharedMemorySize",
    "buffers": "maxPerStageDescriptorStorageBuffers",
    "binding_bytes": "maxStorageBufferRange",
}
"""What VkPhysicalDeviceLimits calls them."""


@dataclass(frozen=True)
class Adapter:
    """A physical device: its place in Vulkan's own list, API version (major, minor), extensions and features that are
    there, out of those of interest; limits, and maxPushConstantsSize (bytes); nanoseconds a tick of its clock, 0 if it has
    none."""

    info: DeviceInfo
    index: int
    version: tuple[int, int]
    extensions: tuple[str, ...]
    features: frozenset[str]
    limits: Limits
    push_constants: int
    queue_family: int
    tick: float


def binding() -> Any:
    """The module ``vulkan``.  Raises :class:`DeviceError` where it, or the system's loader, is not installed."""
    try:
        import vulkan
    except ImportError as error:
        raise DeviceError("expected the Python package vulkan, found none", hint="pip install vulkan") from error
    except OSError as error:
        raise DeviceError(
            "expected the Vulkan loader (libvulkan.so.1), found none", hint="apt-get install libvulkan1"
        ) from error
    return vulkan


@contextmanager
def explained(vk: Any, what: str) -> Iterator[None]:
    """Turns the binding's exceptions into :class:`DeviceError`."""
    try:
        yield
    except (vk.VkError, vk.VkException) as error:
        raise DeviceError(f"Vulkan: {what}: {type(error).__name__}") from error


@contextmanager
def instance(vk: Any) -> Iterator[Any]:
    """A Vulkan instance that is destroyed at the end."""
    made = create_instance(vk)
    try:
        yield made
    finally:
        vk.vkDestroyInstance(made, None)


def create_instance(vk: Any) -> Any:
    """A Vulkan 1.2 instance; without layers, unless the environment variable :data:`VALIDATION` is set."""
    application = vk.VkApplicationInfo(pApplicationName="tapml", apiVersion=vk.VK_MAKE_VERSION(1, 2, 0))
    layers = [_LAYER] if os.environ.get(VALIDATION) else []
    with explained(vk, f"creating an instance{' with ' + _LAYER if layers else ''}"):
        return vk.vkCreateInstance(
            vk.VkInstanceCreateInfo(
                pApplicationInfo=application,
                enabledLayerCount=len(layers),
                ppEnabledLayerNames=layers,
            ),
            None,
        )


def list_devices() -> tuple[DeviceInfo, ...]:
    """The devices that can compute, GPUs first and software last: ``vulkan:lavapipe``, or a short form of the name.

    Raises :class:`DeviceError` where the package ``vulkan`` or the loader is missing; no driver is no device.
    """
    vk = binding()
    with instance(vk) as made:
        return tuple(a.info for a in list_adapters(vk, made))


def list_adapters(vk: Any, made: Any) -> tuple[Adapter, ...]:
    """The physical devices of an instance with Vulkan 1.1 and a queue that computes, best first."""
    try:
        physical = vk.vkEnumeratePhysicalDevices(made)
    except (vk.VkErrorInitializationFailed, vk.VkErrorIncompatibleDriver):  # a loader without any driver
        return ()
    found = [_adapter(vk, device, index) for index, device in enumerate(physical)]
    ranked = sorted((a for a in found if a is not None), key=lambda pair: pair[0])
    named: list[Adapter] = []
    for _, adapter in ranked:
        name = numbered(adapter.info.name, (a.info.name for a in named))
        named.append(replace(adapter, info=replace(adapter.info, name=name)))
    return tuple(named)


def _adapter(vk: Any, device: Any, index: int) -> tuple[int, Adapter] | None:
    """The rank and description of a physical device, ``None`` where it cannot compute."""
    properties = vk.vkGetPhysicalDeviceProperties(device)
    version = (properties.apiVersion >> 22, properties.apiVersion >> 12 & 0x3FF)
    families = vk.vkGetPhysicalDeviceQueueFamilyProperties(device)
    family = next((i for i, f in enumerate(families) if f.queueFlags & vk.VK_QUEUE_COMPUTE_BIT), None)
    if version < (1, 1) or family is None:
        return None
    available = {e.extensionName for e in vk.vkEnumerateDeviceExtensionProperties(device, None)}
    chain = [name for name, (_, ext, _) in _CHAIN.items() if not ext or version >= (1, 2) or ext in available]
    extensions = tuple(_CHAIN[c][1] for c in chain if _CHAIN[c][1] and version < (1, 2))
    head, kept = feature_chain(vk, chain)
    vk.lib.vkGetPhysicalDeviceFeatures2(device, head)
    features = {name for name in _CORE if getattr(head.features, name)}
    features |= {name for c, struct in zip(chain, kept, strict=True) for name in _CHAIN[c][2] if getattr(struct, name)}
    limits = properties.limits
    bits = families[family].timestampValidBits
    driver = _driver(vk, device, version, available)
    kinds = {
        vk.VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU: (0, "GPU"),
        vk.VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU: (1, "integrated GPU"),
        vk.VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU: (2, "virtual GPU"),
        vk.VK_PHYSICAL_DEVICE_TYPE_CPU: (4, "software driver on the CPU"),
    }
    rank, kind = kinds.get(properties.deviceType, (3, "device"))
    name = properties.deviceName
    short = next((n for key, n in _SOFTWARE.items() if key in f"{driver[0]} {name}".lower()), slug(name))
    iterations = loop_iterations(f"{driver[0]} {name}")
    details = {
        "driver": " ".join(driver).strip(),
        "vulkan": ".".join(map(str, (*version, properties.apiVersion & 0xFFF))),
        "features": ", ".join(sorted(features)),
        "maxComputeWorkGroupInvocations": str(limits.maxComputeWorkGroupInvocations),
        "maxComputeSharedMemorySize": str(limits.maxComputeSharedMemorySize),
        "maxStorageBufferRange": str(limits.maxStorageBufferRange),
        "maxPerStageDescriptorStorageBuffers": str(limits.maxPerStageDescriptorStorageBuffers),
        **({"loop iterations of a thread": str(iterations)} if iterations else {}),
    }
    return rank, Adapter(
        DeviceInfo(f"vulkan:{short}", f"{name}, {kind}", details=details),
        index,
        version,
        extensions,
        frozenset(features),
        Limits(
            threads=limits.maxComputeWorkGroupInvocations,
            block=_triple(limits.maxComputeWorkGroupSize),
            blocks=_triple(limits.maxComputeWorkGroupCount),
            shared_bytes=limits.maxComputeSharedMemorySize,
            buffers=limits.maxPerStageDescriptorStorageBuffers,
            binding_bytes=limits.maxStorageBufferRange,
            iterations=iterations,
            names=_LIMITS,
        ),
        limits.maxPushConstantsSize,
        family,
        limits.timestampPeriod if bits == 64 else 0.0,
    )


def _driver(vk: Any, device: Any, version: tuple[int, int], extensions: set[str]) -> tuple[str, str]:
    """The driver's name and version, empty where it does not say."""
    if version < (1, 2) and "VK_KHR_driver_properties" not in extensions:
        return "", ""
    driver = vk.ffi.new("VkPhysicalDeviceDriverProperties*")
    driver.sType = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES
    head = vk.ffi.new("VkPhysicalDeviceProperties2*")
    head.sType, head.pNext = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, driver
    vk.lib.vkGetPhysicalDeviceProperties2(device, head)
    return vk.ffi.string(driver.driverName).decode(), vk.ffi.string(driver.driverInfo).decode()


def feature_chain(vk: Any, chain: list[str]) -> tuple[Any, list[Any]]:
    """A VkPhysicalDeviceFeatures2 with structures behind it; the second result keeps them alive."""
    head = vk.ffi.new("VkPhysicalDeviceFeatures2*")
    head.sType = vk.VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2
    kept: list[Any] = []
    last = head
    for name in chain:
        struct = vk.ffi.new(f"{_CHAIN[name][0]}*")
        struct.sType = getattr(vk, f"VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_{name}_FEATURES")
        last.pNext = struct
        kept.append(struct)
        last = struct
    return head, kept


def enabled_features(vk: Any, features: frozenset[str]) -> tuple[Any, list[Any]]:
    """The chain that asks for ``features``, for device creation."""
    chain = [name for name, (_, _, names) in _CHAIN.items() if features & set(names)]
    head, kept = feature_chain(vk, chain)
    for name in features & set(_CORE):
        setattr(head.features, name, 1)
    for which, struct in zip(chain, kept, strict=True):
        for name in features & set(_CHAIN[which][2]):
            setattr(struct, name, 1)
    return head, kept


def _triple(values: Any) -> tuple[int, int, int]:
    return int(values[0]), int(values[1]), int(values[2])
