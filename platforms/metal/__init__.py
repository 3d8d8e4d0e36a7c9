"""Metal, on Apple's GPUs."""

from tapml.platforms.metal.platform import MetalPlatform

PLATFORM = MetalPlatform()
