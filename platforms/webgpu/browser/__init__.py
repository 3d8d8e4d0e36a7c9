"""WebGPU in a browser: a page that is a device, the hub that it connects to, and the runner that uses it from here."""
