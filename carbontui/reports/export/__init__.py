"""A job's accounts in the formats of other tools; one file per format."""
