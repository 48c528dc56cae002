"""The laws of the house's plan: who may import whom, what is public, what a wheel holds.

All but three of these read sources instead of importing them, so that they need no extra.
"""

from __future__ import annotations

import ast
import functools
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("search", "prm", "verifiers", "advantage")

# Room -> the rooms that it may import. "face" is treerl/__init__.py, whose names are loaded late.
BELOW = {
    "ground": {"ground"},
    "engines": {"engines", "ground"},
    "verifiers": {"verifiers", "ground"},
    "advantage": {"advantage", "ground"},
    "search": {"search", "verifiers", "advantage", "engines", "ground"},
    "prm": {"prm", "search", "verifiers", "advantage", "engines", "ground"},
    "lab": {"lab", "search", "verifiers", "advantage", "engines", "ground"},
    "viewer": {"viewer", "prm", "search", "verifiers", "advantage", "engines", "ground"},
    "integrations": {
        "integrations",
        "prm",
        "search",
        "verifiers",
        "advantage",
        "engines",
        "ground",
    },
}
BELOW["face"] = set(BELOW) - {"lab"}
BELOW["cli"] = {"cli", "face", *BELOW}

# The protocol of engines lies with the engines, but is ground: records name its words.
PROTOCOL = "treerl.engines.base"

# Finer than rooms: (room, module that it must not import, why).
FORBIDDEN = [
    *(
        ("verifiers", f"treerl.{name}", "verifiers know text, never trees")
        for name in ("tree", "arrays", "store", "treefile")
    ),
    ("verifiers", PROTOCOL, "verifiers need no engine"),
    ("advantage", PROTOCOL, "advantage needs no engine"),
    ("advantage", "treerl.steps", "advantage knows arrays, never text"),
    ("advantage", "treerl.verdict", "advantage knows arrays, never text"),
]

# Libraries that a script started inside a linked folder must still find.
LIBRARIES = {"accelerate", "anytree", "datasets", "diffusers", "httpx", "numpy", "peft", "pyarrow"}
LIBRARIES |= {"rich", "safetensors", "sympy", "tokenizers", "torch", "transformers", "trl", "typer"}
LIBRARIES |= {"verl", "vllm", "z3"}

HEAVY = ("torch", "transformers", "vllm", "sympy", "datasets", "z3", "pyarrow", "typer")

MUST_LIST = {
    *(f"treerl.{name}" for name in (*FOLDERS, "engines", "prm.formats")),
    "treerl",
}


class Module(NamedTuple):
    """A source file: its dotted name, where it lies, and its room."""

    name: str
    path: Path
    room: str
    is_package: bool


class Import(NamedTuple):
    """One import: the module named, the names taken from it, the line, and dots in front."""

    module: str
    names: tuple[str, ...]
    line: int
    level: int


def files_of_git(root: Path = ROOT) -> list[PurePosixPath]:
    """Return the files that git tracks, or would after `git add -A`."""
    if not (root / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    names = [PurePosixPath(name) for name in done.stdout.split("\0") if name]
    return sorted(name for name in names if (root / name).is_file())


def inside_wheel(path: PurePosixPath) -> PurePosixPath | None:
    """Return a checkout file's place in the wheel, None if it does not belong there."""
    if path.parts[0] in FOLDERS:
        return PurePosixPath("treerl", path)
    return path if path.parts[0] == "treerl" else None


@functools.cache
def modules() -> tuple[Module, ...]:
    """Return every module of the package, each once, by its real path."""
    found = []
    places = [(ROOT / "treerl", ("treerl",)), *((ROOT / f, ("treerl", f)) for f in FOLDERS)]
    for place, prefix in places:
        # rglob does not follow the links inside treerl/.
        for path in sorted(place.rglob("*.py")):
            inner = path.relative_to(place).with_suffix("").parts
            if len(inner) > 1 and prefix == ("treerl",) and inner[0] in FOLDERS:
                continue
            is_package = inner[-1] == "__init__"
            parts = (*prefix, *(inner[:-1] if is_package else inner))
            found.append(Module(".".join(parts), path, room_of(".".join(parts)), is_package))
    return tuple(found)


def room_of(name: str) -> str:
    """Return the room that a dotted name below treerl lies in."""
    parts = name.split(".")
    if len(parts) == 1:
        return "face"
    if name == PROTOCOL:
        return "ground"
    return parts[1] if parts[1] in BELOW else "ground"


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(module: Module) -> Iterator[Import]:
    for node in ast.walk(tree(module.path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), node.lineno, 0)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            yield Import(node.module or "", names, node.lineno, node.level)


def targets(module: Module) -> Iterator[tuple[str, int]]:
    """Return the modules of treerl that a module imports, with line numbers."""
    known = {m.name for m in modules()}
    for found in imports(module):
        if found.level:
            base = module.name.split(".")
            base = base[: len(base) - found.level + module.is_package]
            name = ".".join([*base, *filter(None, [found.module])])
        else:
            name = found.module
        if name.partition(".")[0] != "treerl":
            continue
        if name == "treerl" and not found.level:
            # Where the package lies and its version are no part of the face.
            used = found.names or attributes_of_treerl(module)
            if all(attribute.startswith("__") for attribute in used):
                continue
        inner = [f"{name}.{taken}" for taken in found.names if f"{name}.{taken}" in known]
        for target in inner or [name]:
            yield target, found.line


def attributes_of_treerl(module: Module) -> set[str]:
    """Return what a module takes from a plain `import treerl`."""
    return {
        node.attr
        for node in ast.walk(tree(module.path))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "treerl"
    }


def place(module: Module, line: int) -> str:
    return f"{module.path.relative_to(ROOT)}:{line}"


# --- arrows ---------------------------------------------------------------------------------------


def test_every_module_is_seen() -> None:
    rooms = {module.room for module in modules()}
    assert {"face", "ground", "engines", "lab", *FOLDERS} <= rooms
    names = [module.name for module in modules()]
    assert len(set(names)) == len(names)


def test_arrows_run_downward_only() -> None:
    wrong = [
        f"{place(module, line)}: {module.room} imports {target}"
        for module in modules()
        for target, line in targets(module)
        if room_of(target) not in BELOW[module.room]
    ]
    assert not wrong, "\n".join(wrong)


def test_finer_arrows() -> None:
    wrong = [
        f"{place(module, line)}: imports {target}, but {why}"
        for module in modules()
        for target, line in targets(module)
        for room, banned, why in FORBIDDEN
        if module.room == room and (target == banned or target.startswith(banned + "."))
    ]
    # A sampler asks any engine; only cli, lab, prm and tests know which.
    wrong += [
        f"{place(module, line)}: search imports {target}, not {PROTOCOL}"
        for module in modules()
        for target, line in targets(module)
        if module.room == "search" and room_of(target) == "engines"
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_across_folders_are_absolute() -> None:
    wrong = []
    for module in modules():
        parts = module.name.split(".")
        # How many dots stay inside the room's own folder.
        depth = len(parts) - (1 if module.room in ("ground", "face") else 2) + module.is_package
        for found in imports(module):
            if found.level > max(depth, 1 if module.is_package else 0):
                wrong.append(f"{place(module, found.line)}: relative import leaves the folder")
            if not found.level and found.module.partition(".")[0] in FOLDERS:
                name = found.module
                wrong.append(f"{place(module, found.line)}: `{name}` is `treerl.{name}`")
    assert not wrong, "\n".join(wrong)


# --- names ----------------------------------------------------------------------------------------


def listed(body: ast.Module) -> list[str] | None:
    """Return a module's `__all__`, None without one."""
    for node in body.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            names = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(n, ast.Name) and n.id == "__all__" for n in names):
                assert node.value is not None
                value: list[str] = list(ast.literal_eval(node.value))
                return value
    return None


def bound(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Return the names that a module's top level binds, inside its ifs and tries too."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], node
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from ((n.id, node) for n in ast.walk(target) if isinstance(n, ast.Name))
        elif isinstance(node, ast.If | ast.Try | ast.With):
            for field in ("body", "orelse", "finalbody"):
                yield from bound(getattr(node, field, []))
            for handler in getattr(node, "handlers", []):
                yield from bound(handler.body)


def test_all_is_exact() -> None:
    wrong = []
    for module in modules():
        body = tree(module.path)
        names = listed(body)
        where = module.path.relative_to(ROOT)
        must = module.name in MUST_LIST or (module.room == "ground" and not module.is_package)
        if names is None:
            if must and "._" not in module.name:
                wrong.append(f"{where}: has no __all__")
            continue
        have = dict(bound(body.body))
        lazy = "__getattr__" in have
        children = {m.name for m in modules()}
        wrong += [
            f"{where}: {name} stands twice in __all__" for name in names if names.count(name) > 1
        ]
        wrong += [
            f"{where}: {name} of __all__ does not exist"
            for name in names
            if name not in have and not lazy and f"{module.name}.{name}" not in children
        ]
        definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        wrong += [
            f"{where}: {name} is public but not in __all__"
            for name, node in have.items()
            if isinstance(node, definitions) and name[0] != "_" and name not in names
        ]
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_no_public_name_hides_a_folder() -> None:
    for module in modules():
        names = set(listed(tree(module.path)) or ())
        if module.name == "treerl":
            names |= {name for name, _ in bound(tree(module.path).body)}
        hidden = names & set(FOLDERS)
        assert not hidden, f"{module.path.relative_to(ROOT)} hides treerl.{hidden.pop()}"


def test_no_module_is_named_like_a_library() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in ("", ".py")
        and path.stem != "__init__"
        and "__pycache__" not in path.parts
        and path.stem in LIBRARIES | sys.stdlib_module_names
    ]
    assert not wrong, f"a script started in that folder would import these instead: {wrong}"


# --- importing ------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS)
def test_folders_refuse_to_be_global_modules(folder: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import {folder}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert f"ImportError: this folder is the package treerl.{folder}" in done.stderr
    assert f"import treerl.{folder}" in done.stderr


def test_importing_treerl_is_light(tmp_path: Path) -> None:
    code = f"import sys, treerl; print(*[m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == []


# --- the wheel ------------------------------------------------------------------------------------


def copy_checkout(folder: Path, *, links: bool) -> Path:
    """Copy what git tracks; without links as git checks them out where there are none."""
    for name in files_of_git():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    for name in FOLDERS:
        link = folder / "treerl" / name
        if links:
            link.symlink_to(Path("..", name))
        else:
            link.write_text(f"../{name}")
    return folder


def build_wheel(source: Path, out: Path) -> set[str]:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    done = subprocess.run([*command, str(source)], cwd=out, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (wheel,) = out.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


@pytest.mark.parametrize("links", [True, False], ids=["links", "text files for links"])
def test_the_wheel_is_whole(tmp_path: Path, links: bool) -> None:
    (tmp_path / "out").mkdir()
    names = build_wheel(copy_checkout(tmp_path / "checkout", links=links), tmp_path / "out")
    info = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    tracked = {str(inside) for name in files_of_git() if (inside := inside_wheel(name))}
    missing, extra = tracked - names, names - tracked - info
    advice = "list new packages and data files under [tool.setuptools] in pyproject.toml"
    assert not missing, f"not in the wheel: {sorted(missing)}; {advice}"
    assert not extra, f"in the wheel but not in git: {sorted(extra)}"
    assert "treerl/py.typed" in names
    assert {name.partition("/")[0] for name in names - info} == {"treerl"}
