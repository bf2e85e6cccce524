"""A run in short sentences, from its facts alone: the same facts give the same text."""

from itertools import groupby

from carbontui import units
from carbontui.account.elapsed import EVENT, EVENT_HELD
from carbontui.account.split import PARKED
from carbontui.reports import figures
from carbontui.reports.story import RunStory
from carbontui.text import account as words
from carbontui.text import figures as form
from carbontui.text import sources
from carbontui.text.plan import proof

MOMENT_S = 1.0
SHOWN = 40
"""Decisions listed one by one; of more, the first and the last."""


def story_of(story: RunStory) -> list[str]:
    """The run in a few sentences, a paragraph each."""
    besides = f"Besides: {'; '.join(map(words.excluded, story.excluded))}." if story.excluded else ""
    return [text for text in (_what(story), _how(story), _account(story), besides) if text]


def ending(story: RunStory) -> tuple[tuple[str, str], ...]:
    """(label, text) of a finished job: what saved it, and how good the first word was."""
    levers = [f"{figure.label} {figure.value}" for figure in figures.parts(story)[:-1]]
    means = " · ".join([*levers, *figures.later(story)])
    return (*([("saved by", means)] if levers else []), *first_said(story))


def first_said(story: RunStory) -> list[tuple[str, str]]:
    """What the first forecast said of the whole, beside what came, of a run that is over."""
    first, grams = story.first, story.gco2_g
    if first is None or not story.over or story.status.moved_to:  # it spoke of the whole, here is a part
        return []
    band = f" ({between})" if first.band_g and (between := form.between(form.grams, *first.band_g)) else ""
    at, done = (form.clock(when, story.start_s) for when in (first.at_s, first.finish_s))
    was = f"was {form.grams(grams)} at {form.clock(story.end_s, story.start_s)}"
    if story.status.state == "done" and grams is not None and first.gco2_g > 0:  # only of one that got to its end
        off = grams / first.gco2_g - 1.0
        was += f" · forecast missed by {form.signed(off, form.percent) if abs(off) >= 0.005 else form.percent(0.0)}"
    return [("first said", f"{form.grams(first.gco2_g)}{band} at {at}, done {done}; {was}")]


def _what(story: RunStory) -> str:
    status = story.status
    zone = f" in {where}" if (where := figures.zone(story)) else ""
    ran = f"{status.name} began {figures.date_and_clock(story.start_s)} {form.clock_name(story.start_s)}{zone}"
    if story.over:
        same_day = figures.date_and_clock(story.end_s)[:10] == figures.date_and_clock(story.start_s)[:10]
        ended = form.clock(story.end_s, story.start_s) if same_day else figures.date_and_clock(story.end_s)
        end = f"and ended {ended}, after {form.duration(story.elapsed_s)}"
        return f"{ran} {end}: {status.reason.text}."
    return f"{ran} and has been running for {form.duration(story.elapsed_s)}: {status.reason.text}."


def _how(story: RunStory) -> str:
    pauses = _stood_still(story)
    seconds = {part.name: part.seconds for part in story.by_state}
    said = []
    if story.plans:
        gap = "" if story.worst_gap is None else f", {'each ' * (story.plans > 1)}{proof(story.worst_gap)}"
        said.append(f"{story.plans} {'plan was' if story.plans == 1 else 'plans were'} made{gap}.")
    if pauses:
        most = f", the longest for {form.duration(max(pauses))}" if len(pauses) > 1 else ""
        said.append(
            f"The work stood still {figures.times(len(pauses))}, for {form.duration(sum(pauses))} in all{most}."
        )
    elif not story.unmetered:
        said.append("The work never stood still.")
    if capped_s := seconds.get("throttled", 0.0) + seconds.get(EVENT, 0.0):
        said.append(f"It ran under a cap for {form.duration(capped_s)}")
        said[-1] += f" and at full speed for {form.duration(seconds.get('running', 0.0))}."
    elif seconds.get("running"):
        said.append(f"It ran at full speed for {form.duration(seconds['running'])}.")
    if people := sum(1 for decision in story.decisions if decision.code == "person"):
        said.append(f"A user overruled the plan {figures.times(people)}.")
    return " ".join(said)


def _stood_still(story: RunStory) -> list[float]:
    """Seconds of each time it stood still: on its way into a pause, in it and on its way out are one; the moment in
    which a start or a switch is decided is none."""
    stretches = groupby(story.spans, key=lambda span: span.state in PARKED | {"unloaded", EVENT_HELD})
    stood = (sum(span.end_s - span.start_s for span in group) for still, group in stretches if still)
    return [seconds for seconds in stood if seconds >= MOMENT_S]


def _drawn(story: RunStory) -> str:
    return f"{words.energy(story.energy_wall_kwh, story.account)} {figures.counted(story)}"


def _account(story: RunStory) -> str:
    if story.unmetered:
        return f"Its energy and emissions are not known: {form.NOT_METERED}."
    if story.energy_wall_kwh <= 0 and story.excluded:
        return "Nothing of it was work: its account is empty."
    known = story.status.coverage
    covered = f" (metered {words.metered(story.status)})" if known is not None and known.gap_s > 0 else ""
    energy = f"It drew {_drawn(story)}{covered}"
    if story.gco2_g is None:
        return f"{energy}; its emissions are not known, because no grid value was."
    mean = "" if story.intensity_mean is None else f" at {story.intensity_mean:.0f} g/kWh on average"
    text = f"{energy} and emitted {form.grams(story.gco2_g)} CO2{mean}."
    if story.avoided_g is None:
        return f"{text} What running now would have emitted is not known: full-speed watts were not measured."
    less = story.avoided_g
    if story.run_now_g is None:
        return f"{text} It {words.NOTHING_HELD}."
    emitted = f" Run now, at full speed throughout, it would have emitted {form.grams(story.run_now_g)}"
    text += f"{emitted}: this is {words.against(less, story.run_now_g)}."
    split = story.split
    if split is None:
        return text
    told = [
        f"{name} {'saved' if grams > 0 else 'cost'} {form.grams(abs(grams))}"
        for part, (name, _) in figures.LEVERS.items()
        if abs(grams := getattr(split, part)) >= max(form.LEAST_G, 0.005 * abs(less))
    ]
    return f"{text} Of this, {_listed(told)}." if told else text


def decisions(story: RunStory) -> list[str]:
    """One line each: when, what, and why."""
    found: list[str] = []
    for made in story.decisions:
        if made.kind == "state" and made.state == "pausing":
            continue  # the pause itself follows
        who = "" if made.kind == "state" else "a user: "
        if not found or not found[-1].endswith(f"  {who}{made.text}"):  # entered anew for the same reason: told once
            found.append(f"{form.clock(made.at_s, story.start_s):>12}  {who}{made.text}")
    if len(found) <= SHOWN:
        return found
    half = SHOWN // 2
    left = len(found) - 2 * half + story.left_out
    return [*found[:half], f"{'...':>12}  {left} more", *found[-half:]]


def citation(story: RunStory) -> str:
    """One sentence to cite, with what its energy counts."""
    status, kind = story.status, story.options.boundary
    if story.unmetered:
        return f"The energy of {status.name} is not known: {form.NOT_METERED}."
    counted = f"{kind}: {status.boundary.counted}" if status.boundary else sources.COUNTS[kind]
    beside = (whole := words.whole_machine(status)) and f" (of the whole machine, with what it idles, {whole})"
    where = (zone := figures.zone(story)) and f" ({zone})"
    emitted = "" if story.gco2_g is None else f" and emitted {form.grams(story.gco2_g)} CO2{where}"
    return (
        f"{status.name} ({figures.hardware(story) or 'no GPU'}; {units.iso(story.start_s)[:10]},"
        f" {form.duration(story.elapsed_s)}) drew {_drawn(story)}{beside}{emitted},"
        f" {figures.metered_verb(story)} with carbontui {story.version}; boundary {counted}."
    )


def origin(story: RunStory) -> list[tuple[str, str]]:
    """What a reader needs to run it again."""
    commit, changed, _ = story.options.commit.partition("-dirty")
    return [
        ("machine", f"{story.status.host}: {figures.hardware(story) or 'no GPU'}"),
        ("driver", story.driver or "not known"),
        ("commit of the script", f"{commit or 'not known'}{', with uncommitted changes' if changed else ''}"),
    ]


def methods(story: RunStory) -> str:
    """A paragraph for the methods section of a paper."""
    if story.unmetered:
        return f"Energy was not measured: {form.NOT_METERED}."
    pue = f", times a PUE of {story.options.pue:g}" if story.options.pue != 1.0 else ", without cooling (PUE 1)"
    host = f", with {story.host_w:g} W for the rest of the host" if story.host_w else ""
    of = "accelerators, CPU and memory" if story.energy_gpu_kwh else "CPU and memory"
    of += ", above what they draw idle" if story.options.boundary == "always-on" else ""
    text = (
        f"Energy was {figures.metered_verb(story)} with carbontui {story.version} by"
        f" {figures.metered(story)} for {of}{host}{pue}: {words.energy(story.energy_wall_kwh, story.account)}"
        f" over {form.duration(story.elapsed_s)}."
    )
    if story.gco2_g is None:
        return text
    source = "; ".join(story.sources) or "no named source"
    kinds = figures.shares(story.grid_kinds, figures.KIND_WORDS)
    text += (
        " Emissions are the energy of each five minutes times the carbon intensity of the"
        f" {f'grid zone {zone}' if (zone := figures.zone(story)) else 'grid'} at that time (source: {source}; {kinds}):"
        f" {form.grams(story.gco2_g)} CO2."
    )
    if story.avoided_g is not None and story.run_now_g is not None:
        text += (
            " Avoided emissions are the difference to a counterfactual on the same realised intensities: the same work,"
            " started at once, with its time at full speed as it was, its capped work at the measured full power, and"
            f" no held time: {form.grams(story.avoided_g)} CO2. Energy drawn while paused, switching and reloading"
            " is included."
        )
    return f"{text} {figures.accuracy(story)}"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
