"""The supervisor's process: `loop` is its tick, `core` its rules, `shell` its hands, `record` what it keeps."""
