"""What is stored of a job: joules, watts over time, and what a successor needs."""
