"""Where the agent's own files lie: frames and modules from there are none of the script's."""

from __future__ import annotations

import os

OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
