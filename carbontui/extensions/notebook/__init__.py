"""`%%carbontui`: a cell of a notebook as a job."""
