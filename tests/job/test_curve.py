"""What a person is told of time: looser budgets, a finish that counts a pause, a budget that cannot be."""

from datetime import datetime, timedelta, timezone

import pytest
from house import until

from carbontui import link, units
from carbontui.job.files import store


@pytest.fixture
def job(house):
    """Two hours of work under the default budget; every day is dirty at this hour and clean two hours later."""
    now = datetime.now(timezone.utc).replace(second=0, microsecond=0)
    quarter = now.replace(minute=now.minute // 15 * 15)  # from the full hour on, the dirty time would be over too soon
    rows = [(quarter + timedelta(hours=h), 900 if h % 24 < 2 or h % 24 > 21 else 20) for h in range(-480, 48)]
    text = "".join(f"{t:%Y-%m-%dT%H:%M:%SZ},{v}\n" for t, v in rows)
    (house.root / "dirty_now.csv").write_text("time_utc,carbon_g_per_kwh\n" + text)
    job = house.start("--grid", "dirty_now.csv", "--zone", "DE", "--work", "2h")
    until(lambda: job.status().get("certificate"), 60, "a plan")
    job.until_steps()
    return job


def ends_in_s(job):
    status = job.status()
    end = status["finish_expected"]
    return None if end is None else units.from_iso(end) - units.from_iso(status["measured_at"])


def snap(job):
    return link.snap(store.load(job.dir).socket)


def test_a_budget_without_slack_still_shows_what_a_looser_one_would_save(job):
    frontier = until(lambda: snap(job).frontier, what="a frontier")
    assert frontier.chosen == 0 and len(frontier.points) > 2
    assert frontier.points[-1].finish_s > 1.5 * 7200
    # by how much depends on the watts of a machine that others may use
    assert frontier.points[-1].gco2_g < frontier.points[0].gco2_g


def test_grams_are_no_better_known_than_the_energy_they_come_from(job):
    """No board is here: CPU and host are modelled, and so is their CO2, on however well measured a grid."""
    how = {key: entry["how"] for key, entry in job.status()["provenance"].items()}
    assert how["energy_wall_kwh"] == how["gco2_g"] == "estimated"


def test_other_budgets_are_measured_against_the_plan_in_force(house, job):
    """Also where a person's word or a kept plan holds it off the curve."""
    house.cli("pause", job.id, "--for", "45m", check=True)
    picture = until(lambda: (s := snap(job)).plan.late_s > 1800 and s, what="a plan around the pause")
    point = picture.frontier.points[picture.frontier.chosen]
    start = units.from_iso(picture.status.budget.start)
    assert start + point.finish_s == pytest.approx(units.from_iso(picture.plan.finish), abs=1)
    assert point.levels == picture.plan.levels
    finishes = [entry.finish_s for entry in picture.frontier.points]
    assert finishes == sorted(finishes)


def test_the_finish_counts_a_pause_that_has_an_end_and_is_unknown_without_one(house, job):
    assert ends_in_s(job) == pytest.approx(7200, abs=120)
    house.cli("pause", job.id, "--for", "90m", check=True)
    assert ends_in_s(job) == pytest.approx(7200 + 5400, abs=1000), "a slot is a quarter of an hour"
    late = until(lambda: (p := snap(job).plan) and p.late_s > 3600 and p, what="a plan around the pause")
    assert [name for name, _ in late.levels] == ["pause", "full"]
    assert "does not fit before the deadline" in late.explanation
    # a deadline inside the pause: the plan goes on beyond it, as long as the pause and the work do
    said = house.cli("budget", "30m", job.id, check=True).stdout
    assert "cannot be met: at full speed the work ends" in said
    late = until(lambda: (p := snap(job).plan) and p.late_s > 2 * 5400 and p, what="a plan beyond the deadline")
    assert [name for name, _ in late.levels] == ["pause", "full"]
    assert units.from_iso(late.finish) - units.from_iso(late.start) == pytest.approx(7200 + 5400, abs=1000)
    house.cli("pause", job.id, check=True)
    assert ends_in_s(job) is None
    assert "finish" not in house.cli("status", job.id).stdout


def test_a_pause_that_ends_in_time_is_no_danger_to_the_budget(house, job):
    assert "cannot" not in house.cli("budget", "10x", job.id, check=True).stdout
    house.cli("pause", job.id, "--for", "30m", check=True)
    assert not any("unreachable" in note for note in job.status()["notices"])
    house.cli("pause", job.id, "--for", "30h", check=True)
    assert "this pause makes the budget unreachable" in job.status()["notices"]
    house.cli("pause", job.id, check=True)
    assert any("paused beyond" in note for note in job.status()["notices"])
