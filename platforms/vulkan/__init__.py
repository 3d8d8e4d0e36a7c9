"""Vulkan, through SPIR-V made by clspv."""
