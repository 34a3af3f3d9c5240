# Comes before the agent's own on PYTHONPATH, plants the faults that the environment names, and gives way to it.
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _here]
sys.path.append(os.path.dirname(_here))
import planting

sys.path.pop()
planting.begin(os.environ["PLANTED_INJECT"], planting.plan_of())
