"""Vulkan, through SPIR-V made by clspv."""

from tapml.platforms.vulkan.platform import VulkanPlatform

PLATFORM = VulkanPlatform()
