"""The dashboard under a pilot: what it shows, what its keys send, and that looking changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
from fake import NOW, START, WORK_S, FakeSupervisor, scene
from msgspec import structs
from msgspec.structs import replace
from textual.events import Key

from carbontui import protocol, units
from carbontui.commands import status
from carbontui.text import situation
from carbontui.tui.model.view_state import fold
from carbontui.tui.screens.log import LogScreen
from carbontui.tui.terminal.keys import check_until
from carbontui.tui.widgets.bottom import StatusLine
from carbontui.tui.widgets.budget_slider import BudgetSlider
from carbontui.tui.widgets.forecast_chart import ForecastChart
from carbontui.tui.widgets.prompt import AskStop, AskText, Prompt

GUESS = protocol.Guess(5000, "CosineAnnealingLR(T_max=)")


async def sent(s: Any, count: int = 1) -> list[protocol.Cmd]:
    await s.until(lambda: len(s.fake.commands) >= count)
    return list(s.fake.commands)


async def test_the_first_screen_says_what_a_person_wants_to_know(stage: Any) -> None:
    async with stage() as s:
        text = s.text()
    for said in (
        "RUNNING",
        "cap 250 W",
        "Runs at 250 W per GPU through the two clean nights",
        "next: pause at Thu 02:00, in 4 h 36",
        "charlm",
        "live",
        "270 g/kWh",
        "average, direct",
        "246 /  250 W",
        "paused 76 W",
        "1.80×",
        "deadline Fri 01:15",
        "4.65 kWh ~",
        "plan −556 g, −21 %",
        "234 g below run now",
        "1.44 EUR",
        "7,182   50 % of 14,400",
        "checkpoint saved",
        "epoch 2:  71%",
        "░",
    ):
        assert said in text, said
    assert "SIMULATED" not in text and "REPLAY" not in text


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 15)])
async def test_what_is_not_real_says_so_at_every_size(stage: Any, size: tuple[int, int]) -> None:
    async with stage("demo", size=size) as s:
        assert "SIMULATED GPU · REPLAY 2057×" in s.text()


async def test_a_replay_is_looked_at_four_times_a_second_and_life_once(stage: Any) -> None:
    async with stage("demo") as s:
        await s.until(lambda: s.fake.rates_hz == [1.0, 4.0])
    async with stage() as s:
        assert s.fake.rates_hz == [1.0]


async def test_a_long_name_is_cut_not_dropped(stage: Any) -> None:
    async with stage(size=(80, 24)) as s:
        s.fake.push(status=s.fake.status(name="模型 that has a name which goes on and on and on and on for ever"))
        await s.until(lambda: "模型 that has" in s.text())
        assert "for ever" not in s.text() and "…" in s.text().splitlines()[0]


async def test_what_is_too_long_for_the_page_goes_on_below(stage: Any) -> None:
    async with stage(size=(60, 24)) as s:
        plan = structs.replace(s.fake.snap.plan, explanation="a sentence of many words " * 8 + "to its very end.")
        s.fake.push(plan=plan, status=s.fake.status(notices=("n" * 30 + " " + "m" * 30 + " last-word",)))
        await s.until(lambda: s.dashboard.view_state.plan == plan)
        await s.pilot.press("i")
        await s.until(lambda: "where the numbers" in s.text())
        await s.pilot.press("end")
        await s.until(lambda: "last-word" in s.text())
        assert "to its very end." in s.text()


async def test_every_gpu_has_a_row_where_there_is_room(stage: Any) -> None:
    async with stage(gpus=8) as s:
        assert all(f" {i} H100 80GB" in s.text() for i in range(8))
    async with stage(gpus=8, size=(80, 24)) as s:
        assert "0-7 H100  246 249 243 246 249 243 246 249 / 250 W" in s.text()


async def test_a_terminal_too_small_is_told_so(stage: Any) -> None:
    async with stage(size=(30, 10)) as s:
        assert "enlarge" in s.text()
        assert "RUNNING" not in s.text()


async def test_overrides_carry_the_generation_seen_and_the_answer_is_shown(stage: Any) -> None:
    async with stage("override") as s:
        # who said so, and until when, once
        assert "Paused by ada@pts/3 until 20:24" in s.text() and s.text().count("ada@pts/3") == 1
        s.fake.result = protocol.Result(0, False, error="ada@pts/3 was faster (pause); look again and repeat")
        await s.pilot.press("b")
        (command,) = await sent(s)
        assert (command.verb, command.override_gen) == ("boost", 4)
        await s.until(lambda: "ada@pts/3 was faster" in s.text())


@pytest.mark.parametrize(
    ("keys", "verb", "args"),
    [
        (["p"], "pause", {}),
        (["b"], "boost", {}),
        (["r"], "resume", {}),
        (["P", "3", "0", "m", "enter"], "pause", {"for_s": 1800.0}),
        (["B", "n", "e", "x", "t", "enter"], "boost", {"until": "next"}),
        (["c", "2", "2", "0", "W", "enter"], "cap", {"value_w": 220.0}),
        (["S", "down", "enter"], "stop", {"now": False}),
        (["S", "down", "down", "enter"], "stop", {"now": True}),
    ],
)
async def test_keys_send_commands(stage: Any, keys: list[str], verb: str, args: dict[str, Any]) -> None:
    async with stage() as s:
        await s.pilot.press(*keys)
        (command,) = await sent(s)
        assert (command.verb, command.args) == (verb, args)
        await s.until(lambda: "paused at step 1204" in s.text())


async def test_a_cap_that_is_no_power_is_not_sent(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("c", *"lots", "enter")
        await s.until(lambda: "is not a power" in s.text())
        assert s.app.screen.query(AskText)
        await s.pilot.press("escape", "r")
        assert [c.verb for c in await sent(s)] == ["resume"]


@pytest.mark.parametrize("text", ["foo", "25:99", "-"])
async def test_a_time_that_is_none_is_said_while_the_question_is_open(stage: Any, text: str) -> None:
    async with stage() as s:
        await s.pilot.press("P", *text, "enter")
        await s.until(lambda: "is not a time" in s.text())
        assert s.app.screen.query(AskText)
        for key in ("fri 9:00", "18:05", "next", "1h30m", "2030-01-01T00:00:00Z"):
            check_until(key)
        await s.pilot.press("escape", "r")
        assert [c.verb for c in await sent(s)] == ["resume"]


async def test_a_guess_is_shown_as_one_and_agreed_to_by_a_key(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("g")
        await s.until(lambda: "no guessed total to accept" in s.text())
        s.fake.push(status=s.fake.status(guess=GUESS, steps_total=None))
        await s.until(lambda: "of 5,000? (a guess)" in s.text())
        await s.pilot.press("g")
        (command,) = await sent(s)
        assert (command.verb, command.args) == ("guess", {"accept": True})


async def test_without_a_gpu_the_key_of_the_cap_is_dim_and_says_why(stage: Any) -> None:
    async with stage() as s:
        s.fake.push(status=s.fake.status(gpus=(), step=8888))
        await s.until(lambda: "8,888" in s.text())
        await s.pilot.press("c")
        await s.until(lambda: "no GPU of this job to cap" in s.text())
        assert not s.app.screen.query(AskText)


async def test_stop_asks_and_keeps_running_by_default(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("S")
        await s.until(lambda: s.app.screen.query(AskStop))
        await s.pilot.press("enter")
        await s.until(lambda: not s.app.screen.query(AskStop))
        await s.pilot.press("r")
        assert [c.verb for c in await sent(s)] == ["resume"]


async def test_the_slider_previews_at_once_and_commits_only_on_enter(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("right", "right", "shift+right")
        await s.until(lambda: "preview" in s.text() and s.fake.previews)
        assert s.dashboard.choice.index == 32
        assert "CO₂ −" in s.text() and "finish +11 h 31" in s.text() and " EUR" in s.text()
        assert "2.32×" in s.text() and "ends Fri 12:43" in s.text() and "deadline Fri 13:35" in s.text()
        assert s.fake.previews[-1].budget == "2020-04-17T13:35Z"
        assert not s.fake.commands
        await s.pilot.press("enter")
        (command,) = await sent(s)
        assert (command.verb, command.args) == ("budget", {"budget": "2020-04-17T13:35Z"})
        assert s.dashboard.choice is None


async def test_one_deadline_is_drawn_previewed_given_and_shown_in_force(stage: Any) -> None:
    """The work may wander by minutes and still be in time; and there are no two numbers for one deadline."""
    async with stage() as s:
        await s.pilot.press("right")
        await s.until(lambda: s.fake.previews)
        choice, view_state = s.dashboard.choice, s.dashboard.view_state
        due = choice.plan(view_state).deadline
        finish_s = choice.finish_s(view_state.start_s)
        assert units.from_iso(due) - finish_s >= 0.02 * (finish_s - NOW)
        at = situation.clock(due, NOW)
        assert f"deadline {at}" in s.text() and units.from_iso(s.fake.previews[-1].budget) == units.from_iso(due)
        drawn = next(line for line in s.text().splitlines() if "×" in line and "●" in line).split()[-1]
        await s.pilot.press("enter")
        (command,) = await sent(s)
        assert units.from_iso(command.args["budget"]) == units.from_iso(due)
        factor = (units.from_iso(due) - START) / WORK_S
        s.fake.push(status=s.fake.status(budget=protocol.BudgetStatus(units.iso(START), due, factor, True)))
        await s.until(lambda: "preview" not in s.text() and f"deadline {at}" in s.text())
        assert drawn in s.text(), "the same multiple in force as while it was considered"


async def test_escape_returns_to_the_budget_in_force(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("end")
        await s.until(lambda: "2.64×" in s.text())
        await s.pilot.press("escape")
        await s.until(lambda: "1.80×" in s.text() and "preview" not in s.text())
        await s.pilot.press("enter")
        assert not s.fake.commands


async def test_a_held_arrow_asks_the_supervisor_about_where_it_rests(stage: Any) -> None:
    async with stage() as s:
        for _ in range(12):  # faster than a round trip, as a held key is over SSH
            await s.dashboard.action_budget(1)
        await s.until(lambda: s.fake.previews and s.fake.previews[-1].budget == "2020-04-17T13:35Z")
        assert len(s.fake.previews) == 1


async def test_a_preview_that_cannot_be_is_named(stage: Any) -> None:
    async with stage() as s:
        s.fake.preview_error = "this budget is over already"
        await s.pilot.press("home")
        await s.until(lambda: "this budget is over already" in s.text())


async def test_readonly_has_no_dangerous_key(stage: Any) -> None:
    async with stage(readonly=True) as s:
        await s.pilot.press("p", "b", "r", "c", "S", "P", "right", "enter", "escape")
        await s.pilot.pause()
        assert s.app.screen is s.dashboard
        assert not s.fake.commands
        assert "read only" in s.text()
        assert "pause" not in s.text().splitlines()[-1] and "detach" in s.text().splitlines()[-1]


async def test_a_gap_in_seq_asks_for_the_whole_picture(stage: Any) -> None:
    async with stage() as s:
        s.fake.push(gap=True, status=s.fake.status(step=9999))
        await s.until(lambda: "9,999" in s.text())


async def test_it_reconnects_and_says_that_training_goes_on(stage: Any) -> None:
    async with stage() as s:
        await s.fake.close()
        await s.until(lambda: "the training goes on" in s.text())
        assert "RUNNING" in s.text()
        s.fake.snap = structs.replace(s.fake.snap, status=s.fake.status(step=8888))
        await s.fake.open()
        await s.until(lambda: "8,888" in s.text() and "live" in s.text())


async def test_old_data_says_its_age(stage: Any) -> None:
    clock = [0.0]
    async with stage(monotonic=lambda: clock[0]) as s:
        clock[0] = 47.0
        await s.until(lambda: "data 30 s old" in s.text())


async def test_when_the_job_is_over_its_account_stays(stage: Any) -> None:
    async with stage() as s:
        over = s.fake.status(
            state="done",
            reason=protocol.Reason("exited", "the command ended by itself"),
            exit=protocol.Exit(0, None),
            gpus=(),
            power_w=None,
            measured_at=units.iso(NOW),
        )
        s.fake.push(status=over, plan=None, frontier=None)
        await s.until(lambda: "the job is over" in s.text())
        text = s.text()
        for said in (
            "done, exit 0",
            "4.65 kWh ~",
            "865 g CO₂",
            "234 g or 21 % less than running now ~",
            "1.44 EUR",
            "before the deadline",
        ):
            assert said in text, said
        await s.fake.__aexit__()
        await s.pilot.press("p")
        await s.pilot.pause()
        assert "the job is over" in s.text() and "reconnecting" not in s.text()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("feed_lost", "the grid source fell silent"),
        ("unguarded", "nothing restarts the supervisor"),
        ("unloaded", "UNLOADED"),
        ("no_work", "say --steps or --work"),
        ("paused", "PAUSED"),
    ],
)
async def test_states_are_named(stage: Any, name: str, said: str) -> None:
    for size in ((120, 40), (80, 24)):
        async with stage(name, size=size) as s:
            assert said in s.text()


async def test_sources_and_help_tell_everything(stage: Any) -> None:
    async with stage("override") as s:
        await s.pilot.press("i")
        await s.until(lambda: "where the numbers come from" in s.text())
        for said in (
            "emitted",
            "recorded German grid",
            "at most 0.06 %",
            "used by others as well",
            "run now",
            "the rest",
        ):
            assert said in s.text(), said
        assert "_kwh" not in s.text(), "words of the screen, not of the JSON"
        await s.pilot.press("escape", "question_mark")
        await s.until(lambda: "keys and marks" in s.text())
        assert "Hold the training" in s.text()
        await s.pilot.press("end")
        await s.until(lambda: "the deadline" in s.text() and "the training stands still" in s.text())


async def test_the_capability_table_says_why_not_and_the_mend(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("d")
        await s.until(lambda: "what can be measured and done here" in s.text())
        for said in ("no permission", "sudo chmod a+r", "takes hold after 41 ms", "on_checkpoint", "79.2 J/step"):
            assert said in s.text(), said
        await s.pilot.press("d")
        await s.until(lambda: s.app.screen is s.dashboard)


async def test_the_log_screen_reads_the_whole_file_by_offset(stage: Any) -> None:
    async with stage() as s:
        s.fake.log = "".join(f"line {n}\n" for n in range(40_000)).encode()
        await s.pilot.press("l")
        await s.until(lambda: "line 39999" in s.text())
        await s.pilot.press("pageup")
        await s.until(lambda: "line 39999" not in s.text() and "line 39950" in s.text())
        await s.pilot.press("g")
        await s.until(lambda: "line 0 " in s.text())
        await s.pilot.press("pagedown")
        await s.until(lambda: "line 60" in s.text())
        await s.pilot.press("G")
        await s.until(lambda: "following" in s.text() and "line 39999" in s.text())
        s.fake.log += b"the newest line\n"
        await s.until(lambda: "the newest line" in s.text())
        assert isinstance(s.app.screen, LogScreen)
        await s.pilot.press("q")
        await s.until(lambda: s.app.screen is s.dashboard)


async def test_detach_leaves_the_training_alone(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("q")
        await s.until(lambda: not s.app.is_running or s.app._exit)
        assert not s.fake.commands


async def test_keys_can_be_remapped(stage: Any) -> None:
    async with stage() as s:
        s.app.set_keymap({"pause": "z"})
        await s.pilot.press("p", "z")
        assert [c.verb for c in await sent(s)] == ["pause"]


async def test_every_binding_has_an_id_and_a_tooltip(stage: Any) -> None:
    from carbontui.tui.screens.dashboard import Dashboard

    assert all(binding.id and binding.tooltip for binding in Dashboard.BINDINGS)  # type: ignore[union-attr]


async def test_equal_news_repaints_nothing(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as s:
        painted: list[object] = []
        for widget in (s.dashboard.query_one(ForecastChart), s.dashboard.query_one(StatusLine)):
            monkeypatch.setattr(widget, "refresh", lambda *a, **k: painted.append(a))
        before = s.dashboard.view_state.seq
        s.fake.push(status=s.fake.status(step=s.fake.snap.status.step + 1))
        await s.until(lambda: s.dashboard.view_state.seq > before)
        assert painted == []


async def test_two_screens_look_at_one_job(stage: Any, tmp_path: Any) -> None:
    from acting import app_on

    async with stage() as s:
        second = app_on(s.fake.path)
        async with second.run_test(size=(80, 24)):
            s.fake.push(status=s.fake.status(step=7777))
            await s.until(lambda: "7,777" in s.text())
    assert isinstance(s.fake, FakeSupervisor)


async def test_a_frontier_that_comes_later_is_drawn(stage: Any) -> None:
    """The slider and the curve are hidden until there is a choice; a hidden drawing must not remember its rows."""
    async with stage() as s:
        frontier = s.fake.snap.frontier
        for _ in range(2):
            s.fake.push(frontier=None)
            await s.until(lambda: "no choice to draw yet" in s.text())
            s.fake.push(frontier=frontier)
            await s.until(lambda: "CO₂ against finish" in s.text() and "1.80×" in s.text())
        await s.pilot.resize_terminal(40, 15)
        await s.pilot.resize_terminal(120, 40)
        await s.until(lambda: "CO₂ against finish" in s.text())


async def test_the_end_stands_before_what_was_emitted_on_the_way(stage: Any) -> None:
    """On the way a plan that pauses is more than running now: shown first, it would read as a plan that fails."""
    async with stage() as s:
        end = protocol.AtEnd(
            finish=units.iso(NOW + 9000), energy_wall_kwh=9.0, gco2_g=4250.0, gco2_lo_g=3900.0, gco2_hi_g=4600.0,
            run_now_g=4566.0, avoided_g=316.0,
        )  # fmt: skip
        s.fake.push(status=s.fake.status(at_end=end, gco2_g=1310.0, avoided_g=-467.0))
        await s.until(lambda: "at end" in s.text())
        side = [line[76:] for line in s.text().splitlines()]
        rows = [next(i for i, line in enumerate(side) if word in line) for word in ("at end", "run now", "so far")]
        assert rows == sorted(rows)
        assert "4.25 kg F 3.90 kg to 4.60 kg" in side[rows[0]] and "plan −316 g, −7 %" in side[rows[1]]
        assert "467 g above run now" in side[rows[2]]
        assert "pauses cost first, then pay off" in side[rows[2] + 1]
        used = protocol.Amounts(
            elapsed_s=60.0, steps=5, energy_gpu_kwh=1.0, energy_wall_kwh=1.0, gco2_g=1310.0, avoided_g=0.0
        )
        told = {"gco2_g": 1310.0, "avoided_g": 0.0, "account": protocol.Account(so_far=used)}
        s.fake.push(status=s.fake.status(at_end=None, **told))
        await s.until(lambda: "full speed throughout" in s.text())
        apart = {"elapsed_s": 300.0, "steps": 40, "energy_gpu_kwh": 0.01, "energy_wall_kwh": 0.01, "gco2_g": 5.15}
        s.fake.push(status=s.fake.status(excluded=[protocol.Excluded(reason="calibration", **apart)], **told))
        await s.until(lambda: "besides     5.15 g   by the calibration" in s.text())


async def test_the_smallest_screen_shows_state_watts_progress_and_grams(stage: Any) -> None:
    async with stage("paused", size=(40, 15)) as s:
        for said in ("PAUSED", "135 W", "42 % of 14,400 steps", "626 g"):
            assert said in s.text(), said


async def test_the_terminals_own_palette_never_paints_in_bright_black(stage: Any) -> None:
    """Solarized and others use it for their background: words, rules and columns in it cannot be seen."""
    async with stage("override", theme="ansi-dark") as s:
        await s.pilot.pause()
        hidden = [
            segment.text
            for strip in s.app.screen._compositor.render_strips()
            for segment in strip
            if segment.style and segment.style.color and segment.style.color.number == 8
            if segment.text.strip()
        ]
        assert not hidden, hidden


async def test_a_flat_frontier_is_drawn_flat_and_its_axis_names_times(stage: Any) -> None:
    async with stage() as s:
        frontier = s.fake.snap.frontier
        points = tuple(structs.replace(p, gco2_g=3310.0 - i * 0.01) for i, p in enumerate(frontier.points))
        s.fake.push(frontier=structs.replace(frontier, points=points))
        await s.until(lambda: "3.31 kg" in s.text())
        assert s.text().count("3.31 kg") == 1
        side = [line[75:] for line in s.text().splitlines()]
        axis = next(line for line in side if "Thu 06:00" in line)
        assert "Fri 20:24" in axis, "from the tightest budget's finish to the loosest's"


async def test_one_finish_is_told_wherever_it_stands(stage: Any) -> None:
    """A plan is kept for a small gain: the frontier's point may be another, and is not what will happen."""
    async with stage() as s:
        s.fake.push(status=s.fake.status(finish_expected=units.iso(NOW + 3 * 3600)))
        await s.until(lambda: "ends Thu 00:24" in s.text())
        assert "finish Thu 00:24" in s.text()


async def test_without_a_choice_the_deadline_stays_in_sight(stage: Any) -> None:
    async with stage() as s:
        frontier = s.fake.snap.frontier
        s.fake.push(frontier=structs.replace(frontier, points=frontier.points[:1], chosen=0))
        await s.until(lambda: "a later finish would not emit less" in s.text())
        assert "budget 1.80×" in s.text() and "deadline Fri 01:15" in s.text()
    async with stage(size=(80, 24)) as s:
        assert "finish Thu 16:00" in s.text() and "due Fri 01:15" in s.text()


@pytest.mark.parametrize("width", [76, 90])
async def test_a_long_source_loses_no_word_at_any_width(stage: Any, width: int) -> None:
    source = " ".join(f"word{i}" for i in range(24))
    async with stage(size=(width, 40)) as s:
        found = {**s.fake.snap.status.provenance, "power_w": protocol.Provenance("estimated", source, 1.0)}
        s.fake.push(status=s.fake.status(provenance=found))
        await s.pilot.press("i")
        await s.until(lambda: "word23" in s.text())
        assert all(f"word{i}" in s.text() for i in range(24)), s.text()


async def test_the_axis_names_its_clock(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    async with stage() as s:
        assert any(line.startswith("  IST ") and "now" in line for line in s.text().splitlines())


async def test_a_reason_that_is_too_long_says_that_it_goes_on(stage: Any) -> None:
    async with stage() as s:
        s.fake.push(status=s.fake.status(reason=protocol.Reason("no_zone", "first " + "and more " * 60 + "last")))
        await s.until(lambda: "first and more" in s.text())
        assert " …" in "".join(s.text().splitlines()[:4]) and "last" not in s.text()


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (60, 20)])
async def test_the_sentence_of_a_pause_is_whole_and_so_is_the_key_that_ends_it(
    stage: Any, size: tuple[int, int]
) -> None:
    told = (
        "Paused by anna@pts/2 until cleared: no work is done meanwhile; paused beyond Mon 07:15 the budget becomes"
        " unreachable."
    )
    async with stage("paused", size=size) as s:
        plan = structs.replace(s.fake.snap.plan, explanation=told)
        held = protocol.Override("pause", None, None, "anna@pts/2")
        s.fake.push(plan=plan, status=s.fake.status(override=held, reason=protocol.Reason("override", "paused")))
        await s.until(lambda: "Paused by anna" in s.text())
        shown = " ".join(" ".join(s.text().splitlines()[:5]).split())
        assert "becomes unreachable." in shown and "r: resume the plan" in shown, shown


async def test_a_reason_that_is_too_long_ends_with_a_clause_not_within_a_figure(stage: Any) -> None:
    plan = (
        "Running at cap 410 W until 08:00, then at 490 W until 15:15 saves 891 g against running now, after 275 g " * 2
    )
    async with stage(size=(112, 36)) as s:
        s.fake.push(status=s.fake.status(reason=protocol.Reason("no_zone", plan)))
        await s.until(lambda: "saves 891 g against running now …" in s.text())


async def test_a_time_to_go_is_whole_or_not_there(stage: Any) -> None:
    async with stage(size=(36, 14)) as s:
        assert "next: pause at Thu 02:00" in s.text() and "in 4" not in s.text()


async def test_whether_the_screen_is_in_touch_is_seen_at_every_width(stage: Any) -> None:
    async with stage("override", size=(46, 20)) as s:
        assert "PAUSED" in s.text() and "live" in s.text() and "charlm" in s.text()
        assert "Paused by ada@pts/3 until" in s.text()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"state": "waiting", "override": None}, "b: start it now"),
        ({"state": "paused", "override": None}, "b: run it now"),
        ({"state": "running", "override": None}, "p: pause it"),
        ({"next": None}, "r: resume the plan"),
        ({"state": "running", "override": None, "guess": GUESS, "steps_total": None}, "g: plan with 5,000 steps"),
        ({"next": protocol.Next(units.iso(NOW), "full")}, "next: full speed at 21:24 · r: resume the plan"),
    ],
)
async def test_the_key_that_leads_on_is_named(stage: Any, fields: dict[str, Any], said: str) -> None:
    async with stage("override", size=(80, 24)) as s:
        s.fake.push(status=s.fake.status(**fields))
        await s.until(lambda: said in s.text())
    async with stage("override", readonly=True) as s:
        s.fake.push(status=s.fake.status(**fields, step=8888))
        await s.until(lambda: "8,888" in s.text())
        assert said not in s.text(), "no key of a read-only screen changes anything"


async def test_ctrl_c_leaves_and_says_that_the_training_goes_on(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async with stage() as s:
        said: list[Any] = []
        leave = s.app.exit
        monkeypatch.setattr(s.app, "exit", lambda *a, **k: (said.append(k), leave(*a, **k)))
        await s.pilot.press("question_mark", "ctrl+c")
        await s.until(lambda: s.app._exit)
        assert said[0]["message"] == "charlm continues; return to it with: carbontui attach k7q2mz"
        assert not s.fake.commands


@pytest.mark.parametrize("key", ["question_mark", "i", "d", "c", "S", "l"])
async def test_every_page_is_written_in_letters_the_terminal_has(stage: Any, key: str) -> None:
    async with stage(ascii=True, size=(80, 24)) as s:
        await s.pilot.press(key)
        await s.until(lambda: s.app.screen is not s.dashboard or s.app.screen.query(Prompt))
        await s.pilot.pause()
        strange = {char for char in s.text() if not char.isascii()}
        assert not strange, strange


async def test_keys_are_named_in_letters_the_terminal_has(stage: Any) -> None:
    async with stage(ascii=True, size=(120, 40)) as s:
        await s.pilot.press("end")
        await s.until(lambda: "enter commit" in s.text())
        last = s.text().splitlines()[-1]
        assert last.isascii() and "<> budget" in last, last


async def test_a_pause_that_waits_for_the_end_of_a_step_says_so(stage: Any) -> None:
    async with stage() as s:
        s.fake.push(status=s.fake.status(state="pausing", level="pause"))
        await s.until(lambda: "PAUSING  until its next step ends" in s.text())


def test_the_knob_stands_at_the_budget_not_at_the_plans_end() -> None:
    """'2.00×' beside a knob at the tightest end made two numbers of one."""
    shown = fold(None, scene("running"))
    assert shown is not None and shown.frontier is not None and shown.status.budget is not None
    slider = BudgetSlider()
    places = []
    for chosen in (0, shown.frontier.chosen):
        view_state = replace(shown, frontier=structs.replace(shown.frontier, chosen=chosen))
        slider.show_choice(view_state, None)
        places.append("".join(text for text, _ in slider.draw(60, 3)[0]).index("●"))
    assert places[0] == pytest.approx(places[1], abs=2) and places[0] > 10
    longer = structs.replace(shown.frontier, reference_s=shown.frontier.reference_s * 1.3)
    slider.show_choice(replace(shown, frontier=longer), None)
    assert "1.80×" in "".join(text for text, _ in slider.draw(60, 3)[0]), "as status says it, whatever the work is now"


async def test_a_board_that_others_use_shows_how_much_of_it_is_this_jobs(stage: Any) -> None:
    """A job on the CPU of a machine whose boards draw kilowatts for others draws none of them."""
    async with stage() as s:
        others = tuple(structs.replace(gpu, power_w=640.0, own_w=0.0) for gpu in s.fake.snap.status.gpus)
        s.fake.push(status=s.fake.status(gpus=others, power_w=12.0))
        await s.until(lambda: "0 of  640 W ~" in s.text() and "this job's part of each, the rest other" in s.text())
        await s.pilot.press("d")
        await s.until(lambda: "0 W ~ of it this job's, the rest other programs'" in s.text())


async def test_boards_of_others_in_one_line_are_not_this_jobs_watts(stage: Any) -> None:
    async with stage(gpus=8, size=(80, 24)) as s:
        others = tuple(structs.replace(gpu, power_w=640.0, own_w=0.0) for gpu in s.fake.snap.status.gpus)
        s.fake.push(status=s.fake.status(gpus=others, power_w=12.0))
        await s.until(lambda: "0 W of 5120 W this job's ~" in s.text() and "the rest other programs'" in s.text())
        assert any("the rest other programs'" in row for row in status.report(s.fake.snap.status))


async def test_escape_and_a_letter_in_one_packet_both_arrive(stage: Any) -> None:
    async with stage() as s:
        await s.pilot.press("question_mark")
        await s.until(lambda: "marks in charts" in s.text())
        s.app.post_message(Key("alt+p", "p"))
        await s.until(lambda: s.fake.commands and s.fake.commands[0].verb == "pause")


async def test_the_work_alone_fills_the_charts_and_the_whole_comes_back(stage: Any) -> None:
    def hours(s: Any) -> str:
        return next(line for line in s.text().splitlines() if line.startswith("  UTC"))

    async with stage() as s:
        whole = hours(s)
        await s.pilot.press("z")
        await s.until(lambda: "zoom: the work" in s.text() and hours(s) != whole)
        await s.pilot.press("z")
        await s.until(lambda: "zoom: the whole" in s.text() and hours(s) == whole)


async def test_a_tighter_budget_never_previews_a_later_end(stage: Any) -> None:
    async with stage() as s:
        early = units.iso(START + 1.2 * WORK_S)
        s.fake.push(status=s.fake.status(finish_expected=early))
        await s.until(lambda: s.dashboard.view_state.status.finish_expected == early)
        await s.pilot.press("left")
        await s.until(lambda: s.dashboard.choice)
        assert s.dashboard.choice.finish_s(START) < units.from_iso(early)


async def test_a_headline_of_a_replay_can_be_read_before_the_next(stage: Any) -> None:
    async with stage("demo") as s:
        s.fake.push(status=s.fake.status(reason=protocol.Reason("no_zone", "another plan"), step=8888))
        await s.until(lambda: s.dashboard.view_state.status.step == 8888)
        assert "another plan" not in s.text() and "8,888" not in s.text(), "a page is of one moment"
        s.fake.push(status=s.fake.status(reason=protocol.Reason("no_zone", "it is held"), state="paused"))
        await s.until(lambda: "it is held" in s.text())
