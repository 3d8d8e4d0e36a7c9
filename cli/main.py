"""The entry point: commands are found by name in one registry, imported when they run, their errors made readable."""

from __future__ import annotations

import errno
import importlib
import shlex
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import click

from tapml._version import __version__
from tapml.cli import interrupts
from tapml.errors import TapmlError

COMMANDS = {
    "carve": "Record a PyTorch program's operator calls as a suite of test cases.",
    "show": "Print a suite, or one case of it.",
    "test": "Judge each operator alone on a target, on its carved inputs.",
    "migrate": "Move a program onto a target operator by operator, checking the numbers at each step.",
    "blame": "Judge one signature on every device that is here, and say which part is at fault.",
    "repro": "Write a bug report that stands alone.",
    "score": "Plant defects in the kernels of a suite, and say how many its cases catch.",
    "report": "Write the migrations of a suite, side by side, as one HTML page that needs no network.",
    "devices": "List the targets and devices that are here.",
    "doctor": "Say what is missing on this machine, and how to get it.",
}
"""Name -> one line of help.  The command is ``command`` in the module ``tapml.cli.<name>``."""

EXAMPLES = """\
\b
Examples:
  tapml carve mypackage.model:factory -o suite
  tapml migrate suite --target llvm
"""


class Registry(click.Group):
    """A group whose commands are imported only when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        try:
            command: click.Command = importlib.import_module(f"tapml.cli.{name}").command
        except ImportError as error:
            return _unavailable(name, error)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _unavailable(name: str, error: ImportError) -> click.Command:
    """A command in place of one whose imports fail: it explains itself."""

    @click.command(name, help=f"Not available: {error}.", context_settings={"ignore_unknown_options": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def command(arguments: Sequence[str]) -> None:
        raise TapmlError(
            f"`tapml {name}` needs a package that is not installed: {error}", hint="`tapml doctor` says how to get it"
        )

    return command


@click.group(cls=Registry, epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, prog_name="tapml")
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Bring a PyTorch model to a platform where it does not run yet.

    Carve a suite of real test cases out of one run of the model, then migrate it operator by operator into kernels
    compiled for the target, the rest staying in PyTorch.

    Exit codes: 0 all passed, 1 some case failed, 2 usage or environment, 130 interrupted.
    """
    ctx.ensure_object(dict)["debug"] = debug


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    interrupts.listen()
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line; the exit code.  Errors are printed as one ``error:`` line and a ``hint:``."""
    try:
        result: Any = cli.main(list(arguments), prog_name="tapml", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.Abort as stop:  # click's word for KeyboardInterrupt
        return _interrupted(stop.__cause__)
    except KeyboardInterrupt as stop:
        return _interrupted(stop)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except Exception as error:
        if interrupts.asked_to_end():  # whatever was interrupted made another error of it
            return _interrupted(error)
        return _explain(error, arguments)


def _explain(error: Exception, arguments: Sequence[str]) -> int:
    debug = "--debug" in arguments
    if isinstance(error, TapmlError):
        return _report(error.message, error.hint, debug)
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        hint = (
            f"`{context.command_path} --help` shows the arguments" if context else "`tapml --help` shows the commands"
        )
        return _report(error.format_message(), hint, debug)
    if isinstance(error, BrokenPipeError):
        sys.stderr.close()
        return 1
    if isinstance(error, OSError):
        full = error.errno == errno.ENOSPC
        hint = "free some space, or choose another directory" if full else "check the path and its permissions"
        return _report(str(error), hint, debug)
    text = f"{type(error).__name__}: {error}"
    hint = f"this is a defect in tapml; `{shlex.join(['tapml', '--debug', *arguments])}` shows the traceback"
    return _report(f"unexpected {text}", hint, debug)


def _interrupted(cause: BaseException | None) -> int:
    number = interrupts.asked_to_end() or signal.SIGINT
    interrupts.settled()
    click.echo("interrupted", err=True)
    click.echo(f"hint: {getattr(cause, 'hint', 'run the same command again')}", err=True)
    return 128 + number


def _report(message: str, hint: str, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    click.echo(f"error: {' '.join(message.split())}", err=True)
    if hint:
        click.echo(f"hint: {' '.join(hint.split())}", err=True)
    return 2


if __name__ == "__main__":
    main()
