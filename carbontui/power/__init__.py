"""The agent process, devices, the meter, limits, calibration; only this package uses NVML and RAPL."""
