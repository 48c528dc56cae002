"""`treerl label --config`: what a manifest says about the command, and a run made from it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from treerl.cli.repeat import _without_secrets

if TYPE_CHECKING:
    from conftest import Treerl

OWN = ("--engine", "mine:engine", "--reward", "mine:right", "--step-delimiter", r"\n")


def sha256s(folder: str) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name not in ("volatile.jsonl", "LOCK")
    }


def manifest(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(folder) / "manifest.json").read_text())
    return found


@pytest.mark.parametrize(
    "options",
    [
        ("--simulations", "6", "--verifier", "mine:Adder", "--seed", "5", "--stop", r"\t;"),
        ("--preset", "omegaprm", "--rollouts", "3", "--limit", "4", "--max-tokens", "60"),
        ("--preset", "genprm_rpe", "--samples", "2", "--top-p", "0.9", "--n-min", "2"),
        ("--preset", "openr", "--prior", "uniform", "--right-above", "0.25"),
        ("--solutions", "sums.jsonl", "--solution-field", "answer", "--no-tools"),
    ],
    ids=" ".join,
)
def test_a_run_is_repeated_to_the_byte(
    quick: Treerl, mine: Path, problem_file: Path, options: tuple[str, ...]
) -> None:
    (mine / "sums.jsonl").write_bytes(problem_file.read_bytes())
    first = quick("label", "sums.jsonl", *OWN, *options, "--out", "first")
    assert first.returncode == 0, first.stderr
    again = quick("label", "--config", "first", "--out", "again", "--active", "2")
    assert again.returncode == 0, again.stderr
    assert "unlike" not in again.stderr
    assert sha256s("again") == sha256s("first")
    # The folder goes on with its own configuration, and says that there is nothing to do.
    assert "was finished before" in quick("label", "--config", "first", "--out", "first").stderr


def test_options_beside_it_override(quick: Treerl, mine: Path, problem_file: Path) -> None:
    first = ("label", problem_file, *OWN, "--no-tools", "--simulations", "6", "--limit", "3")
    assert quick(*first, "--out", "first").returncode == 0
    path = Path("first", "manifest.json")
    done = quick("label", "--config", path, "--seed", "2", "--simulations", "4", "--out", "other")
    assert done.returncode == 0, done.stderr
    assert "unlike" not in done.stderr
    other = manifest("other")
    assert (other["seed"], other["search"]["simulations"], other["verifier"]) == (2, 4, None)
    assert other["problems"] == manifest("first")["problems"]
    # Another method has options of its own; those of the old one do not get in its way.
    command = ("label", "--config", "first", "--method", "omegaprm", "--rollouts", "2")
    done = quick(*command, "--no-tools", "--out", "omega")
    assert done.returncode == 0, done.stderr
    assert manifest("omega")["search"]["method"] == "OmegaPRMConfig"


def test_what_differs_from_the_run_is_said(quick: Treerl, mine: Path, problem_file: Path) -> None:
    copy = mine / "sums.jsonl"
    copy.write_bytes(problem_file.read_bytes())
    command = ("label", copy, *OWN, "--no-tools", "--simulations", "4", "--limit", "3")
    assert quick(*command, "--out", "first").returncode == 0
    copy.write_text(copy.read_text().replace('"3"', '"4"'))
    told = manifest("first") | {"treerl": "0.0.1"}
    Path("first", "manifest.json").write_text(json.dumps(told))
    done = quick("label", "--config", "first", "--seed", "1", "--out", "again")
    assert done.returncode == 0, done.stderr
    assert (
        f"unlike first: treerl: '0.0.1' there, '{manifest('again')['treerl']}' now" in done.stderr
    )
    assert "unlike first: problems.sha256: " in done.stderr
    assert "seed" not in done.stderr


def test_a_run_goes_on_from_another_place_and_with_another_speed(
    quick: Treerl, mine: Path, problem_file: Path
) -> None:
    command = (*OWN, "--no-tools", "--simulations", "4", "--out", "run")
    assert quick("label", problem_file, *command).returncode == 0
    before = sha256s("run")
    (mine / "moved.jsonl").write_bytes(problem_file.read_bytes())
    done = quick("label", "moved.jsonl", *command, "--active", "3")
    assert done.returncode == 0, done.stderr
    assert sha256s("run") == before
    # So does the folder of a program that knows no command line.
    told = manifest("run")
    del told["command"]
    text = json.dumps(told, ensure_ascii=False, indent=2, sort_keys=True) + "\n"
    Path("run", "manifest.json").write_text(text)
    assert quick("label", "moved.jsonl", *command).returncode == 0


def test_a_manifest_that_cannot_be_repeated_is_one_sentence(
    quick: Treerl, mine: Path, problem_file: Path
) -> None:
    command = ("label", problem_file, *OWN, "--no-tools", "--simulations", "4", "--out", "first")
    assert quick(*command).returncode == 0
    good = manifest("first")

    def edited(**options: Any) -> dict[str, Any]:
        repeat = {**good["command"]["repeat"], **options}
        return {**good, "command": {**good["command"], "repeat": repeat}}

    cases: list[tuple[Any, str]] = [
        ({**good, "kind": "rollout"}, "is no manifest of `treerl label`"),
        ({k: v for k, v in good.items() if k != "command"}, "was not made by the command line"),
        (edited(colour="red"), "this version has no option 'colour'"),
        (edited(seed="0"), "'seed' cannot be '0'"),
        (edited(children=0), "'children' cannot be 0"),
        (edited(preset="best"), "'preset' cannot be 'best'"),
        (edited(stop="x"), "'stop' cannot be 'x'"),
        (edited(tools=1), "'tools' cannot be 1"),
        (edited(engine_arg=["a=1"]), "'engine_arg' cannot be ['a=1']"),
        (edited(rollouts=3), "--rollouts belongs to --method"),
        (edited(problems="/nowhere.jsonl"), "there is no such file"),
        ([], "holds no JSON object"),
    ]
    for number, (value, said) in enumerate(cases):
        path = mine / f"{number}.json"
        path.write_text(json.dumps(value))
        done = quick("label", "--config", path, "--out", "again")
        assert done.returncode == 1, said
        assert said in done.stderr.splitlines()[-1]
    assert "there is no" in quick("label", "--config", mine / "none", "--out", "again").stderr
    assert quick("label", "--out", "again", "--model", "m").returncode == 2
    assert not Path("again").exists()


def test_no_secret_is_written_down() -> None:
    assert _without_secrets("https://me:key@host:1/v1?key=k#f") == "https://host:1/v1"
    assert _without_secrets("http://[::1]:8000/v1") == "http://[::1]:8000/v1"
