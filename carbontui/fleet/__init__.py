"""Many jobs of a cluster: plans when each should start and tells Slurm, which does the rest."""
