"""`doctor`: reports what was found on this machine, and the exact command that fixes what is missing."""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import click

from carbontui import __version__, config, hooks, paths
from carbontui.commands import restart
from carbontui.commands.hook import installed
from carbontui.commands.support import talk
from carbontui.commands.support.command import Failure, refused
from carbontui.commands.support.run_values import settings_for
from carbontui.grid import zones
from carbontui.job.files import journal, store
from carbontui.job.life import launch
from carbontui.job.life import restart as restarting
from carbontui.power.agent import processes, view
from carbontui.power.agent.handle import read_once
from carbontui.power.limit import leases
from carbontui.power.metering.supply import Supply
from carbontui.system import bounded_command, streams
from carbontui.text import figures, first_run
from carbontui.text.sources import COUNTS, PUES, SIGNS

Verdict = Literal["ok", "note", "missing"]
FIRST_VIEW_S = 6.0
WORK_S = 8 * 3600.0
"""Work for which it says what budgets give."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `mend` is the exact command that fixes it, or ''; the name is the key of --json."""

    area: str
    verdict: Verdict
    text: str
    mend: str = ""
    aspect: str = ""
    support: str = ""
    """Of a device, in the terms of `carbontui.power.agent.view`."""


def state_findings() -> list[Finding]:
    """The state directory; on a network file system the journal works without its write-ahead log."""
    where = paths.state_dir()
    if not where.exists():
        return [_to_be_made("state", where)]
    if why := launch.why_not(where):
        return [Finding("state", "missing", why, "export CARBONTUI_HOME=/local/dir")]
    kind = journal.filesystem_of(where)
    if kind and kind.startswith(("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "fuse.sshfs", "afs")):
        text = f"{where} lies on {kind}: the journal works without its write-ahead log, jobs of other hosts are listed"
        return [Finding("state", "note", text, f"export CARBONTUI_HOME=/var/tmp/carbontui-{os.getuid()}-home")]
    if not journal.has_locks(paths.jobs_dir()):
        text = f"{where} ({kind or 'unknown file system'}) has no POSIX locks: journals are written without them"
        return [Finding("state", "note", text, f"export CARBONTUI_HOME=/var/tmp/carbontui-{os.getuid()}-home")]
    return [Finding("state", "ok", f"{where} ({kind or 'unknown file system'})")]


def _to_be_made(area: str, where: Path) -> Finding:
    """A folder that the first job makes: whether it can, by one that is removed at once."""
    try:
        tempfile.TemporaryDirectory(dir=next(folder for folder in where.parents if folder.exists())).cleanup()
    except OSError as error:
        text = f"{where} cannot be made ({error.strerror or error})"
        return Finding(area, "missing", text, "export CARBONTUI_HOME=/local/dir")
    return Finding(area, "ok", f"{where}, which the first job makes")


def socket_findings() -> list[Finding]:
    """Whether sockets can be bound, and where."""
    directory = paths.socket_dir()
    if not directory.exists():
        return [_to_be_made("sockets", directory)]
    path = directory / f"doctor-{os.getpid()}.sock"
    try:
        paths.private_dir(directory)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.bind(str(path))
        path.unlink()
    except OSError as error:
        return [Finding("sockets", "missing", f"{directory}: {error.strerror or error}", f"rm -r {directory}")]
    note = "" if os.environ.get("XDG_RUNTIME_DIR") else " (no XDG_RUNTIME_DIR)"
    return [Finding("sockets", "ok", f"{directory}{note}")]


def logout_findings() -> list[Finding]:
    """Whether a job outlives the logout: logind may kill a user's processes then."""
    if not shutil.which("loginctl") or not Path("/run/systemd/system").exists():
        return [Finding("logout", "ok", "no systemd-logind here: jobs outlive the logout")]
    kills, linger = _logind("KillUserProcesses"), bounded_command.lingers()
    if kills == "yes" and not linger:
        text = "logind kills your processes at logout (KillUserProcesses=yes), and lingering is off"
        return [Finding("logout", "missing", text, f"loginctl enable-linger {bounded_command.user()}")]
    return [Finding("logout", "ok", f"jobs outlive the logout (KillUserProcesses={kills or 'no'}, linger={linger})")]


def _logind(name: str) -> str:
    command = ["busctl", "get-property", "org.freedesktop.login1", "/org/freedesktop/login1"]
    try:
        done = subprocess.run(
            [*command, "org.freedesktop.login1.Manager", name], capture_output=True, text=True, timeout=3, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "yes" if done.stdout.strip().endswith("true") else "no" if done.returncode == 0 else ""


def settings_findings() -> list[Finding]:
    try:
        loaded = config.load()
    except config.ConfigError as error:
        return [Finding("settings", "missing", str(error), f"edit {paths.config_file()}")]
    origins = {name: origin for name, origin in loaded.origin.items() if origin != "default"}
    given = [f"{name}={getattr(loaded.settings, name)} ({origin})" for name, origin in origins.items()]
    file = paths.config_file()
    where = str(file) if file.exists() else f"{file} does not exist"
    return [Finding("settings", "ok", f"{', '.join(given) or 'defaults'} ({where})")]


def job_findings(mend: bool) -> list[Finding]:
    """Trainings without a monitor process: nobody steers them or counts their energy; taken up with --repair."""
    found: list[Finding] = []
    for job in (job for job in store.jobs() if job.orphaned):
        command = f"carbontui restart {job.id}"
        text = f"{job.name} ({job.id}) has lost its monitor process"
        if not mend:
            found.append(Finding("job", "missing", f"{text}; its training goes on", command))
            continue
        try:
            restarting.restart(job)
            found.append(Finding("job", "ok", f"{text}; it is taken up again"))
        except launch.LaunchError as error:
            found.append(Finding("job", "missing", str(error), command))
    return found


def extension_findings() -> list[Finding]:
    """What this package and others add to it, and which of that is off or broken."""
    others, broken = hooks.foreign()
    every = {**hooks.own(), **others}
    words = [one.name + ("" if hooks.is_on(one) else f" (off by {hooks.SWITCH})") for one in every.values()]
    found = [Finding("extensions", "ok", ", ".join(words) or "none")]
    repair = "update or uninstall the package that brings it"
    return found + [Finding("extensions", "note", f"{name}: {why}", repair) for name, why in broken.items()]


def grid_findings() -> list[Finding]:
    """The grid zone; nothing is fetched."""
    try:
        zone, why = zones.find(settings_for().settings.zone)
    except (Failure, ValueError) as error:
        return [Finding("grid", "missing", str(error), "carbontui zones")]
    if zone is None:
        candidates, _ = zones.guess(zones.local_time_zone())
        likely = candidates[0].key if candidates else "DE"
        return [Finding("grid", "missing", why, f"export CARBONTUI_ZONE={likely}  # see: carbontui zones")]
    return [Finding("grid", "ok", f"zone {zone.key}; to see its sources: carbontui grid --zone {zone.key}")]


def boundary_findings() -> list[Finding]:
    """What the account of a job started here would count, and how long GPUs may stand still."""
    try:
        found = launch.terms(settings_for().settings, os.environ, resubmit=False)
    except (Failure, ValueError) as error:
        return [Finding("counted", "missing", str(error))]
    kind, limit_s, by = found["boundary"], found["idle_limit_s"], Supply().by
    host = "as given" if found["host_w"] is not None else by or "no meter of the machine's supply"
    still = "" if limit_s is None else f"; GPUs may idle for {figures.duration(limit_s)} at most (--idle-limit)"
    text = f"{COUNTS[kind]} (--boundary {kind}: {SIGNS[found['boundary_why']]}){still}"
    return [Finding("counted", "ok", f"{text}; host watts: {host}; PUE {found['pue']:g} ({PUES[found['pue_why']]})")]


def plan_findings() -> list[Finding]:
    """What a budget would give a job on this machine, as `run` offers it."""
    from carbontui.commands.support.offers import gives, of_this_machine

    with contextlib.suppress(Failure, ValueError):
        settings = settings_for().settings
        zone, _ = zones.find(settings.zone)
        job, basis = of_this_machine(settings)
        found = gives(job, zone.key, WORK_S, time.time()) if zone else []
        first, *offers = first_run.offers(zone.key, WORK_S, found, known=False) if zone and found else [""]
        told = f". {first} {'; '.join(' '.join(offer.split()) for offer in offers)}" if offers else ""
        return [Finding("plans", "ok", f"{basis}{told}")]
    return []


async def power_findings(mend: bool) -> list[Finding]:
    """GPUs, CPU and what may be set, as the agent finds them; stale limits, restored with --repair."""
    found: list[Finding] = []
    if mend:
        for outcome in processes.restore_stale():
            verdict: Verdict = "ok" if outcome.ok else "missing"
            back = "restored" if outcome.watts is None else f"restored, {outcome.watts:.0f} W"
            found.append(Finding("limits", verdict, f"{outcome.uuid}: {outcome.text or back}", outcome.fix))
    else:
        found += [Finding("limits", "missing", text, "carbontui doctor --repair") for text in talk.lease_warnings()]
    found += [Finding("limits", "missing", text) for text in leases.damaged_leases()]
    try:
        pids = tuple(pid for job in store.jobs() if (pid := job.alive("child")))
        home = paths.state_dir()
        readings = await read_once(home if home.is_dir() else Path("/"), pids, FIRST_VIEW_S)
        if not readings.mono_s:
            text = f"the GPU driver has not answered for {FIRST_VIEW_S:.0f} s; running jobs do not wait for it"
            return [*found, Finding("gpu", "missing", text)]
        found += [Finding("gpu", "missing", text) for text in readings.notices]
        for row in view.table(readings):
            ok: Verdict = "ok" if row.support == "yes" else "note"
            support = view.SAYS[row.support]
            text = f"{row.aspect}: {support}" + (f" ({row.why})" if row.why else "")
            found.append(Finding(row.device, ok, text, row.fix, row.aspect, support))
    except OSError as error:
        found.append(Finding("gpu", "missing", f"the agent cannot be started: {error}"))
    return found


def _pack(path: Path, wanted: str | None) -> None:
    from carbontui.job.supervisor.record import bundle

    job = talk.live_or_last(wanted)
    with refused(f"{path}: ", OSError, code=1):
        bundle.write(job, path)
    click.echo(f"{path}: the records of job {job.id}, without output, environment and keys; read it before you send it")


@click.command()
@click.option("--repair", "--mend", "mend", is_flag=True, help="Take up lost trainings; restore limits of dead jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("--install", is_flag=True, help="Install a systemd user unit that resumes jobs after a reboot.")
@click.option("--uninstall", is_flag=True, help="Remove that unit.")
@click.option("--bundle", metavar="FILE", help="Pack the records of a job (JOB, else the last) for a bug report.")
@click.argument("job", required=False)
def doctor(mend: bool, as_json: bool, install: bool, uninstall: bool, bundle: str | None, job: str | None) -> None:
    """Report what was found here, and the exact command that fixes what is missing."""
    if bundle is not None:
        _pack(Path(bundle), job)
        return
    if job is not None:
        raise Failure("doctor takes a JOB with --bundle alone", 2)
    if install or uninstall:
        if install and uninstall:
            raise Failure("--install or --uninstall, not both", 2)
        (restart.install if install else restart.uninstall)()
        return
    findings = [Finding("carbontui", "ok", __version__)]
    findings += state_findings() + socket_findings() + logout_findings() + settings_findings() + grid_findings()
    findings += boundary_findings() + plan_findings()
    findings += [Finding("hook", "ok", f"installed: {path}") for path in installed()]
    findings += extension_findings() + job_findings(mend) + asyncio.run(power_findings(mend))
    if as_json:
        click.echo(talk.as_json([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            lines = streams.folded(finding.text, indent=20)
            click.echo(f"{finding.verdict:<7}  {finding.area:<10} {lines}")
            if finding.mend and finding.verdict != "ok":
                click.echo(f"{'':>21}fix: {finding.mend}")
    if any(one.verdict == "missing" and (not mend or one.area in ("limits", "job")) for one in findings):
        raise SystemExit(1)
