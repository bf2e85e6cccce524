"""The command line, one file per group of verbs; carbontui.cli loads each on demand."""
