"""A job's accounts in the forms other tools read; one file per form."""
