"""The processes of one job: keeper, supervisor, worker; control, overrides, journal, server."""
