"""Many jobs of a cluster: when each shall start, told to Slurm, which does the rest."""
