"""The generator of the words lab and its command.

    python -m treerl.lab.words.generator --n 50 --split held --out problems.jsonl

The series of problems are made in `series.py` (so that running this module as a command does not
import it twice); their texts stand in `templates.py`, the stories in `stories.py`.
"""

import argparse
import json
from pathlib import Path

from treerl.lab.words.series import SPEC_SHA256, problem, problems, stream

__all__ = ["SPEC_SHA256", "main", "problem", "problems", "stream"]


def main(argv: list[str] | None = None) -> None:
    """Write problems as JSON lines with the fields id, question, answer and metadata."""
    parser = argparse.ArgumentParser(prog="python -m treerl.lab.words.generator")
    parser.add_argument("--n", type=int, default=50, help="how many problems")
    parser.add_argument("--split", choices=("train", "held"), default="held")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=0, help="index of the first problem")
    parser.add_argument("--templates", choices=("PQ", "P", "Q"), default="PQ")
    parser.add_argument("--out", type=Path, required=True, help="the .jsonl file to write")
    args = parser.parse_args(argv)
    drawn = problems(
        args.n, split=args.split, seed=args.seed, templates=args.templates, start=args.start
    )
    lines = (json.dumps(p.to_record(), ensure_ascii=False) + "\n" for p in drawn)
    args.out.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
