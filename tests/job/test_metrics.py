"""What Prometheus is told of a job: by names that stay, in a form that its parsers accept, nothing that is unknown."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from states import board, inputs, job_state, shown

from carbontui.job.supervisor.core.state.job import Totals
from carbontui.job.supervisor.shell import metrics
from carbontui.system.openmetrics import MonotonicCounter, render

NAMES = {
    "carbontui_job_info": "gauge",
    "carbontui_job_state": "gauge",
    "carbontui_job_provenance": "gauge",
    "carbontui_job_power_watts": "gauge",
    "carbontui_job_energy_joules": "counter",
    "carbontui_job_emissions_grams": "gauge",
    "carbontui_job_avoided_grams": "gauge",
    "carbontui_job_steps": "counter",
    "carbontui_job_intensity_grams_per_kwh": "gauge",
    "carbontui_board_power_watts": "gauge",
    "carbontui_board_own_power_watts": "gauge",
    "carbontui_board_share_ratio": "gauge",
    "carbontui_board_energy_joules": "counter",
    "carbontui_board_limit_watts": "gauge",
}
SHARED = board(foreign_pids=(9,), share=0.25)


def told(grams=12.5, kwh=0.25, **fields):
    totals = Totals(gpu_kwh=kwh, wall_kwh=2 * kwh, gco2_g=grams, avoided_g=3.0)
    state = job_state(totals=totals, **fields)
    return shown(state, inputs(boards=(SHARED,)))


def exposition(status=None, totals=None, joules=None):
    return render(metrics.families(status or told(), joules or {"GPU-a": 900_000.0}, totals or MonotonicCounter()))


def parsed(text):
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_names_types_and_units_are_what_dashboards_are_built_on():
    found = parsed(exposition())
    assert {name: family.type for name, family in found.items()} == NAMES
    assert all(family.documentation for family in found.values())


def test_a_textfile_is_classic_format_and_promtool_finds_nothing_to_say():
    text = exposition()
    samples = {sample.name for family in parsed(text).values() for sample in family.samples}
    heads = re.findall(r"# (?:HELP|TYPE) (\S+)", text)
    assert set(heads) == samples
    if (promtool := shutil.which("promtool")) is not None:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout + done.stderr) == (0, "")
    successor = MonotonicCounter()
    metrics.resume(successor, text)
    assert successor.at_least(f"{metrics.JOULES} wall", 0.0) == 1.8e6


def test_the_values_are_those_of_the_status_and_shares_are_the_jobs():
    def value(name, **labels):
        samples = [s for s in found[name].samples if labels.items() <= s.labels.items()]
        assert len(samples) == 1
        return samples[0].value

    found = parsed(exposition())
    assert value("carbontui_job_power_watts", carbontui_job="t") == 150.0
    assert value("carbontui_job_energy_joules", scope="wall") == 1.8e6
    assert value("carbontui_job_emissions_grams") == 12.5
    assert value("carbontui_board_power_watts", gpu="GPU-a") == 600.0
    assert value("carbontui_board_own_power_watts") == 150.0 and value("carbontui_board_share_ratio") == 0.25
    assert value("carbontui_board_energy_joules") == 900_000.0
    assert value("carbontui_job_provenance", figure="power_w") == 1.0
    assert found["carbontui_job_provenance"].samples[0].labels["how"] == "estimated"


def test_what_is_not_known_is_left_out_and_a_hostile_name_stays_a_label():
    text = exposition(told(grams=None, name='evil"} 1\n# EOF\n\x1b[2J\u202e\\'))
    found = parsed(text)
    assert "carbontui_job_emissions_grams" not in found and "# EOF" not in text.splitlines() and "\x1b" not in text
    assert found["carbontui_job_info"].samples[0].labels["name"].startswith('evil"} 1?# EOF??[2J?')


def test_a_counter_never_falls_not_even_across_supervisors():
    totals = MonotonicCounter()
    first = exposition(told(grams=12.5), totals)
    lowered = parsed(exposition(told(grams=11.0, kwh=0.2), totals))
    assert lowered["carbontui_job_emissions_grams"].samples[0].value == 11.0, "no counter: grid values are revised"
    successor = MonotonicCounter()
    metrics.resume(successor, first)
    after = parsed(exposition(told(grams=11.0, kwh=0.2), successor, {"GPU-a": 1.0}))
    assert {s.labels["scope"]: s.value for s in after["carbontui_job_energy_joules"].samples} == {
        "wall": 1.8e6,
        "boards": 0.9e6,
    }
    assert after["carbontui_board_energy_joules"].samples[0].value == 900_000.0


def test_the_dashboard_asks_for_nothing_that_is_not_told():
    file = Path(__file__).parents[2] / "examples" / "grafana-carbontui.json"
    board = json.loads(file.read_text())
    asked = {name for panel in board["panels"] for target in panel["targets"] for name in
             re.findall(r"carbontui_\w+", target["expr"])}  # fmt: skip
    known = {f"{name}_total" if kind == "counter" else name for name, kind in NAMES.items()}
    assert asked and asked - {metrics.JOB} <= known
    assert all(panel["title"] and panel["fieldConfig"]["defaults"]["unit"] for panel in board["panels"])
