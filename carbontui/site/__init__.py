"""One power budget for all jobs of a machine, kept by their supervisors together, without a master."""
