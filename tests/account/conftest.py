import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "job"))  # a JobState as the tests of the supervisor's core make it
