"""How many processors this process may use: on a shared machine or in a container, fewer than there are."""

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def processors(cgroup: Path = _CGROUP) -> int:
    """Return the number of processors that the scheduler and the container's quota leave to this process.

    Args:
        cgroup: folder of the control group (version 2), whose file ``cpu.max`` holds a quota and a period.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
    except FileNotFoundError:  # not a container, or not Linux
        return allowed
    return allowed if quota == "max" else min(allowed, math.ceil(int(quota) / int(period)))
