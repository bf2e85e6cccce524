"""A job's files on disk, and the read-only module by which everything else reads them."""
