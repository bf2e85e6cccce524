"""One module per provider, each written against its documented behaviour; none has been seen live yet."""
