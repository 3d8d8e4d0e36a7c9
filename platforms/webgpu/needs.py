"""What the webgpu platform uses of a machine."""

from __future__ import annotations

from tapml.doctor import Finding, find_package, find_program


def examine() -> list[Finding]:
    """``wgpu`` with a driver below it; Chromium and two packages for browsers."""
    extra = "pip install 'tapml[webgpu-browser]'"
    return [
        find_package("wgpu", "target webgpu, device webgpu:native", "pip install wgpu", optional=True),
        find_program(
            ("chromium", "chromium-browser", "google-chrome"),
            "target webgpu, device webgpu:chromium",
            "apt-get install chromium",
            variable="TAPML_CHROMIUM",
        ),
        find_package("websockets", "target webgpu, in browsers", extra, optional=True),
        find_package("segno", "the QR code of `tapml devices --listen`", extra, optional=True),
    ]
