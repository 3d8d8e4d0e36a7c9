"""``tapml report``: the migrations of a suite side by side, as a page, as figures, and for CI."""

from __future__ import annotations

from pathlib import Path

import click

from tapml.cli.options import suite_argument, writable


@click.command(
    epilog="""\
\b
Examples:
  tapml report suite
  tapml report suite --output suite.html --device llvm:cpu
  tapml report suite --json figures.json --junit report.xml
"""
)
@suite_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    default=Path("report.html"),
    show_default=True,
    callback=writable,
    help="The page.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    help="Only the migrations to this device or target, in this order (repeatable).  [default: all]",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    callback=writable,
    help="Write all figures there ('-': to stdout).",
)
@click.option(
    "--junit", type=click.Path(path_type=Path), callback=writable, help="Write JUnit XML there ('-': to stdout)."
)
def command(suite: Path, output: Path, devices: tuple[str, ...], json_file: Path | None, junit: Path | None) -> int:
    """Write the migrations of a suite, side by side, as one HTML page that needs no network.

    The page has outcomes by operator and device, the error of each case against its tolerance, heat maps by module,
    the worst elements and channels, histograms, kernel sources, times and versions.  It is made from the journals of
    the migrations and the cache of kernels; nothing is executed for it.  Exit code 1 if a migration is not accepted.
    """
    from tapml.errors import UsageError

    to_stdout = [name for name, file in (("--json", json_file), ("--junit", junit)) if str(file) == "-"]
    if len(to_stdout) > 1:
        raise UsageError(
            "expected one of --json and --junit on standard output, found both", hint="name a file for one"
        )
    if str(output) == "-":
        raise UsageError("expected a file for the page, found '-'", hint="give --output a name such as report.html")
    from tapml.report.brief import print_report
    from tapml.report.collect import collect
    from tapml.report.html import render
    from tapml.report.junit import junit as to_xml
    from tapml.report.style import human_bytes
    from tapml.report.terminal import write_json

    report = collect(suite, devices)
    page = render(report).encode()
    output.write_bytes(page)
    written = [f"{output} ({human_bytes(len(page))})"]
    if json_file is not None:
        write_json(json_file, report.to_json())
        written.append(str(json_file))
    if junit is not None:
        xml = to_xml(report)
        if str(junit) == "-":
            click.echo(xml.decode(), nl=False)
        else:
            junit.write_bytes(xml)
        written.append(str(junit))
    if not to_stdout:
        print_report(report, written)
    return 0 if report.accepted else 1
