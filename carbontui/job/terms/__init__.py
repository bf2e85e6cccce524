"""What a job was asked and how it ended, as values: options, budget, allowance, clock, exit; pure."""
