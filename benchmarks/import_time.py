"""How long `import treerl` takes, beyond an empty interpreter.

Run: python benchmarks/import_time.py [--runs 15]
Bar: < 0.15 s. Prints the modules that it brings in from outside the standard library, and exits 1
above the bar.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time

BAR = 0.15  # seconds
HEAVY = ("torch", "transformers", "vllm", "sympy", "datasets", "z3", "pyarrow", "typer")


def seconds(code: str, runs: int, folder: str) -> float:
    """Return the median wall time of a fresh interpreter that runs the code."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, cwd=folder)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def loaded(folder: str) -> list[str]:
    """Return the top-level packages that the import loads from outside the standard library."""
    code = (
        "import sys; before = set(sys.modules); import treerl; "
        "print(*sorted({m.partition('.')[0] for m in set(sys.modules) - before}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=folder, capture_output=True, text=True
    )
    return [name for name in done.stdout.split() if name not in sys.stdlib_module_names]


def main() -> int:
    """Measure, print, and compare with the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15, help="interpreter starts a median")
    runs: int = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        seconds("import treerl", 1, folder)  # writes the byte code, warms the disk cache
        bare = seconds("pass", runs, folder)
        whole = seconds("import treerl", runs, folder)
        names = loaded(folder)
    net = whole - bare
    print(f"bare {bare:.3f} s, with treerl {whole:.3f} s, net {net:.3f} s (medians of {runs})")
    print(f"brings in: {', '.join(names)}")
    heavy = [name for name in names if name in HEAVY]
    if heavy:
        print(f"too heavy: {', '.join(heavy)}")
    verdict = "met" if net < BAR else "MISSED"
    print(f"bar {BAR} s: {verdict}")
    return int(bool(heavy) or net >= BAR)


if __name__ == "__main__":
    sys.exit(main())
