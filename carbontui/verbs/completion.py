"""carbontui completion: what a shell needs to complete verbs, options, jobs and zones."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, get_completion_class

INTO = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/config.fish"}
USE = {
    "bash": 'eval "$(carbontui completion bash)"',
    "zsh": 'eval "$(carbontui completion zsh)"',
    "fish": "carbontui completion fish | source",
}


@click.command(short_help="Print the script that completes verbs and jobs in your shell.")
@click.argument("shell", type=click.Choice(list(USE)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell; its first line says where to put it."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(f"# carbontui: add this line to {INTO[shell]}:  {USE[shell]}")
    click.echo(kind(ctx.find_root().command, {}, "carbontui", "_CARBONTUI_COMPLETE").source())


def live_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs that accept commands."""
    return _jobs(incomplete, live=True)


def any_jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs that can be viewed, finished ones included."""
    return _jobs(incomplete, live=False)


def zone_keys(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Grid zones by their keys."""
    from carbontui.grid.zones import every

    return [CompletionItem(key, help=zone.name) for key, zone in sorted(every().items()) if _fits(key, incomplete)]


def _jobs(incomplete: str, *, live: bool) -> list[CompletionItem]:
    """By name; by id where another job has the same name, or the name would need quoting in a shell."""
    from carbontui.job import store

    found: dict[str, CompletionItem] = {}
    for job in store.jobs():
        if live and not job.live:
            continue
        word = job.name if job.name not in found and job.name.isprintable() and " " not in job.name else job.id
        found[word] = CompletionItem(word, help="live" if job.live else "over")
    return [item for word, item in found.items() if _fits(word, incomplete)]


def _fits(word: str, incomplete: str) -> bool:
    return word.lower().startswith(incomplete.lower())
