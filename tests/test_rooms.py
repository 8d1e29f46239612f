"""The floors of the house: a file imports only from lower floors, never sideways, and the lab never leaks down."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src"
FLOORS = {
    "hardware": -2,
    "aliases": -2,  # types, for every floor
    "lazy": -2,
    "structures": -2,
    "registry": -2,
    "files": -1,
    "checks": -1,  # what arguments must be, for every floor
    "state_checks": 0,
    "counts": 0,
    "gram": 0,
    "progress": 0,
    "randomness": 0,
    "strides": 0,
    "substitution": 0,
    "twice": 0,
    "stopwatch": 0,
    "tables": 0,
    "operators": 0,
    "modules": 1,
    "layers": 1,
    "masks": 1,
    "givens": 1,
    "ramanujan": 1,
    "orthogonality": 1,
    "distributed": 2,
    "floors": 2,
    "members": 2,
    "init": 3,
    "masking": 3,
    "distributions": 4,
    "schemes": 4,
    "dynamic": 4,
    "isometry": 4,
    "report": 4,
    "compacting": 4,
    "archives": 4,
    "front_door": 5,
    "pruning": 5,
    "deploying": 5,
    "": 6,  # the package itself: the public names
    "lab": 7,
    "__main__": 8,  # starts the program
}
LAB_FLOORS = {
    "names": -1,
    "seeds": -1,  # small and plain, for every room of the lab
    "provenance": -1,
    "optional": -1,
    "process": -2,
    "models": 0,
    "data": 0,
    "rendering": 0,
    "training": 1,
    "experiments": 2,
    "sweep": 3,
    "paper": 4,
    "demo": 4,
    "inspection": 4,
    "deployment": 4,
    "bench": 4,
    "commands": 5,
    "cli": 6,  # the program, which imports its commands
}
# Rooms whose members can replace one another: they share private files and do not import each other.
FAMILIES = {"distributions", "schemes", "dynamic", "isometry"}
LIBRARY_DEPENDENCIES = {"torch", "numpy", "scipy", "safetensors", "orthosparse"}
FILES = sorted(ROOT.glob("orthosparse/**/*.py"))


def room_of(module: str) -> str:
    """``orthosparse.schemes.eoi`` is in the room ``schemes``."""
    parts = module.split(".")[1:]
    return parts[0] if parts else ""


def floor_of(room: str) -> int:
    assert room in FLOORS, f"{room} has no floor: give it one in FLOORS"
    return FLOORS[room]


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports_of(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and re.fullmatch(r"orthosparse(\.\w+)+(:\w+)?", str(node.value)):
            names.append(node.value.replace(":", "."))  # in a LazyTable, which imports it when it is looked up
    return names


@cache
def resolve(name: str) -> str:
    """The module a dotted import reaches: ``orthosparse.masks.draw`` is found in ``orthosparse.masks``."""
    while not (
        (ROOT / name.replace(".", "/")).with_suffix(".py").exists()
        or (ROOT / name.replace(".", "/") / "__init__.py").exists()
    ):
        if "." not in name:
            break
        name = name.rsplit(".", 1)[0]
    return name


def reached_from(path: Path) -> set[str]:
    """The modules of this project that a file imports."""
    return {resolve(name) for name in imports_of(path) if name.split(".")[0] == "orthosparse"}


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_go_down_the_floors(path):
    module = module_of(path)
    room = room_of(module)
    for target in reached_from(path):
        other = room_of(target)
        if other == room and room:
            inside = target.rsplit(".", 1)[-1]
            assert room not in FAMILIES or path.name == "__init__.py" or inside.startswith("_"), (
                f"{module} imports {target} sideways"
            )
        else:
            assert floor_of(other) < floor_of(room), (
                f"{module} (floor {floor_of(room)}) imports {target} ({floor_of(other)})"
            )


@pytest.mark.parametrize("path", [p for p in FILES if "lab" in p.relative_to(ROOT).parts], ids=module_of)
def test_rooms_of_the_lab_import_from_lower_floors(path):
    module = module_of(path)
    if module == "orthosparse.lab":
        return
    room = module.split(".")[2]
    for name in imports_of(path):
        target = resolve(name)
        if target.startswith("orthosparse.lab.") and (other := target.split(".")[2]) != room:
            assert LAB_FLOORS[other] < LAB_FLOORS[room], f"{module} ({LAB_FLOORS[room]}) imports {target}"


def test_no_two_files_of_the_library_import_each_other():
    """Nor do more of them in a circle: what is left when files without unread imports are taken away is nothing."""
    library = {module_of(path): path for path in FILES if "lab" not in path.relative_to(ROOT).parts}
    imports = {module: (reached_from(path) & set(library)) - {module} for module, path in library.items()}
    # A package's own front page imports its files; that a file asks the package for its neighbour closes no circle.
    imports = {
        module: {name for name in names if not module.startswith(f"{name}.")} for module, names in imports.items()
    }
    while free := {module for module, names in imports.items() if not names}:
        imports = {module: names - free for module, names in imports.items() if module not in free}
    assert not imports, f"circles among {sorted(imports)}"


@pytest.mark.parametrize("path", [p for p in FILES if "lab" not in p.relative_to(ROOT).parts], ids=module_of)
def test_the_library_depends_on_torch_numpy_scipy_and_safetensors_alone(path):
    import sys

    tops = {name.split(".")[0] for name in imports_of(path)} - sys.stdlib_module_names
    # Triton comes with torch where there are GPUs for it.
    kernels = {"triton"} if path.parent.name == "operators" else set()
    assert tops <= LIBRARY_DEPENDENCIES | kernels


@pytest.mark.parametrize("path", [p for p in FILES if "lab" in p.relative_to(ROOT).parts], ids=module_of)
def test_the_lab_uses_public_names(path):
    rooms = (
        "files",
        "init",
        "isometry",
        "layers",
        "lazy",
        "givens",
        "hardware",
        "masking",
        "masking.deferred",
        "operators",
        "ramanujan",
        "randomness",
        "registry",
    )
    public = {"orthosparse", *(f"orthosparse.{room}" for room in rooms)}
    reached = {resolve(name) for name in imports_of(path) if name.split(".")[0] == "orthosparse"}
    private = {name for name in reached if not name.startswith("orthosparse.lab") and name not in public}
    assert not private, f"{module_of(path)} reaches into {sorted(private)}"


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_every_file_says_what_it_answers_for(path):
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring, path
    assert docstring != "Placeholder."


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_no_file_reads_or_seeds_a_global_generator(path):
    source = path.read_text()
    for forbidden in ("torch.manual_seed(", "np.random.", "numpy.random.seed", "import random\n", "random.seed("):
        assert forbidden not in source, f"{path} uses {forbidden}"


def test_folders_of_tests_are_where_those_of_the_sources_are():
    tests = Path(__file__).parent
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} - {Path("contracts")}
    assert [str(folder) for folder in sorted(folders) if not (ROOT / "orthosparse" / folder).is_dir()] == []
