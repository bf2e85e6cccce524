"""`restart` takes up or resumes a job whose keeper is gone; `begin` makes one around a process that lives; `doctor
--install`: the systemd unit for reboots."""

import json
import os
import shutil
import time
from pathlib import Path

import click

from carbontui import paths
from carbontui.commands import run
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, any_jobs, refused
from carbontui.job.files import store
from carbontui.job.keeper.command import count_first
from carbontui.job.life import launch
from carbontui.job.life import restart as restarting
from carbontui.job.terms import spec
from carbontui.system import bounded_command, proc
from carbontui.text import situation


@click.command()
@click.argument("job", required=False, shell_complete=any_jobs)
@click.option("--after-reboot", "every", is_flag=True, help="Every job on this machine that a reboot has ended.")
@click.option("--here", "here", is_flag=True, help="The machine it ran on is gone for good: it goes on on this one.")
def restart(job: str | None, every: bool, here: bool) -> None:
    """Take up a training whose monitor process is gone; resume a job whose processes are gone, as after a reboot."""
    if not every:
        _restart(talk.find(job), machine_gone=here)
        return
    if job is not None:
        raise Failure("restart JOB, or restart --after-reboot for all of them", 2)
    boot = proc.boot_id()
    ended = [job for job in store.jobs() if job.restart_command and job.place and job.place.boot != boot]
    failed = 0
    for found in (found for found in ended if not found.foreign):
        try:
            _restart(found)
        except Failure as error:
            failed += 1
            error.show()
    if not ended:
        click.echo("no job was ended by a reboot")
    if failed:
        raise SystemExit(1)


def _restart(job: store.Job, *, machine_gone: bool = False) -> None:
    with refused("", launch.LaunchError, code=3 if job.exit is not None else 1):
        if machine_gone and not job.foreign and job.exit is None:
            restarting.claim(job)
        if not (machine_gone and job.kept):
            restarting.restart(job, machine_gone=machine_gone)
    fresh = talk.live_status(talk.find(job.id))
    click.echo(f"job {job.id} {situation.stated(fresh)}")


def install() -> None:
    """Write and enable it. Raises Failure."""
    place = restarting.place()
    with refused():
        unit = restarting.text()
    if shutil.which("systemctl") is None:
        raise Failure("there is no systemctl here; from cron: @reboot carbontui restart --after-reboot", 3)
    with refused("nothing is installed: ", bounded_command.SystemdError, code=1):
        restarting.install(unit)
    click.echo(f"installed {place}; to undo: carbontui doctor --uninstall")
    if not bounded_command.lingers():
        click.echo(f"it runs when you log in; to have it run at boot: loginctl enable-linger {bounded_command.user()}")


def uninstall() -> None:
    """Disable and remove it. Raises Failure."""
    place = restarting.place()
    if not place.exists():
        click.echo(f"nothing is installed ({place} does not exist)")
        return
    with refused("", bounded_command.SystemdError, code=1):
        restarting.remove()
    click.echo(f"removed {place}")


NOT_INSIDE = (
    *("log_path", "sigstop", "requeue", "resubmit", "hosts", "resume_args", "try_first", "no_spool", "take_input"),
    *("wait", "quiet", "detach"),
)
"""Options that a job around a process that lives cannot have: nobody starts that again."""


@click.command(hidden=True, context_settings={"ignore_unknown_options": True})
@click.argument("pid", type=int)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def begin(pid: int, options: tuple[str, ...]) -> None:
    """What `carbontui.job()` in a script calls: a job around that process, with options of run."""
    given = run.run.make_context("carbontui.job", [*options, "--", *proc.arguments(pid)]).params
    command, name, start = given["command"], given["name"], proc.start_time(pid)
    if wrong := next((one for one in NOT_INSIDE if given[one]), ""):
        raise Failure(f"carbontui.job() has no {wrong}: the script was started without carbontui", 2)
    if start is None:
        raise Failure(f"process {pid} is gone", 3)
    with refused("", launch.LaunchError):
        chosen = run.options_of(command, given) | {"spool": False, "inside": True}
        place = launch.claim(launch.checked_name(name) if name else "", command, numbered=True)
        commit, directory = launch.commit(command, chosen["cwd"]), Path(place["dir"])
        with launch.undone(directory):
            job = spec.Options(**place, created_s=time.time(), commit=commit, **chosen)
            paths.private_dir(Path(job.socket).parent)
            spec.save(job)
            count_first(job.dir)
            Path(job.log).write_text("carbontui: begun inside a script, whose output is where it writes it\n")
            keeper = restarting.again(directory, "running", child=(pid, start)) | {"environment": dict(os.environ)}
            launch.spawn_keeper(keeper)  # the script goes on at once, as a command does, which is what is accounted for
    click.echo(json.dumps({**place, "keeper": spec.stop_socket(job.socket)}))
    os._exit(0)  # it waits: all that a Python does at its end would be the script's time
