"""`mcp`: serves an agent on stdin and stdout."""

from __future__ import annotations

import os

import click

from carbontui import link
from carbontui.commands.support.command import refused

MISSING = 'mcp needs the extra "mcp": pip install "carbontui[mcp]" ('


@click.command()
@click.option("--allow-write", is_flag=True, help="Also pause, boost, cap, resume and budget, each with an end.")
def mcp(allow_write: bool) -> None:
    """Show the jobs to an agent: a server of the Model Context Protocol on stdin and stdout.

    It reads status, plan, account, forecast and what a budget would give. With --allow-write it gives orders that
    end by themselves and bear the author "agent"; it never overrules a person, and never stops, starts or removes a
    job.
    """
    with refused(MISSING, ImportError, code=1):
        from carbontui.extensions.mcp import serving, tools
    os.environ[link.AUTHOR] = tools.AGENT
    serving.run(click.get_current_context().find_root().command, allow_write)
