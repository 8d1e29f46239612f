import os
import subprocess
import sys

import pytest

from orthosparse.lab.processors import processors

ALLOWED = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("quota", "number"),
    [("max 100000", ALLOWED), ("50000 100000", 1), ("100000 100000", 1), (f"{2**20} 1", ALLOWED)],
)
def test_a_container_has_its_quota_and_no_more_than_the_scheduler_allows(tmp_path, quota, number):
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert processors(tmp_path) == number


def test_without_a_quota_it_is_what_the_scheduler_allows(tmp_path):
    assert processors(tmp_path) == ALLOWED


def test_a_process_bound_to_one_processor_has_one():
    code = "from orthosparse.lab.processors import processors; print(processors())"
    bound = f"import os; os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}}); {code}"
    done = subprocess.run([sys.executable, "-c", bound], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"
