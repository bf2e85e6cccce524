"""The agent process, devices, the meter, limits, calibration; NVML and RAPL live here alone."""
