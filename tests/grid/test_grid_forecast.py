"""The forecaster: never looks ahead, survives bad data, learns a daily shape, keeps its band's promise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbontui.grid.forecast import Forecaster, answer
from carbontui.grid.issues import Issue

START = 1861920000.0  # 1 Jan 2029, UTC
HOUR = 3600.0


def series(days: int, step: float = HOUR, seed: int = 1) -> tuple[list[float], np.ndarray]:
    """A daily wave, a level that wanders over days, and noise that fades within hours."""
    per_day = round(24 * HOUR / step)
    rng = np.random.default_rng(seed)
    count = days * per_day
    k = np.arange(count)
    wander = np.repeat(np.cumsum(rng.normal(0, 15, days)) * 0.5, per_day)
    noise = np.zeros(count)
    for n in range(1, count):
        noise[n] = 0.9 ** (24 / per_day) * noise[n - 1] + rng.normal(0, 8 * np.sqrt(24 / per_day))
    values = 300 + 90 * np.sin(2 * np.pi * k / per_day) + wander + noise
    return [START + n * step for n in range(count)], np.maximum(values, 20)


@pytest.fixture(scope="module")
def history() -> tuple[list[float], np.ndarray]:
    return series(200)


def issues(times: list[float], values: np.ndarray, until: int, bias: float = 20.0) -> list[Issue]:
    """A published forecast a day, too high by a constant, of the true future."""
    days = [k for k in range(until - until % 24 - 27 * 24, until + 1, 24) if k <= until]
    return [
        Issue(issued_at_s=times[k], times_s=times[k : k + 96], values=list(values[k : k + 96] + bias)) for k in days
    ]


def test_it_beats_yesterday_and_an_issue_with_a_bias_helps_more(history) -> None:
    times, values = history
    fitted = Forecaster.fit(times[: 120 * 24], values[: 120 * 24])
    own, both, naive = [], [], []
    for k in range(150 * 24, 190 * 24, 19):
        truth = values[k : k + 24]
        recent = times[k - 28 * 24 : k], values[k - 28 * 24 : k]
        own.append(np.abs(fitted.predict(times[k], *recent, 24).mean - truth).mean())
        blended = fitted.predict(times[k], *recent, 24, issues(times, values, k))
        both.append(np.abs(blended.mean - truth).mean())
        naive.append(np.abs(values[k - 24 : k] - truth).mean())
        assert "blended" in blended.provenance
    assert np.mean(own) < 0.8 * np.mean(naive)
    assert np.mean(both) < 0.5 * np.mean(own)


def test_the_band_covers_four_values_in_five(history) -> None:
    times, values = history
    fitted = Forecaster.fit(times[: 120 * 24], values[: 120 * 24])
    hits = {lead: [] for lead in (1, 6, 24, 48)}
    for k in range(130 * 24, 195 * 24, 5):
        made = fitted.predict(times[k], times[k - 28 * 24 : k], values[k - 28 * 24 : k], 48)
        for lead, found in hits.items():
            found.append(made.lo[lead - 1] <= values[k + lead - 1] <= made.hi[lead - 1])
    for lead, found in hits.items():
        assert 0.72 <= np.mean(found) <= 0.88, lead


def test_nothing_at_or_after_now_is_looked_at(history) -> None:
    times, values = history
    k = 150 * 24
    other = values.copy()
    other[k:] = 5000.0
    published = issues(times, values, k + 5 * 24)
    known = [issue for issue in published if issue["issued_at_s"] <= times[k]]
    results = []
    for seen, said in ((values, published), (other, published), (values[:k], known)):
        fitted = Forecaster.fit(times[: 120 * 24], values[: 120 * 24])
        results.append(fitted.predict(times[k], times[: len(seen)], seen, 72, said))
    for other_result in results[1:]:
        for name in ("mean", "lo", "hi"):
            np.testing.assert_array_equal(getattr(results[0], name), getattr(other_result, name))


@pytest.mark.parametrize(("days", "step"), [(120, HOUR), (40, 900.0), (5, HOUR)])
@pytest.mark.parametrize("late_h", [1, 7, 36])
def test_a_late_forecast_is_the_one_of_the_last_known_hour_without_what_has_passed(days, step, late_h) -> None:
    times, values = series(days + 3, step)
    k, late = days * round(86400 / step), round(late_h * HOUR / step)
    known = times[: k - late], values[: k - late]
    then = Forecaster.fit(*known).predict(times[k - late], *known, 48 + late)
    padded = np.append(known[1], np.full(late, np.nan))  # as the feed asks: hours that have not come are not known
    for now in (
        Forecaster.fit(*known).predict(times[k], *known, 48),
        Forecaster.fit(times[:k], padded).predict(times[k], times[:k], padded, 48),
    ):
        for name in ("mean", "lo", "hi"):
            np.testing.assert_array_equal(getattr(now, name), getattr(then, name)[late:])
    assert now.mean.shape == now.lo.shape == now.hi.shape == (48,)
    prompt = Forecaster.fit(times[:k], values[:k]).predict(times[k], times[:k], values[:k], 48)
    assert (now.hi - now.lo)[: round(HOUR / step)].mean() > (prompt.hi - prompt.lo)[: round(HOUR / step)].mean()


def test_an_issue_that_came_since_the_last_value_is_blended_in(history) -> None:
    times, values = history
    k, late = 150 * 24, 7  # midnight: today's issue is seven hours newer than the last value
    said = issues(times, values, k)
    higher: Issue = {**said[-1], "values": [value + 80 for value in said[-1]["values"]]}
    known = times[: k - late], values[: k - late]
    fit = Forecaster.fit
    made = [fit(*known).predict(times[k], *known, 24, [*said[:-1], last]).mean.mean() for last in (said[-1], higher)]
    assert said[-1]["issued_at_s"] == times[k] and 40 < made[1] - made[0] < 90


@pytest.mark.parametrize("step", [300.0, 900.0, 1800.0, 3 * HOUR])
def test_other_resolutions_keep_their_own(step) -> None:
    times, values = series(60, step)
    now = len(times) - 48
    made = Forecaster.fit(times[:now], values[:now]).predict(times[now], times[:now], values[:now], 40)
    truth = values[now : now + 40]
    assert np.abs(made.mean - truth).mean() < 60 and np.all((made.lo <= made.mean) & (made.mean <= made.hi))


def test_days_of_history_are_enough_for_an_honest_guess() -> None:
    times, values = series(9)
    for days in (1, 3, 6):
        k = days * 24
        made = Forecaster.fit(times[:k], values[:k]).predict(times[k], times[:k], values[:k], 48)
        assert np.abs(made.mean - values[k : k + 48]).mean() < 90 and "last days" in made.provenance
    two = Forecaster.fit(times[:2], values[:2]).predict(times[2], times[:2], values[:2], 4)
    assert np.isfinite([two.mean, two.lo, two.hi]).all()


def test_the_band_of_a_short_history_is_as_wide_as_its_own_forecast_was_wrong() -> None:
    steady = [START + k * HOUR for k in range(8 * 24)]
    wave = 300 + 120 * np.sin(2 * np.pi * np.arange(len(steady)) / 24)
    made = Forecaster.fit(steady, wave).predict(steady[-1] + HOUR, steady, wave, 48)
    assert (made.hi - made.lo).max() < 0.5 * 2.563 * wave.std(), "days that repeat are well known"
    hits = []
    for seed in range(8):
        times, values = series(12, seed=seed)
        for k in range(8 * 24, 10 * 24, 7):
            made = Forecaster.fit(times[:k], values[:k]).predict(times[k], times[:k], values[:k], 48)
            hits.append(np.mean((made.lo <= values[k : k + 48]) & (values[k : k + 48] <= made.hi)))
    assert 0.7 < np.mean(hits) < 0.95


@pytest.mark.parametrize("days", [2, 7, 14])
def test_with_days_of_history_the_band_is_not_narrower_than_the_truth(days) -> None:
    hits, first = [], []
    for seed in range(20):
        times, values = series(days + 4, seed=100 + seed)
        known = times[: days * 24], values[: days * 24]
        made = Forecaster.fit(*known).predict(times[days * 24], *known, 96)
        truth = values[days * 24 :]
        hits.append(np.mean((made.lo <= truth) & (truth <= made.hi)))
        first.append(abs(made.mean[0] - truth[0]))
    assert np.mean(hits) > 0.7
    assert np.mean(first) < 15, "the next hour is near the last one"


@pytest.mark.parametrize(("days", "step"), [(2, HOUR), (5, 900.0), (9, 900.0), (60, HOUR)])
def test_no_end_of_a_day_or_of_a_horizon_tears_the_curve(days, step) -> None:
    day, bends = round(24 * HOUR / step), []
    for seed in range(12):
        times, values = series(days, step, seed=200 + seed)
        values += 60 * np.sin(2 * np.pi * np.arange(len(times)) / (7 * day))
        now = len(times) - 1 - round(seed * 2 * HOUR / step)  # at every other hour of the day
        made = Forecaster.fit(times[:now], values[:now]).predict(times[now], times[:now], values[:now], 6 * day)
        bends.append(np.abs(np.diff(made.mean, 3)))  # how far each step differs from those beside it
    usual = np.mean(bends, axis=0)
    assert max(usual[k * day - 2] for k in (1, 2, 3, 4)) < 2 * np.median(usual) + 1


def test_gaps_nans_spikes_order_and_doubles_do_no_harm(history) -> None:
    times, values = history
    rng = np.random.default_rng(3)
    torn = values.copy()
    torn[rng.random(torn.size) < 0.1] = np.nan
    torn[1000:1100] = np.nan
    torn[150 * 24 - 3 : 150 * 24] = np.nan  # the newest are missing too
    torn[500] = np.inf
    order = rng.permutation(150 * 24)
    shuffled = [times[n] for n in order] + [times[7]]
    fitted = Forecaster.fit(shuffled, np.append(torn[order], torn[7]))
    k = 150 * 24
    made = fitted.predict(times[k], times[k - 672 : k], torn[k - 672 : k], 48)
    assert np.abs(made.mean - values[k : k + 48]).mean() < 70 and "ridge" in made.provenance
    assert np.all((made.lo <= made.mean) & (made.mean <= made.hi) & np.isfinite(made.hi))


def test_a_constant_series_stays_constant() -> None:
    times, _ = series(60)
    flat = np.full(len(times), 250.0)
    made = Forecaster.fit(times, flat).predict(times[-1] + HOUR, times[-200:], flat[-200:], 72)
    np.testing.assert_allclose(made.mean, 250, atol=1e-6)


def test_a_published_forecast_in_another_unit_is_set_aside(history) -> None:
    times, values = history
    k = 150 * 24
    known = issues(times, values, k)
    quarters = [
        Issue(
            issued_at_s=issue["issued_at_s"],
            times_s=[when + n * 900.0 for when in issue["times_s"] for n in range(4)],
            values=np.repeat(issue["values"], 4).tolist(),
        )
        for issue in known
    ]
    slipped: list[Issue] = [{**issue, "values": [1000 * value for value in issue["values"]]} for issue in known]
    made = [
        Forecaster.fit(times[: 120 * 24], values[: 120 * 24]).predict(times[k], times[:k], values[:k], 48, said).mean
        for said in (known, known[::-1], quarters, slipped, ())
    ]
    np.testing.assert_allclose(made[1], made[0])
    np.testing.assert_allclose(made[2], made[0])
    np.testing.assert_allclose(made[3], made[4])


def test_leaps_that_always_return_are_believed_less_than_leaps_that_last(history) -> None:
    times, values = history
    spiky, stepped = values.copy(), values.copy()
    hits = range(125 * 24 + 5, 150 * 24 - 1, 37)
    for n, k in enumerate(hits):
        spiky[k] += 250
        stepped[k : k + 37] += 250 * (n % 2)  # up, and half a period of hours later down again
    k = 150 * 24
    errors = []
    for known in (spiky, stepped):
        seen = known[:k].copy()
        seen[-1] = values[k - 1] + 250
        fitted = Forecaster.fit(times[: 120 * 24], values[: 120 * 24])
        errors.append(fitted.predict(times[k], times[k - 672 : k], seen[k - 672 : k], 1).mean[0] - values[k])
    assert errors[0] < 0.75 * errors[1]


def test_a_short_erratic_history_is_not_worse_than_the_same_hour_of_the_last_week() -> None:
    times, values = series(40, seed=5)
    rng = np.random.default_rng(8)
    values = np.maximum(20, values + np.repeat(rng.normal(0, 80, 40 * 4), 6))  # weather that nothing here foretells
    own, week = [], []
    fitted = Forecaster.fit(times[: 30 * 24], values[: 30 * 24])
    for k in range(30 * 24, 38 * 24, 5):
        made = fitted.predict(times[k], times[:k], values[:k], 48).mean[24:]
        usual = np.mean([values[k - 24 * day : k - 24 * day + 24] for day in range(1, 8)], axis=0)
        own.append(np.abs(made - values[k + 24 : k + 48]).mean())
        week.append(np.abs(usual - values[k + 24 : k + 48]).mean())
    assert np.mean(own) < 1.03 * np.mean(week)


def test_callers_may_hand_in_only_what_is_new(history) -> None:
    times, values = history
    short = Forecaster.fit(times[: 120 * 24], values[: 120 * 24])
    for k in range(120 * 24, 128 * 24, 6):
        made = short.predict(times[k], times[k - 6 : k], values[k - 6 : k], 24)
    whole = Forecaster.fit(times[: 120 * 24], values[: 120 * 24]).predict(times[k], times[:k], values[:k], 24)
    np.testing.assert_allclose(made.mean, whole.mean, rtol=1e-9)


def test_wrong_use_is_said() -> None:
    times, values = series(2)
    with pytest.raises(ValueError, match="47 times but 48 values"):
        Forecaster.fit(times[:-1], values)
    with pytest.raises(ValueError, match="at least two"):
        Forecaster.fit(times[:1], values[:1])
    fitted = Forecaster.fit(times, values)
    with pytest.raises(ValueError, match="at least one slot"):
        fitted.predict(times[-1], times, values, 0)
    with pytest.raises(ValueError, match="no value is known"):
        Forecaster.fit(times, np.full(48, np.nan)).predict(times[-1], times, np.full(48, np.nan), 4)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 40 * 24),
    st.lists(st.one_of(st.none(), st.floats(0, 2000)), min_size=2, max_size=120),
    st.integers(1, 200),
)
def test_any_recent_values_give_a_finite_ordered_answer(offset: int, recent: list[float | None], horizon: int) -> None:
    times, values = series(40)
    fitted = Forecaster.fit(times, values)
    now = START + 40 * 24 * HOUR + (offset - 20 * 24) * HOUR
    stamps = [now - HOUR * n for n in range(len(recent), 0, -1)]
    made = fitted.predict(now, stamps, [np.nan if v is None else v for v in recent], horizon)
    assert made.mean.shape == (horizon,) and np.isfinite([made.mean, made.lo, made.hi]).all()
    assert np.all((made.lo >= 0) & (made.lo <= made.mean) & (made.mean <= made.hi))


def test_with_a_short_history_the_worker_leans_on_typical_days() -> None:
    times, values = series(5)
    request = {
        "now_s": times[96],
        "start_s": times[0],
        "step_s": 3600.0,
        "values": [None, *values[1:96].tolist()],
        "horizon": 24,
        "typical": [300.0] * 24,
        "published": [],
        "key": "X",
    }
    alone, leaning = answer({**request, "typical": []}), answer(request)
    assert abs(leaning["mean"][0] - 300) < abs(alone["mean"][0] - 300)
    assert np.abs(np.array(leaning["mean"]) - 300).sum() < np.abs(np.array(alone["mean"]) - 300).sum()
    assert "typical days" in leaning["provenance"] and all(type(value) is float for value in leaning["hi"])
