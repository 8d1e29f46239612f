"""What the package promises to those who install it."""

import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from orthosparse import givens

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def name_of(requirement: str) -> str:
    return re.split(r"[<>=\[]", requirement)[0].lower().replace("_", "-")


def test_the_library_needs_torch_numpy_scipy_and_safetensors_alone():
    assert {name_of(r) for r in PROJECT["dependencies"]} == {"torch", "numpy", "scipy", "safetensors"}


def test_everything_that_can_be_installed_is_pinned_in_the_constraints():
    pins = {name_of(line) for line in (ROOT / "constraints.txt").read_text().split()}
    wanted = [*PROJECT["dependencies"], *(r for extra in PROJECT["optional-dependencies"].values() for r in extra)]
    assert {name_of(r) for r in wanted} - pins == {"orthosparse"}


def test_pre_commit_and_constraints_use_the_pins_of_the_dev_extra():
    pins = [r for r in PROJECT["optional-dependencies"]["dev"] if "==" in r.partition(";")[0]]
    constraints = (ROOT / "constraints.txt").read_text().replace("_", "-").split()
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert [pin for pin in pins if pin not in constraints] == []
    assert set(re.findall(r'"(ruff==[^"]+)"', hooks)) == {pin for pin in pins if pin.startswith("ruff")}


def test_ci_runs_the_test_command_of_the_readme():
    assert "make test" in (ROOT / ".ci" / "run").read_text()
    assert "make test" in (ROOT / "README.md").read_text()
    assert "make demo" in (ROOT / "README.md").read_text()


def test_importing_the_library_loads_no_lab_dependency_and_no_scipy():
    heavy = ["scipy", "rich", "typer", "matplotlib", "lightning_fabric", "sklearn"]
    code = f"import sys; from orthosparse import *; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_package_is_built_with_its_types_the_sources_of_its_kernels_and_everything_its_pages_are_made_of(tmp_path):
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    sources = ROOT / "src"
    kept = {".py", ".typed", ".css", ".js", ".jinja", ".json", ".cu", ".cuh"}
    wanted = {path.relative_to(sources) for path in sources.rglob("orthosparse/**/*") if path.suffix in kept}
    built = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert Path("orthosparse/py.typed") in built
    assert wanted - built == set()


def test_the_source_distribution_holds_all_that_a_build_needs_and_no_part_of_the_tests(tmp_path):
    copy = tmp_path / "copy"  # as the build writes beside the sources
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "*.so", "__pycache__", "build", "docs", "results", "runs")
    shutil.copytree(ROOT, copy, ignore=ignored)
    build = [sys.executable, "setup.py", "-q", "sdist", "-d", str(tmp_path)]
    subprocess.run(build, cwd=copy, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    sources = {str(path.relative_to(copy)) for path in (copy / "src").rglob("*") if path.is_file()}
    sources = {name for name in sources if ".egg-info" not in name}
    assert (sources | {"setup.py", "pyproject.toml", "constraints.txt", "README.md", "LICENSE"}) - held == set()
    assert [name for name in held if name.startswith("tests")] == []


@pytest.mark.skipif(not givens.has_kernel(), reason="the kernel was not built")
def test_one_wheel_serves_python_3_11_and_later(tmp_path):
    library = tmp_path / "library"
    for package in ("givens", "gram", "operators"):  # built by the installation: setup.py sees that they are up to date
        (library / "orthosparse" / package).mkdir(parents=True)
        for kernel in (ROOT / "src" / "orthosparse" / package).glob("_kernel*.so"):
            shutil.copy(kernel, library / "orthosparse" / package)
    build = [
        sys.executable,
        "setup.py",
        "-q",
        "build",
        "-b",
        str(tmp_path / "build"),
        "--build-lib",
        str(library),
        "bdist_wheel",
        "-d",
        str(tmp_path),
    ]
    subprocess.run([*build, "-b", str(tmp_path / "wheel")], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "-cp311-abi3-" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    for package in ("givens", "gram", "operators"):
        assert any(name.startswith(f"orthosparse/{package}/_kernel.abi3.") for name in names)


def test_without_the_extra_the_program_says_what_to_install(tmp_path):
    (tmp_path / "typer.py").write_text("raise ModuleNotFoundError('typer')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import orthosparse.lab.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    command = done.stderr.strip().partition("pip install ")[2]
    assert {name_of(word) for word in shlex.split(command)} == {
        name_of(requirement) for requirement in PROJECT["optional-dependencies"]["lab"]
    }


def test_sparsifying_and_loading_import_no_compiler():
    calls = "m = torch.nn.Linear(4, 4); orthosparse.sparsify(m, 0.5); orthosparse.load_sparse(m, m.state_dict())"
    loaded = "[name for name in ('triton', 'torch._dynamo') if name in sys.modules]"
    code = f"import sys, torch, orthosparse; {calls}; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
