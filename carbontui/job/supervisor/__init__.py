"""The supervisor process: `loop` is its tick, `core` its pure rules, `shell` its I/O, `record` what it stores."""
