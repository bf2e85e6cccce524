"""Wrong input over all verbs: one line that names it, the documented exit code, and nothing done."""

from __future__ import annotations

import pytest

from carbontui import cli

T = ["--", "true"]
QUANTITIES = {
    "run --host-w": ["1e9", "lots", "-5", "５0", "300V", "", "nan", "inf", "2MW"],
    "run --board-w": ["0", "-1", "lots", "300kW", "３00W"],
    "run --intensity": ["0", "-3", "6kg", "300W", "nan", "３00"],
    "run --gpu-price": ["-1", "lots", "2EU", "２", "2EUR/week", "nan"],
    "run --price-per-kwh": ["-1", "x", "0.3€", "inf"],
    "run --carbon-price": ["-80", "80kg", "nan"],
    "run --currency": ["Eur0", "E", "euros", "12"],
    "run --pue": ["0.5", "11", "nan", "１.2"],
    "run --utilisation": ["2", "-1", "０.5", "most"],
    "run --boards": ["0", "２", "2.5", "-1", "1000000"],
    "run --steps": ["0", "-2", "１000", "1.5", "many"],
    "run --work": ["0h", "soon", "-2h", "8", "８h", "99999d", "8 weeks"],
    "run --budget": [
        "0.5x",
        "x",
        "soon",
        "25:00",
        "9",
        "mon",
        "2020-01-01 09:00",
        "today 00:00:61",
        "２x",
        "9999x",
        "0h",
    ],
    "run --max-pause": ["soon", "-1h", "４h"],
    "run --idle-limit": ["soon", "-30m", "３0m"],
    "run --zone": ["Atlantis", "DEE", "US", "ＤＥ"],
    "run --carbon-budget": ["2", "0kg", "-2kg", "２kg", "5kWh", "lots"],
    "run --cost-budget": ["lots", "-1EUR", "1２"],
    "run --energy-budget": ["5", "0kWh", "2kg", "５kWh"],
    "run --on-budget": ["explode", "", "warn,,explode"],
    "run --weight": ["carbon", "carbon=-1", "carbon=x,cost=1", "water=1"],
    "run --objective": ["speed", ""],
    "run --signal": ["mean"],
    "run --boundary": ["mine"],
    "run --gpu": ["Voodoo2"],
    "run --metrics": ["/no/such/folder/x"],
    "run --grid": ["/no/such/file.csv"],
    "run --log": ["/no/such/folder/run.log"],
    "run --name": ["-x", "two\nlines", "x" * 200],
    "run --resume-args": ["'"],
}
WRONG = [
    *((f"{key} {value!r}", [*key.split(), value, *T]) for key, values in QUANTITIES.items() for value in values),
    *((" ".join(words), words) for words in (
        ["run"], ["run", "--nonsense", *T], ["run", "--detach", "--wait", *T],
        ["run", "--objective", "cost", *T], ["run", "--objective", "time", *T], ["run", "--gpu-price", "2", *T],
        ["run", "--gpu-price", "2EUR", "--currency", "USD", *T], ["cap", "lots"], ["cap", "-300"], ["cap", "３00"],
        ["cap"], ["budget"], ["budget", "later"], ["budget", "2020-01-01 09:00"], ["pause", "--for", "soon"],
        ["pause", "--for", "0s"], ["pause", "--until", "later"], ["pause", "--until", "25:00"],
        ["boost", "--for", "-1h"],
        ["pause", "--for", "1h", "--until", "18:00"], ["rm"], ["frobnicate"], ["stauts"], ["--readonly", "pause"],
        ["forbid"], ["solve"], ["solve", "--zone", "DE"], ["solve", "--zone", "DE", "--work", "8h", "--watts", "0"],
        ["solve", "--zone", "DE", "--work", "8h", "--start", "then"],
        ["solve", "--zone", "DE", "--work", "8h", "--tol", "2"],
        ["solve", "--zone", "DE", "--work", "8h", "--host-w", "1e9"],
        ["grid", "--zone", "Atlantis"], ["demo", "--seconds", "1"], ["demo", "--seconds", "nan"], ["log", "-n", "-1"],
        ["report", "--per", "hour"], ["report", "--all", "--explain"],
        ["compare", "--zones", "--clouds"], ["estimate"],
    )),
]  # fmt: skip
NOBODY = [
    ["status", "nobody"], ["log", "nobody"], ["plan", "nobody"], ["pause", "nobody"], ["boost", "nobody"],
    ["cap", "300", "nobody"], ["resume", "nobody"], ["budget", "2x", "nobody"], ["stop", "nobody"], ["rm", "nobody"],
    ["attach", "nobody"], ["report", "nobody"], ["line", "nobody"],
    ["compare", "nobody"], ["guess", "nobody"], ["forbid", "22:00-06:00", "nobody"], ["forbid", "--clear", "nobody"],
    ["rehearse", "nobody"], ["restart", "nobody"], ["calibrate", "nobody"], ["status"], ["pause"],
]  # fmt: skip


def ends_with(words, code, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert ended.value.code == code, said.err
    assert len(said.err.strip().splitlines()) == 1 and said.out == "", said
    return said.err


@pytest.fixture
def typed(tmp_path, monkeypatch):
    monkeypatch.setenv("CARBONTUI_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115

    def type_(words):
        monkeypatch.setattr("sys.argv", ["carbontui", *words])

    return type_


@pytest.mark.parametrize("words", [words for _, words in WRONG], ids=[name for name, _ in WRONG])
def test_wrong_input_is_one_line_exit_code_2_and_nothing_is_done(words, typed, tmp_path, capsys):
    typed(words)
    ends_with(words, 2, capsys)
    assert not list(tmp_path.glob("home/jobs/*"))


@pytest.mark.parametrize("words", NOBODY, ids=" ".join)
def test_a_job_that_does_not_exist_is_exit_code_3(words, typed, capsys):
    typed(words)
    ends_with(words, 3, capsys)


def test_over_a_hundred_and_fifty_wrong_inputs_are_typed():
    assert len(WRONG) + len(NOBODY) >= 150
