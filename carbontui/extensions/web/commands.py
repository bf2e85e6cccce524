"""`web`: serves the screen to a browser, on 127.0.0.1 alone."""

import os
import shlex
import socket
import sys

import click

from carbontui import link
from carbontui.commands.support import talk
from carbontui.commands.support.command import Count, any_jobs, refused

MISSING = 'web needs the extra "web": pip install "carbontui[web]"; '


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs)
@click.option("--port", type=Count(0, 65535), default=0, help="Of 127.0.0.1; without: a free one.")
@click.option("--readonly", is_flag=True, help="Look only: no key can change anything.")
def web(job: str | None, port: int, readonly: bool) -> None:
    """Show the same screen in a browser: of JOB, or what carbontui alone would open.

    Prints an address that opens it once, in one browser; from another machine, forward the port as the second line
    says. Ctrl+C ends it; the training goes on.
    """
    words = [] if job is None else ["attach", talk.find(job).id]
    with refused(MISSING, ImportError, code=1):
        from carbontui.extensions.web import serving
    with refused(f"127.0.0.1:{port}: ", OSError, code=1):
        listener = socket.create_server(("127.0.0.1", port))
    at = listener.getsockname()[1]
    # what the screen's process inherits: who gives its orders, and a terminal as xterm.js is one
    user = link.whoami().partition("@")[0]
    os.environ |= {link.AUTHOR: f"{user}@browser", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    command = [sys.executable, "-m", "carbontui.cli", *(["--readonly"] if readonly else []), *words]
    served = serving.Served(f"exec {shlex.join(command)}", at)
    click.echo(f"http://127.0.0.1:{at}/?token={served.token}")
    forward = f"ssh -N -L {at}:127.0.0.1:{at} {user}@{socket.gethostname()}"
    click.echo(f"carbontui: from another machine: {forward}", err=True)
    sys.stdout.flush()
    served.run(listener)
