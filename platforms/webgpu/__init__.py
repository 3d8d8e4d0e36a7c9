"""WebGPU: natively through wgpu, in a headless Chromium, or in anybody's browser."""

from tapml.platforms.webgpu.platform import WebgpuPlatform

PLATFORM = WebgpuPlatform()
