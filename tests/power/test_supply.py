"""What the machine's supply says beside boards, CPU and memory."""

import pytest

from carbontui.power.messages import HostReading
from carbontui.power.metering import supply
from carbontui.power.metering.supply import Supply, dcmi_w
from carbontui.power.metering.witness import Parts

SAID = """
    Instantaneous power reading:                  3450 Watts
    Minimum during sampling period:                412 Watts
"""


def hwmon(root, name, **files):
    folder = root / f"hwmon{len(list(root.iterdir()))}"
    folder.mkdir()
    (folder / "name").write_text(f"{name}\n")
    for file, text in files.items():
        (folder / file).write_text(text)
    return folder


EIGHT = Parts(8 * 700.0, 8, 128)


class Node:
    """A machine's supply read each second beside its parts: boards that draw `boards_w`, CPU and memory 200 W."""

    def __init__(self, tmp_path, uw=0, parts=EIGHT, mine=8, jobs=1, pci=0):
        self.meter = hwmon(tmp_path, "power_meter", power1_average=str(uw or 1)) / "power1_average"
        for board in range(pci):
            folder = tmp_path / "pci" / f"0000:{board}"
            folder.mkdir(parents=True)
            (folder / "vendor").write_text("0x10de\n")
            (folder / "class").write_text("0x030200\n")
        self.supply, self.at_s = Supply(tmp_path, tmp_path / "pci"), 0.0
        self.parts, self.mine, self.host = parts, mine, HostReading(cpu_w=100.0, jobs=jobs)

    def seconds(self, count, supply_w, boards_w):
        for _ in range(count):
            self.at_s += 1.0
            self.meter.write_text(str(round(supply_w * 1e6)))
            found = self.supply.beside(self.host, 200.0, boards_w, self.parts, self.mine, self.at_s)
        (verdict,) = found.witnesses
        return found, verdict


def test_an_acpi_meter_is_believed_after_a_minute_and_leaves_the_rest_to_its_jobs(tmp_path) -> None:
    node = Node(tmp_path, 1)
    found, verdict = node.seconds(30, 6500.0, 5000.0)
    assert (found.beside_w, verdict.verdict, verdict.scope) == (None, "doubted", "node"), "compared for too short"
    found, verdict = node.seconds(40, 6500.0, 5000.0)
    assert (found.beside_w, found.beside_by) == (pytest.approx(1300.0), "ACPI power meter, 8 of 8 GPUs")
    assert (verdict.verdict, verdict.ratio) == ("believed", 0.8)
    later, _ = node.seconds(1, 5000.0, 5000.0)  # behind the boards by a second
    assert 1280.0 < later.beside_w < 1300.0
    assert node.seconds(1, 6500.0, None)[0].beside_w is None, "a board without watts: the rest is not known"
    node.meter.unlink()
    assert node.supply.beside(node.host, 200.0, 5000.0, EIGHT, 8, 99.0).witnesses[0].verdict == "refused"


@pytest.mark.parametrize(
    ("mine", "jobs", "watts", "rule"), [(1, 1, 162.5, "1 of 8 GPUs"), (8, 2, 650.0, "1 of 2 jobs")]
)
def test_what_is_nobodys_is_split_by_what_a_job_was_allotted(tmp_path, mine, jobs, watts, rule) -> None:
    found, _ = Node(tmp_path, 1, mine=mine, jobs=jobs).seconds(70, 6500.0, 5000.0)
    assert (found.beside_w, found.beside_by) == (pytest.approx(watts), f"ACPI power meter, {rule}")


def test_one_board_of_eight_is_not_charged_the_node(tmp_path) -> None:
    node = Node(tmp_path, 1, parts=Parts(700.0, 1, 128), mine=1, pci=8)
    found, verdict = node.seconds(300, 9000.0, 575.0)
    assert found.beside_w is None and (verdict.verdict, verdict.scope) == ("doubted", "node")
    assert verdict.why == "not attributable: 7 of the machine's 8 GPUs are not visible here"


@pytest.mark.parametrize(
    ("supply_w", "scope", "why"),
    [
        (4294967.295, "chassis", "unknown"),
        (65535.0, "chassis", "unknown"),
        (30000.0, "chassis", "more than this machine's parts can draw"),
        (4000.0, "node", "4000 W is less than the 5200 W that its parts drew"),
    ],
)
def test_a_meter_that_cannot_be_right_is_refused_with_its_reason(tmp_path, supply_w, scope, why) -> None:
    found, verdict = Node(tmp_path, 1).seconds(200, supply_w, 5000.0)
    assert found.beside_w is None and (verdict.verdict, verdict.scope) == ("refused", scope) and why in verdict.why


def test_a_meter_that_stands_still_under_a_changing_load_is_refused(tmp_path) -> None:
    node = Node(tmp_path, 1)
    node.seconds(60, 6500.0, 5000.0)
    assert node.seconds(60, 6500.0, 3000.0)[1].why == "it stands still while its parts' draw changes"


def test_a_controller_is_read_where_it_answers_and_left_where_it_refuses(tmp_path) -> None:
    assert dcmi_w(SAID) == (3450.0, "") and dcmi_w("Instantaneous power reading: 0 Watts")[0] is None
    assert dcmi_w(SAID + "Power reading state is:  deactivated")[1] == "the controller's power reading is deactivated"
    assert dcmi_w("Could not open device")[0] is None
    none = Supply(tmp_path)
    assert none.by == "" and none.beside(HostReading(), 1.0, 1.0, EIGHT, 8, 0.0) == HostReading()


@pytest.mark.parametrize(("says", "verdict", "beside_w"), [("6480 W", "believed", 1300.0), ("5900", "doubted", None)])
def test_a_command_beside_another_meter_confirms_it_or_neither_is_believed(
    tmp_path, monkeypatch, says, verdict, beside_w
) -> None:
    monkeypatch.setattr(supply, "IPMI_S", 0.001)
    node = Node(tmp_path, 6_500_000_000)
    node.supply, second = Supply(tmp_path, tmp_path / "pci", {supply.COMMAND: f"echo {says}"}), 0.0
    found = HostReading()
    while second < 90 or any(one.why.startswith(("compared", "not read")) for one in found.witnesses):
        found, second = node.supply.beside(node.host, 200.0, 5000.0, EIGHT, 8, second), second + 1.0
    assert [one.verdict for one in found.witnesses] == [verdict, verdict] and found.witnesses[1].what == "echo"
    assert found.beside_w == (beside_w and pytest.approx(beside_w))
