"""One module per provider, written against answers of the real service, or its documentation if not `recorded`."""
