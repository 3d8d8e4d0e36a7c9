"""``tapml devices``: what is here, or what comes when pages of browsers are let in."""

from __future__ import annotations

import click


@click.command(
    epilog="""\
\b
Examples:
  tapml devices
"""
)
@click.option("--listen", is_flag=True, help="Serve a page that makes any browser that opens it a WebGPU device.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.  [with --listen]")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; 0 is a free one.  [with --listen]")
@click.option("--cert", type=click.Path(exists=True, dir_okay=False), help="TLS certificate.  [with --listen]")
@click.option("--key", type=click.Path(exists=True, dir_okay=False), help="Its private key.  [with --listen]")
def command(listen: bool, host: str, port: int, cert: str | None, key: str | None) -> None:
    """List the targets and devices that are here, with driver, features and limits.

    With --listen, stay in the foreground and serve a page by http. Whatever browser opens it, on a phone too, is a device
    webgpu:remote/NAME for other commands as long as the page is open.
    """
    if listen:
        from tapml.cli.listen import listen as serve

        serve(host, port, cert, key)
        return
    from tapml.platform import all_devices
    from tapml.report.terminal import print_devices

    print_devices(all_devices())
