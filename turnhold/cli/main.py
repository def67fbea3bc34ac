"""The program `turnhold`: its commands, and the one way out of all of them."""

import contextlib
import logging
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from turnhold.cli import connection, outcome, output
from turnhold.cli.connection import DEFAULT_URL, ApiKey, Json, Url
from turnhold.cli.deployment import deployment_commands
from turnhold.cli.key import key_commands
from turnhold.cli.session import session_commands
from turnhold.cli.store import store_commands
from turnhold.client import Client, Problem, Unreachable

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(session_commands, name="session")
app.add_typer(deployment_commands, name="deployment")
app.add_typer(key_commands, name="key")
app.add_typer(store_commands, name="store")


def _version(wanted: bool) -> None:
    if wanted:
        output.say(f"turnhold {version('turnhold')}")
        raise typer.Exit


@app.callback()
def program(
    wanted: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Durable agent sessions on Temporal."""


@app.command(epilog="Example: turnhold demo")
def demo() -> None:
    """Run a scripted conversation on an embedded stack and watch it happen. Takes seconds."""
    from turnhold.cli.demo import run_demo

    run_demo()


@app.command(epilog="Example: TURNHOLD_AGENTS=my_agents turnhold dev --port 8080")
def dev(
    data: Annotated[Path, typer.Option(help="Folder that everything is kept in.")] = Path(".turnhold"),
    port: Annotated[int, typer.Option(help="Port of the API; 0 for any free one.", min=0, max=65535)] = 8080,
    temporal_port: Annotated[
        int, typer.Option(help="Port of Temporal; 0 likewise.", min=0, max=65535)
    ] = 7233,
    ui_port: Annotated[
        int, typer.Option(help="Port of the Temporal UI; 0 likewise.", min=0, max=65535)
    ] = 8233,
    workers: Annotated[int, typer.Option(help="Worker processes.", min=1, max=64)] = 1,
) -> None:
    """Run Temporal, workers and the API on this machine until Ctrl-C. What was done is kept."""
    from turnhold.cli.dev import run_dev
    from turnhold.cli.stack import Plan
    from turnhold.settings import misnamed

    for complaint in misnamed(os.environ):
        output.note(complaint, "yellow")
    settings = {name: value for name, value in os.environ.items() if name.startswith("TURNHOLD_")}
    run_dev(Plan(data, True, port, temporal_port, ui_port, workers, settings=settings))


@app.command(epilog="Example: TURNHOLD_AGENTS=my_agents turnhold worker")
def worker() -> None:
    """Run a worker process, configured by TEMPORAL_* and TURNHOLD_*. SIGTERM stops it in order."""
    from turnhold.cli.stack import run_worker

    run_worker()


@app.command(epilog="Example: TURNHOLD_AGENTS=my_agents TURNHOLD_PORT=8080 turnhold api")
def api() -> None:
    """Run an API process, configured by TEMPORAL_* and TURNHOLD_*. SIGTERM stops it in order."""
    from turnhold.cli.stack import run_api

    run_api()


@app.command(epilog="Example: TEMPORAL_ADDRESS=temporal:7233 turnhold setup")
def setup(as_json: Json = False) -> None:
    """Register the search attributes in the Temporal namespace. May be run again."""
    from turnhold.cli.register import register

    namespace, registered, present = register()
    if as_json:
        output.document({"namespace": namespace, "registered": registered, "present": present})
    elif registered:
        output.say(f"Registered in namespace {namespace}: {', '.join(registered)}")
    else:
        output.say(f"Namespace {namespace} has all search attributes already.")


@app.command(epilog="Example: turnhold agents")
def agents(url: Url = DEFAULT_URL, api_key: ApiKey = None, as_json: Json = False) -> None:
    """List the Agents of the deployment."""
    found = connection.call(url, api_key, Client.agents)
    if as_json:
        output.document({"agents": found})
        return
    output.table(
        ("AGENT", "DESCRIPTION"),
        [(agent.name, (agent.description or "-").partition("\n")[0]) for agent in found],
    )


@app.command(
    epilog="""Example: echo '{"type": "prompt", "id": 1, "message": "say hi"}' | turnhold rpc script"""
)
def rpc(
    agent: Annotated[str, typer.Argument(help="The Agent's name.")],
    session: Annotated[
        str | None, typer.Option(help="A Session of that Agent that is there. Default: a new one.")
    ] = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Drive a Session with JSON lines: commands on stdin; events and responses on stdout.

    Commands: prompt, follow_up, steer, abort, get_state. At the end of the input a new Session is
    closed once the queued lines have run; Ctrl-C interrupts it first.
    """
    from turnhold.cli.rpc import drive

    connection.call(url, api_key, lambda client: drive(client, agent, session))


# --- the way out -------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    """Runs one command line and returns its exit code (`outcome`). Raises nothing."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = app(args=arguments, prog_name="turnhold", standalone_mode=False)
        return code if isinstance(code, int) else outcome.DONE
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else outcome.REFUSED
    except TyperException as error:
        return _failed(_with_hint(error), error.exit_code)
    except KeyboardInterrupt:
        return outcome.INTERRUPTED
    except Problem as problem:
        return _failed(_explained(problem), outcome.REFUSED)
    except Unreachable as error:
        return _failed(str(error), outcome.UNREACHABLE)
    except outcome.CommandFailed as error:
        return _failed(str(error), error.exit_code)
    except Exception as error:
        return _failed(f"unexpected {type(error).__name__}: {error}", outcome.REFUSED)


def _failed(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        if message:
            output.note(
                output.styled("error: ", "bold red").append(output.clean(message), style="not bold default")
            )
    return code


def _with_hint(error: TyperException) -> str:
    message = error.format_message().strip()
    context = getattr(error, "ctx", None)
    if not message or context is None:  # no message: the help has been printed
        return message
    return f"{message.rstrip('.')} (see {context.command_path} --help)"


def _explained(problem: Problem) -> str:
    lines = [f"{problem.code}: {problem.detail}"]
    for error in problem.errors if len(problem.errors) > 1 else ():
        where = ".".join(str(part) for part in error.get("loc", ()))
        lines.append(f"  {where}: {error.get('message')}")
    return "\n".join(lines)


def run() -> None:
    """The entry point: exits with `main`'s code, whatever else is still around."""
    code = main(sys.argv[1:])
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if "temporalio" in sys.modules:
        # The SDK's threads may outlive the interpreter's end and abort the process.
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
