"""One power budget for all jobs of a machine, kept cooperatively by their supervisors, without a master."""
