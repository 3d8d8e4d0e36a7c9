"""WebGPU: natively through wgpu, in a headless Chromium, or in anybody's browser."""
