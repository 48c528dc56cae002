"""The entry point: one module a command, and one sentence for whatever goes wrong.

Exit codes: 0 done, 1 an error, 2 a wrong call, 130 ended by Ctrl-C.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from treerl.cli.audit import audit
from treerl.cli.console import complain
from treerl.cli.demo import demo
from treerl.cli.export import export
from treerl.cli.label import label
from treerl.cli.rollout import rollout
from treerl.cli.show import show
from treerl.cli.verify import verify
from treerl.cli.view import view
from treerl.errors import TreeRLError

__all__ = ["app", "main", "version"]

app = typer.Typer(
    name="treerl",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(label)
app.command()(rollout)
app.command()(show)
app.command()(export)
app.command()(audit)
app.command()(demo)
app.command()(verify)
app.command()(view)


def _print_version(wanted: bool) -> None:
    if wanted:
        from treerl import __version__

        typer.echo(f"treerl {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Grow trees of solutions, check every step with tools, and write training data.

    Start with `treerl demo`. Then `treerl label` your own problems with your own model,
    look at them with `treerl show`, check them with `treerl audit`, and write training files
    with `treerl export`. `treerl rollout` grows trees for reinforcement learning instead.
    """


@app.command()
def version() -> None:
    """Print the version."""
    _print_version(True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    # Their progress bars and advice would break into ours; both are read when they are imported.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    _mend_streams()
    try:
        code = app(args=argv, prog_name="treerl", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted")
        return 130
    except BrokenPipeError:  # `treerl show … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except TreeRLError as error:
        complain(str(error))
        return 1
    except OSError as error:
        complain(f"{error.filename or 'the system'}: {error.strerror or error}")
        return 1
    except Exception as error:
        return _wrong_call(error)
    return code if isinstance(code, int) else 0


def _mend_streams() -> None:
    """Give a closed stream somewhere to go, and a narrow encoding a way to show any character."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _wrong_call(error: Exception) -> int:
    """Put a usage error in one sentence; anything else is a bug and keeps its traceback."""
    # typer's own and click's errors, whichever of the two this version of typer raises.
    describe = getattr(error, "format_message", None)
    if describe is None:
        raise error
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "treerl"
    message = describe().rstrip(".")
    if not message:  # no_args_is_help: the help is printed already
        return 2
    complain(f"{message} (see {command} --help)")
    return int(getattr(error, "exit_code", 2))


if __name__ == "__main__":
    sys.exit(main())
