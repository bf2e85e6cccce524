"""What the machine's supply says beside boards, CPU and memory, and the sockets of AMD's own driver."""

import pytest

from carbontui.power.messages import HostReading
from carbontui.power.metering.rapl import amd_zones
from carbontui.power.metering.supply import Supply, acpi_meter, dcmi_w

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


def test_an_acpi_meter_leaves_the_rest_of_the_machine_to_its_jobs(tmp_path) -> None:
    hwmon(tmp_path, "coretemp", power1_average="1")
    folder = hwmon(tmp_path, "power_meter", power1_average="1500000000")
    assert acpi_meter(tmp_path) == folder / "power1_average"
    supply, host = Supply(tmp_path), HostReading(cpu_w=100.0, jobs=2)
    found = supply.beside(host, 200.0, lambda: 900.0, 10.0)
    assert (found.beside_w, found.beside_by) == (pytest.approx(200.0), "ACPI power meter")
    (folder / "power1_average").write_text("500000000")  # behind the boards by a second
    later = supply.beside(host, 200.0, lambda: 900.0, 11.0)
    assert 190.0 < later.beside_w < 200.0
    assert supply.beside(host, 200.0, lambda: None, 12.0) == host, "a board without watts: the rest is not known"
    (folder / "power1_average").unlink()
    assert supply.beside(host, 200.0, lambda: 900.0, 13.0) == host


def test_a_controller_is_read_where_it_answers_and_left_where_it_refuses(tmp_path) -> None:
    assert dcmi_w(SAID) == 3450.0 and dcmi_w("Instantaneous power reading: 0 Watts") is None
    assert dcmi_w("Could not open device") is None
    assert Supply(tmp_path).by == "" and Supply(tmp_path).beside(HostReading(), 1.0, lambda: 1.0, 0.0) == HostReading()


def test_sockets_of_amd_energy_are_counters_of_the_cpu(tmp_path) -> None:
    hwmon(
        tmp_path, "amd_energy", energy1_label="Ecore000\n", energy1_input="7", energy2_label="Esocket0\n",
        energy2_input="123000000",
    )  # fmt: skip
    (zone,) = amd_zones(tmp_path)
    assert zone.kind == "cpu" and zone.read() == 123_000_000
