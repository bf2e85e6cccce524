"""The report: what a run came to, told alike in every form, from the journal a stranger can read as well."""

import contextlib
import csv
import io
import json
import math
import re
import sqlite3
import subprocess
from dataclasses import replace

import pytest
import runs
from click.testing import CliRunner
from msgspec import structs

from carbontui import cli, protocol, units
from carbontui.account.accounts import BIN_S
from carbontui.commands import attach
from carbontui.commands import status as status_command
from carbontui.job.files import store
from carbontui.job.files.journal import Journal
from carbontui.job.life import launch
from carbontui.reports import charts, export, figures, formats, parts, run_text, story, totals
from carbontui.text import account
from carbontui.text import figures as form


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def job(home):
    return runs.make(home)


@pytest.fixture(scope="module")
def told(job):
    return story.build(job, version="9.9")


def carbontui(home, *words, code=0):
    done = CliRunner().invoke(cli.cli, list(words), env={"CARBONTUI_HOME": str(home)})
    assert done.exit_code == code, done.output
    return done


def test_values_of_a_persons_file_are_not_called_direct_emissions(tmp_path):
    made = story.build(runs.make(tmp_path, grid="/data/my curve.csv"))
    of_file = protocol.Intensity(300.0, "given", "DE")
    made = replace(made, status=structs.replace(made.status, intensity=of_file))
    assert figures.zone(made) == "DE, as given in my curve.csv"
    texts = (formats.html(made), formats.markdown(made), " ".join(run_text.story_of(made)))
    assert not any("direct" in text for text in texts) and all("as given in my curve.csv" in text for text in texts)
    own = replace(made, status=structs.replace(made.status, intensity=protocol.Intensity(300.0, "given", "yours")))
    own = replace(own, options=structs.replace(made.options, grid=None))
    assert figures.zone(own) == "yours, as given"
    number = replace(own, options=structs.replace(own.options, intensity_g_per_kwh=300.0))
    assert figures.zone(number) == "DE, as given"


@pytest.mark.parametrize("name", ["=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1"])
def test_no_name_becomes_a_formula_in_a_spreadsheet(told, name):
    gpu = protocol.Gpu("GPU-a", name)
    others = replace(told, status=structs.replace(told.status, name=name, gpus=(gpu,)))
    row, plain = export.codecarbon_row(others), export.codecarbon_row(told)
    assert row["project_name"] == row["gpu_model"] == f"'{units.printable(name)}"
    assert plain["project_name"] == "train.py" and plain["emissions"] == row["emissions"]
    less = replace(told, gco2_g=-5.0)
    assert float(export.codecarbon_row(less)["emissions"]) == -0.005, "a number stays one"


def test_every_form_prints_the_same_figures(told, home, job):
    said = {figure.label: figure.value for figure in figures.figures(told)}
    texts = [formats.html(told), formats.markdown(told)]
    texts.append(carbontui(home, "report", job.id).output)
    for value in (said["energy at the wall"], said["emitted"], said["avoided"], said["run now"]):
        assert all(value in text for text in texts)
    for grams in (told.gco2_g, told.avoided_g):
        assert form.grams(grams) in run_text.story_of(told)[2]
    numbers = json.loads(carbontui(home, "report", job.id, "--json").output)
    status = job.status()
    for key in ("energy_wall_kwh", "energy_gpu_kwh", "gco2_g", "avoided_g"):
        assert numbers[key] == getattr(status, key), f"{key}: the very digits of status --json"


def test_how_far_off_the_forecasts_have_been_is_in_the_report(told):
    errors = (protocol.ForecastError(1, 300, 0.031), protocol.ForecastError(24, 290, 0.118))
    words = protocol.Provenance("measured", "off by 3, 12 % at 1, 24 h ahead")
    known = structs.replace(
        told.status, forecast_errors=errors, provenance=told.status.provenance | {"forecast_errors": words}
    )
    text = formats.markdown(replace(told, status=known))
    assert "forecast error" in text and "3 % 1 h, 12 % 24 h" in text and "off by 3, 12 %" in text
    late = protocol.Intensity(300.0, "average_direct", "DE", units.iso(units.from_iso(known.ended_at) - 10800), 10800.0)
    text = formats.markdown(replace(told, status=structs.replace(known, forecast_errors=(), intensity=late)))
    assert "forecast error" not in text and "3 h ago; forecast since" in text


def test_tables_of_states_devices_and_time_add_up_to_the_totals(told):
    for rows in (told.by_state, told.by_device):
        assert sum(part.kwh for part in rows) == pytest.approx(told.energy_wall_kwh)
        assert sum(part.gco2_g for part in rows) == pytest.approx(told.gco2_g)
    assert sum(part.seconds for part in told.by_state) == pytest.approx(told.elapsed_s)
    rows = list(csv.DictReader(io.StringIO(formats.table(told))))
    assert sum(float(row["kwh"]) for row in rows) == pytest.approx(told.energy_wall_kwh, abs=1e-6)
    assert sum(float(row["gco2_g"]) for row in rows) == pytest.approx(told.gco2_g, abs=1e-3)
    run_now = sum(float(row["run_now_gco2_g"]) for row in rows)
    assert run_now == pytest.approx(told.gco2_g + told.avoided_g, abs=1e-3)
    assert told.chart.watts[5] == pytest.approx((runs.FULL_W + runs.CPU_W) * runs.PUE), "one column per five minutes"
    assert told.chart.step_s == BIN_S


def test_caps_shifting_and_unloading_each_have_their_line(told):
    labels = [figure.label for figure in figures.parts(told)]
    assert labels == ["caps", "shifting", "waiting", "unloading", "other causes", "avoided"]
    forms = (formats.html(told), formats.markdown(told), figures.means(told))
    for text in (*forms, " ".join(run_text.story_of(told)), dict(run_text.ending(told))["saved by"]):
        assert all(name in text for name in labels[:-2]), "one word for each"
    stayed = (runs.PARKED_W - runs.IDLE_W) * runs.PUE / 1000
    assert told.split.unloaded_g == pytest.approx(stayed * 300, rel=0.5) and told.split.capped_g > 0


def test_the_page_holds_everything_and_asks_for_nothing(told):
    html = formats.html(told)
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:,)|<script|@import|url\((?!#)""", html)
    assert "default-src 'none'" in html and html.count("<svg") == 3 and "NaN" not in html
    assert "paused by the plan" in html and run_text.methods(told).split(":")[0] in html
    assert len(html.encode()) < 1_000_000
    assert html == formats.html(told), "the same journal gives the same page"


def test_every_state_that_can_be_seen_is_in_a_legend(tmp_path):
    short = (("throttled", 1800, 400.0, 0.8), ("running", 12 * 3600, runs.FULL_W, 1.0))
    drawn = charts.timeline(story.build(runs.make(tmp_path, phases=short, every=600), version="1.0"))
    assert drawn.count(">under a cap</text>") == 1 and drawn.count(">at full speed</text>") == 1


def test_names_and_reasons_cannot_write_into_the_page_and_arguments_stay_home(tmp_path):
    job = runs.make(tmp_path, name='<img src=x onerror="1">|&', phases=runs.DAY[:2])
    told = story.build(job, version="9.9")
    page = formats.html(told)
    assert "<img" not in page and "&lt;img" in page
    assert "<img" not in formats.markdown(told)
    everything = [formats.html(told), formats.markdown(told), json.dumps(formats.numbers(told))]
    assert not any("s3cret" in text or str(tmp_path) in text for text in everything)


def test_explain_is_the_same_prose_every_time_and_tells_when_what_and_why(home, job):
    first = carbontui(home, "explain", job.id).output
    assert first == carbontui(home, "explain", job.id).output
    assert "stood still once, for 3 h 00 in all" in first and "under a cap for 2 h 00" in first
    assert "caps saved" in first and "waiting cost" in first
    assert "  paused by the plan" in first


def test_one_pause_is_told_once_and_a_moments_stillness_never(tmp_path):
    one_pause = (("running", 7200, 700.0, 1.0), ("waiting", 1200, 100.0, 0.0), ("paused", 3600, 100.0, 0.0))
    made = story.build(runs.make(tmp_path, phases=(*one_pause, ("running", 7200, 700.0, 1.0))))
    instant = story.StateSpan("paused", made.spans[0].end_s, made.spans[0].end_s + 0.2)
    made = replace(made, spans=(made.spans[0], instant, *made.spans))
    assert "The work stood still once, for 80 min in all." in " ".join(run_text.story_of(made))


def test_a_grid_events_cap_is_told_as_time_under_a_cap(told):
    event = parts.Part("event", 600.0, 0.1, 30.0)
    made = replace(told, by_state=(*told.by_state, event))
    assert "under a cap for 2 h 10 and at full speed" in " ".join(run_text.story_of(made))


def test_the_report_names_the_budget_in_force_not_the_first_one(told):
    changed = story.PastDecision(told.start_s + 60, "budget", "running", "person", "budget 3x")
    elapsed = {figure.label: figure.rests_on for figure in figures.figures(replace(told, decisions=(changed,)))}[
        "elapsed"
    ]
    assert elapsed.startswith("budget 3x, ")


def test_the_first_forecast_is_judged_by_a_run_that_got_to_its_end(told):
    first = story.FirstForecast(told.start_s, told.end_s, 2 * told.gco2_g, (told.gco2_g, told.gco2_g))
    done = dict(run_text.ending(replace(told, first=first)))["first said"]
    assert done.endswith("forecast missed by −50 %") and "()" not in done
    stopped = replace(told, first=first, status=structs.replace(told.status, state="stopped"))
    assert "missed" not in dict(run_text.ending(stopped))["first said"]


def test_methods_are_a_sentence_to_cite_a_paragraph_and_what_it_ran_on(home, told, tmp_path):
    made = runs.make(tmp_path, boundary="always-on", commit="0a1b2c-dirty", gpus=2)
    sentence, paragraph, rest = carbontui(tmp_path, "report", made.id, "--methods").output.split("\n\n")
    other = story.build(made)
    assert f"{form.kwh(other.energy_wall_kwh)} above idle and emitted {form.grams(other.gco2_g)} CO2" in sentence
    assert (
        "2 x H100" in sentence
        and "boundary above idle: on anyway" in sentence
        and "at the wall" not in sentence + paragraph
    )
    assert "commit of the script: 0a1b2c, with uncommitted changes" in rest and "driver: not known" in rest
    assert "at the wall" in run_text.citation(told) and run_text.citation(told) in formats.html(told)


def test_the_commit_is_of_the_scripts_own_repository(tmp_path):
    (tmp_path / "train.py").touch()
    by = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "train.py"), (*by, "commit", "-qm", "x")):
        subprocess.run(["git", "-C", tmp_path, *words], check=True)
    found = launch.commit(("python", str(tmp_path / "train.py")), "/")
    assert re.fullmatch("[0-9a-f]{40}", found) and launch.commit(("true",), "/") == ""
    (tmp_path / "train.py").write_text("1")
    assert launch.commit(("python", "train.py"), str(tmp_path)) == f"{found}-dirty"


def test_an_energy_above_idle_has_the_whole_machine_beside_it(told):
    whole = protocol.WholeMachine(energy_kwh=9.0, lo_kwh=8.1, hi_kwh=9.9, gco2_g=1.0)
    boundary = protocol.BoundaryStatus(kind="always-on", why="as given", counted="")
    status = structs.replace(told.status, whole_machine=whole, boundary=boundary)
    always = replace(told, status=status, options=structs.replace(told.options, boundary="always-on"))
    assert "9.00 kWh ± 10 %" in run_text.citation(always) and "9.00 kWh ± 10 %" in formats.html(always)
    assert "whole machine" in formats.markdown(always) and account.whole_machine(told.status) == ""
    assert any("9.00 kWh ± 10 % in all" in text for _, text in account.summary(status, lambda field: ""))


def test_history_sums_by_month_project_and_board_and_keeps_replays_apart(job):
    one = job.status()
    p = protocol.Provenance("replay", "a replay")
    from msgspec import structs

    again = structs.replace(one, name="train.py-2", gco2_g=None, avoided_g=None)
    replayed = structs.replace(one, provenance={"gco2_g": p})
    jobs = [(one, "2026-06-21"), (again, "2026-07-01"), (replayed, "2026-07-02")]
    months = {total.name: total for total in totals.grouped(jobs, "month")}
    assert set(months) == {"2026-06", "2026-07", totals.NOT_REAL} and months["2026-07"].unknown == 1
    (project,) = (t for t in totals.grouped(jobs, "project") if t.name != totals.NOT_REAL)
    assert project.name == "train.py" and project.jobs == 2
    assert project.energy_wall_kwh == pytest.approx(2 * one.energy_wall_kwh)
    assert {t.name for t in totals.grouped(jobs, "board")} == {"H100", totals.NOT_REAL}


def test_verbs_write_files_and_refuse_in_one_line(home, job, tmp_path):
    carbontui(home, "report", job.id, "--html", str(tmp_path / "r.html"), "--csv", str(tmp_path / "r.csv"))
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>") and (tmp_path / "r.csv").stat().st_size
    assert "| emitted |" in carbontui(home, "report", job.id, "--md").output
    assert json.loads(carbontui(home, "history", "--json").output)[0]["jobs"] >= 1
    for shown, alias in (((), ("receipt",)), (("--explain",), ("explain",))):
        told = carbontui(home, "report", job.id, *shown).output
        assert told == carbontui(home, alias[0], job.id, *alias[1:]).output
    assert carbontui(home, "report", "--all", "--json").output == carbontui(home, "history", "--json").output
    for words in (("report", job.id, "--open"), ("report", "nobody")):
        done = CliRunner().invoke(cli.cli, list(words), env={"CARBONTUI_HOME": str(home)})
        assert done.exit_code != 0 and "Traceback" not in str(done.exception)


def test_what_cannot_be_told_is_said_in_one_line(tmp_path):
    job = runs.make(tmp_path, phases=runs.DAY[:1])
    (job.dir / "journal.db").unlink()
    with pytest.raises(story.NoStory, match="no journal yet"):
        story.build(job)
    Journal(job.dir / "journal.db").close()
    with pytest.raises(story.NoStory, match="no energy was metered"):
        story.build(job)
    with sqlite3.connect(job.dir / "journal.db") as db:
        db.execute("pragma user_version=99")
    with pytest.raises(story.NoStory, match="newer than this carbontui"):
        story.build(job)
    for file in job.dir.glob("journal.db*"):
        file.unlink()
    (job.dir / "journal.db").write_bytes(b"rubbish" * 500)
    with pytest.raises(story.NoStory, match=r"journal\.db: it cannot be read"):
        story.build(job)


def test_a_job_that_crashed_before_its_first_step_is_reported_without_a_saving(tmp_path):
    job = runs.make(tmp_path, phases=(("starting", 30, 80.0, 0.0),))
    with sqlite3.connect(job.dir / "journal.db") as db:
        said = json.loads(db.execute("select value from state where key='accounts'").fetchone()[0])
        said |= {"avoided_g": None, "full_wall_w": None}
        db.execute("update state set value=? where key='accounts'", (json.dumps(said),))
    told = story.build(job, version="9.9")
    assert told.split is None and not figures.parts(told) and "not known" in run_text.story_of(told)[2]
    for text in (formats.html(told), formats.markdown(told), formats.table(told)):
        assert text and "None" not in text


def test_a_run_whose_end_the_journal_has_not_written_yet_lasted_until_its_status(tmp_path):
    job = runs.make(tmp_path)
    whole = story.build(job, version="9.9").elapsed_s
    with sqlite3.connect(job.dir / "journal.db") as db:
        db.execute("delete from event where kind = 'end' or data like '%\"done\"%'")
    told = story.build(job, version="9.9")
    assert told.over and told.elapsed_s == pytest.approx(whole, abs=5)


def test_a_run_too_short_to_be_metered_is_not_said_to_have_drawn_nothing(tmp_path):
    told = story.build(runs.make(tmp_path, phases=()), version="9.9")
    assert told.unmetered and told.energy_wall_kwh == 0
    for text in (formats.html(told), formats.markdown(told), " ".join(run_text.story_of(told))):
        assert "not known" in text and "0 Wh" not in text and "0.00 g" not in text
    said = " ".join(status_command.report(told.status))
    assert form.NOT_METERED in said and "0.00 g" not in said
    assert form.NOT_METERED in account.ending(told.status)
    (total,) = totals.grouped([(told.status, "2026-06-21")], "month")
    assert total.unknown == 1


def test_a_run_whose_grid_nobody_knew_has_energy_and_no_grams(tmp_path):
    job = runs.make(tmp_path, phases=runs.DAY[:2])
    with sqlite3.connect(job.dir / "journal.db") as db:
        said = json.loads(db.execute("select value from state where key='accounts'").fetchone()[0])
        said |= {"avoided_g": None, "gco2_g": None, "nowcast_g": None}
        db.execute("update state set value=? where key='accounts'", (json.dumps(said),))
        db.execute("delete from grid")
    told = story.build(job, version="9.9")
    assert told.energy_wall_kwh > 0 and told.by_state[0].gco2_g is None
    assert "its emissions are not known" in run_text.story_of(told)[2] and "not known" in formats.html(told)


def test_status_journal_report_epochs_table_and_exports_agree_to_the_last_digit(tmp_path):
    """Seven epochs over pauses and an unload; the sums of what is printed are what is printed as the sum."""
    job = runs.make(tmp_path, epoch_steps=8000)
    with contextlib.closing(Journal(job.dir / "journal.db")) as journal:
        kept = journal.recall("accounts")
    status, made = job.status(), story.build(job)
    numbers = json.loads(carbontui(tmp_path, "report", job.id, "--json").output)
    kwh, grams = f"{status.energy_wall_kwh:.9f}", f"{status.gco2_g:.6f}"
    assert (f"{kept['energy_wall_kwh']:.9f}", f"{kept['gco2_g']:.6f}") == (kwh, grams)
    epochs = numbers["by_epoch"]
    assert [part["epoch"] for part in epochs] == list(range(6))
    assert sum(part["steps"] for part in epochs) == status.step
    rows = list(csv.DictReader(io.StringIO(formats.table(made))))
    sums = {
        "report": (numbers["energy_wall_kwh"], numbers["gco2_g"]),
        "epochs": (sum(p["energy_wall_kwh"] for p in epochs), sum(p["gco2_g"] for p in epochs)),
        "table": (sum(float(r["kwh"]) for r in rows), sum(float(r["gco2_g"]) for r in rows)),
    }
    for name, (energy, emitted) in sums.items():
        assert (f"{energy:.9f}", f"{emitted:.6f}") == (kwh, grams), name
    carbon = export.codecarbon_row(made)
    assert carbon["energy_consumed"] == kwh and f"{float(carbon['emissions']) * 1000:.6f}" == grams
    assert "Per epoch" in formats.html(made) and "## Per epoch" in formats.markdown(made)
    # a paused hour belongs to the epoch it fell into: later epochs are no cheaper for having been waited for
    assert all(part.kwh > 0 and part.end_s > part.start_s for part in made.epochs)


def test_an_epoch_that_is_done_again_after_a_resume_counts_once(tmp_path):
    job = runs.make(tmp_path, epoch_steps=8000)
    with contextlib.closing(Journal(job.dir / "journal.db")) as journal:
        at = runs.START_S + 7 * 3600.0
        journal.event(at, at, "epoch", number=3, step=24000, loss=1.0)
        journal.commit()
    numbers = [part.number for part in story.build(job).epochs if part.number is not None]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 3


def test_what_each_means_gave_has_a_band_wherever_it_is_told(home, told, job):
    """The day of `runs` with a board whose watts vary, and steps that were timed."""
    other = runs.make(home, name="varies.py", job="hjkmnp", wander=0.05)
    split = story.build(other).split
    halves = split.halves
    assert 0 < halves.capped_g < 0.1 * split.capped_g and 0 < halves.avoided_g < 0.1 * (split.run_now_g)
    said = {figure.label: figure.value for figure in figures.parts(story.build(other))}
    assert said["caps"].endswith(f"± {form.grams(halves.capped_g)}")
    found = json.loads(carbontui(home, "status", other.id, "--json").output)
    assert found["avoided_split"]["halves"]["capped_g"] == pytest.approx(halves.capped_g, abs=1e-5)
    assert "±" in carbontui(home, "status", other.id).output
    last = account.ending(other.status(), figures.means(story.build(other)))
    assert "±" in last and " later)" in last, last
    unsure = runs.make(home, name="typical.py", job="qrstuv", wander=0.05, source="typical days of DE 2020")
    typical_days = story.build(unsure).split
    assert typical_days.halves.moved_g > 2 * halves.moved_g and replace(typical_days, halves=halves) == split
    # nothing was timed in the first run: no band is made up
    assert told.split.halves is None and "seen too few times" in formats.html(told)


def test_a_long_run_is_told_by_day_and_its_decisions_are_folded(home):
    """Six days: the rows add up to the totals, Markdown and JSON have them, and print leaves the long list out."""
    job = runs.make(home, name="week.py", job="wxyz23", phases=runs.DAY * 14, every=60)
    long = story.build(job)
    assert len(long.days) in (6, 7) and len(long.decisions) > 40
    assert math.fsum(day.kwh for day in long.days) == pytest.approx(long.energy_wall_kwh, abs=1e-8)
    assert math.fsum(day.gco2_g for day in long.days) == pytest.approx(long.gco2_g, abs=1e-5)
    assert math.fsum(day.seconds for day in long.days) == pytest.approx(long.elapsed_s)
    text = formats.html(long)
    assert "<h2>Per day</h2>" in text and "details { display: none; }" in text
    assert text.index("<details>") < text.index("unloaded by the plan") < text.index("</details>")
    assert "## Per day" in formats.markdown(long) and len(formats.numbers(long)["by_day"]) == len(long.days)
    assert "<details>" not in formats.html(story.build(runs.make(home, name="day.py", job="abc234")))


def test_a_decision_entered_anew_for_the_same_reason_is_told_once(told):
    first = next(made for made in told.decisions if made.kind == "state" and made.state != "pausing")
    twice = replace(told, decisions=(first, replace(first, at_s=first.at_s + 7200.0, state="running")))
    assert len(run_text.decisions(twice)) == 1


def test_a_short_run_gives_its_last_epoch_no_more_than_its_time(home):
    """Two minutes of a bin of five: the bin's energy was drawn while the run lasted."""
    short = story.build(runs.make(home, name="short.py", job="def567", phases=(("running", 120, 700.0, 1.0),),
                                  epoch_steps=40))  # fmt: skip
    used = [part.kwh for part in short.epochs]
    assert max(used) == pytest.approx(min(used), rel=0.05) and len(used) == 6


def test_epochs_that_were_not_heard_of_one_by_one_are_told_together():
    marks = [(0.0, 0, 0), (10.0, 2, 20), (20.0, 3, 30)]
    known = {"start_s": 0.0, "end_s": 30.0, "steps": 40, "kwh": 0.0, "gco2_g": None}
    found = parts.by_epoch(marks, [], None, [], **known)
    assert [(part.number, part.last) for part in found] == [(0, 1), (2, None), (3, None)]


def test_a_job_of_now_on_a_recorded_grid_is_no_replay(told):
    recorded = structs.replace(
        told.status, provenance=told.status.provenance | {"intensity": protocol.Provenance("replay", "recorded: g.csv")}
    )
    (group,) = totals.grouped([(recorded, "2026-06-21")], "month")
    assert group.name == "2026-06"
    assert not run_text.methods(told).startswith("Energy was estimated")
    modelled = replace(told, how=(("model", 1.0),), energy_gpu_kwh=0.0, avoided_g=0.001)
    assert "was estimated" in run_text.methods(modelled) and "a model of the host" in run_text.methods(modelled)
    assert "%" not in next(one.value for one in figures.figures(modelled) if one.label == "avoided")


def test_a_run_that_nothing_held_back_has_no_saving_and_no_percentage_in_any_form(tmp_path):
    """Its start-up alone sets it apart from its steps at full watts: no plan's doing."""
    job = runs.make(tmp_path, phases=(("starting", 60, 80.0, 0.0), ("running", 90, 700.0, 1.0)))
    told = story.build(job)
    assert told.avoided_g == 0.0 and told.run_now_g is None and told.split is None
    said = " ".join(run_text.story_of(told))
    assert "It ran at full speed throughout: no saving" in said and "%" not in run_text.story_of(told)[2]
    row = next(one for one in figures.figures(told) if one.label == "avoided")
    assert row.value == account.NOTHING_HELD and "run now" not in [one.label for one in figures.figures(told)]
    numbers = formats.numbers(told)
    assert (numbers["avoided_g"], numbers["account"]["so_far"]["run_now_g"]) == (0.0, None)
    assert numbers["avoided_why"] == "nothing held it back"
    assert {row["run_now_gco2_g"] for row in csv.DictReader(io.StringIO(formats.table(told)))} == {""}
    assert account.NOTHING_HELD in carbontui(tmp_path, "status", job.id).output
    assert account.NOTHING_HELD in account.ending(job.status())
    assert [total.unknown for total in totals.grouped([(job.status(), "2026-06-21")], "month")] == [0]
    capped = story.build(runs.make(tmp_path, phases=runs.DAY[:3], job="bbbbbb"))
    assert formats.numbers(capped)["avoided_why"] is None
    assert "Run now, at full speed throughout, it would have emitted" in run_text.story_of(capped)[2]


def test_states_gaps_and_what_is_excluded_make_up_the_whole_time(tmp_path):
    phases = (("try", 30, 600.0, 1.0), ("running", 600, 700.0, 1.0), ("calibration", 60, 300.0, 0.5), *runs.DAY[2:3])
    job = runs.make(tmp_path, phases=phases)
    numbers = json.loads(carbontui(tmp_path, "report", job.id, "--json").output)
    parts = [part["seconds"] for part in numbers["by_state"]] + [part["s"] for part in numbers["gaps"]]
    assert sum(parts) + sum(one["elapsed_s"] for one in numbers["excluded"]) == pytest.approx(numbers["elapsed_s"])
    assert {one["reason"] for one in numbers["excluded"]} == {"try", "calibration"}
    assert not {"try", "calibration"} & {part["name"] for part in numbers["by_state"]}
    assert sum(part["kwh"] for part in numbers["by_state"]) == pytest.approx(numbers["energy_wall_kwh"], abs=1e-8)
    assert numbers["account"]["so_far"]["energy_wall_kwh"] == numbers["energy_wall_kwh"]
    assert "not in the account" in carbontui(tmp_path, "status", job.id).output
    assert "besides: try" in carbontui(tmp_path, "report", job.id).output


def test_the_same_reason_entered_anew_in_the_same_minute_is_told_once(tmp_path):
    phases = (("running", 10, 700.0, 1.0), ("running", 10, 700.0, 1.0), ("paused", 10, 80.0, 0.0))
    lines = run_text.decisions(story.build(runs.make(tmp_path, phases=phases)))
    assert len([line for line in lines if "running by the plan" in line]) == 1 and "paused by the plan" in lines[1]


def test_a_live_report_holds_what_is_booked_and_not_in_a_row_yet(tmp_path):
    """Rows are closed every ten seconds: without the open ones its parts would be less than its total."""
    job = runs.make(tmp_path)
    before = story.build(job)
    with contextlib.closing(Journal(job.dir / "journal.db")) as journal:
        books = journal.recall("books")
        at = runs.START_S + 600.0
        books["ledger"]["open"] = {"GPU-0": [at, at + 5.0, 36e3, "counter", "running"]}
        journal.keep("books", books)
        journal.commit()
    after = story.build(job)
    more = {part.name: part.kwh for part in after.by_state}["running"]
    assert more - {part.name: part.kwh for part in before.by_state}["running"] == pytest.approx(0.01 * runs.PUE)


def test_an_ending_is_told_once_its_supervisor_has_written_it(home, job, monkeypatch):
    writes, told = [], []
    monkeypatch.setattr(attach.proc.time, "sleep", lambda _: None)
    monkeypatch.setattr(store.Job, "alive", lambda self, role: bool(writes) and writes.pop())
    monkeypatch.setattr(story, "build", lambda *_, **__: told.append(len(writes)))
    monkeypatch.setattr(run_text, "ending", lambda made: ())
    target = attach.target_of(job)
    writes[:] = [1] * 99  # more than one look at its status takes
    assert target.ending() == () and told == [0]
