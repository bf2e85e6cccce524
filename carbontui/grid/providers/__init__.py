"""One module per provider, written against recorded answers of the real service, or its documentation if not `recorded`
(tests/grid/RECORDED.md); none has been run against the live service yet."""
