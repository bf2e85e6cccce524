"""Pure planning on immutable data: problem, evaluate, solve, frontier, baselines, explanations."""
