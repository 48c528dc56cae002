"""PythonExecutor and CodeVerifier: what is promised about untrusted programs."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from treerl.errors import ConfigError
from treerl.verifiers import (
    CodeTest,
    CodeVerdict,
    CodeVerifier,
    ExecutionResult,
    IsolationReport,
    PythonExecutor,
    isolation_report,
)
from treerl.verifiers import execute as execute_module
from treerl.verifiers.programs import extract_program


@pytest.fixture(scope="module")
def executor() -> Iterator[PythonExecutor]:
    with PythonExecutor(size=2) as made:
        yield made


def test_values_and_output(executor: PythonExecutor) -> None:
    result = executor.run(
        "from fractions import Fraction\nprint('hi')\nresult = [1, Fraction(1, 3), {'a': None}]"
    )
    assert result.status == "ok"
    assert result.value == [1, {"__fraction__": [1, 3]}, {"a": None}]
    assert result.stdout == "hi\n"
    assert executor.run("answer = int(input()) + 1", stdin="41\n").value == 42


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("1/0", "error"),
        ("import sys; sys.exit(0)", "error"),
        ("import os; os._exit(0)", "error"),
        ("raise KeyboardInterrupt", "error"),
        ("class E(Exception):\n  def __str__(s): raise s\nraise E()", "error"),
        ("while True: pass", "timeout"),
        ("import time; time.sleep(99)", "timeout"),
        ("x = [0] * 10**10", "limit"),
        ("while True: print('x' * 1000)", "limit"),
        ("def f(): f()\nf()", "error"),
    ],
)
def test_ends(executor: PythonExecutor, code: str, status: str) -> None:
    result = executor.run(code, wall_s=1.5, cpu_s=1)
    assert result.status == status
    assert result.wall_time_s < 2.5


def test_forged_types_do_not_pass(executor: PythonExecutor) -> None:
    result = executor.run("class E(int):\n  def __eq__(s, o): return True\nresult = E(5)")
    assert result.value == {"__type__": "E"}
    result = executor.run(
        "import os\nfor fd in range(3, 32):\n  try: os.write(fd, b'[1]')\n  except OSError: pass"
    )
    assert isinstance(result, ExecutionResult)
    assert executor.run("result = 3").value == 3


def test_isolation_report_is_measured() -> None:
    report = isolation_report()
    assert isinstance(report, IsolationReport)
    assert json.loads(json.dumps(report.to_json()))["level"] in ("full", "partial", "rlimit")
    if report.landlock_abi and report.seccomp:
        assert report.level == "full"
        assert report.network_blocked
        assert report.writes_blocked
        assert report.reads_confined
        assert report.processes_blocked
        assert report.signals_blocked


@pytest.mark.skipif(
    isolation_report().level != "full", reason="this kernel lacks landlock or seccomp"
)
@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/hostname').read()",
        "open('/tmp/treerl-escape', 'w').write('x')",
        "import os; os.mkdir('/tmp/treerl-escape')",
        "import os; os.chmod('/tmp', 0o777)",
        "import os; os.listdir('/proc')",
        "import socket; socket.socket()",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.execv('/bin/true', ['true'])",
        "import threading; threading.Thread(target=print).start()",
        "import os; os.kill(os.getpid(), 0)",
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        "import ctypes; l = ctypes.CDLL(None, use_errno=True); assert l.socket(2, 1, 0) >= 0",
    ],
)
def test_confinement(executor: PythonExecutor, code: str) -> None:
    assert executor.run(code).status == "error"
    assert not Path("/tmp/treerl-escape").exists()


def test_required_isolation_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        PythonExecutor(size=1, isolation="rlimit", require_isolation="full") as weak,
        pytest.raises(ConfigError, match="full isolation"),
    ):
        weak.run("1")
    with pytest.raises(ValueError, match="isolation"):
        PythonExecutor(isolation="none")  # type: ignore[arg-type]
    if isolation_report().level == "full":
        with PythonExecutor(size=1, require_isolation="full") as strong:
            assert strong.run("result = 1").isolation == "landlock+seccomp"
    assert execute_module.START_S > 1


def test_preloaded_modules() -> None:
    with PythonExecutor(size=1, preload=("sympy",)) as made:
        result = made.run("import sympy\nresult = str(sympy.factor(sympy.Symbol('x')**2 - 1))")
    assert result.value == "(x - 1)*(x + 1)"


def test_threads_forks_and_pickle(executor: PythonExecutor) -> None:
    with ThreadPoolExecutor(6) as threads:
        values = list(threads.map(lambda i: executor.run(f"result = {i}").value, range(18)))
    assert values == list(range(18))
    with pickle.loads(pickle.dumps(executor)) as copy:
        assert copy.run("result = 1").value == 1
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            ok = executor.run("result = 2").value == 2
            executor.close()
            os._exit(0 if ok else 1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
    assert executor.run("result = 3").value == 3


@pytest.fixture(scope="module")
def programs() -> Iterator[CodeVerifier]:
    with CodeVerifier() as made:
        yield made


RESPONSE = "Here it is:\n```python\ndef double(x):\n    return 2 * x\n```\n"


def test_code_verifier() -> None:
    with CodeVerifier() as verifier:
        good = [CodeTest.returns("double", [4], 8), CodeTest.holds("assert double(0) == 0")]
        verdict = verifier.verify(RESPONSE, good)
        assert (verdict.passed, verdict.n_passed, verdict.n_tests) == (True, 2, 2)
        assert CodeVerdict.from_json(json.loads(json.dumps(verdict.to_json()))) == verdict
        bad = verifier.verify(RESPONSE, [CodeTest.returns("double", [4], 9)])
        assert (bad.passed, bad.reason) == (False, "failed")
        echo = "```python\nprint(int(input()) / 3)\n```"
        assert verifier.verify(echo, [CodeTest.prints("9", "3.0")]).passed is True
        assert verifier.verify("no code", good).passed is None
        assert verifier.verify(RESPONSE, []).reason == "no_tests"


@pytest.mark.parametrize(
    "program",
    [
        "import sys; sys.exit(0)",
        "import os; os._exit(0)",
        "while True: pass",
        "raise SystemExit",
        "class T:\n  def __eq__(s, o): return True\ndef f(x): return T()",
        "import builtins\nbuiltins.AssertionError = ZeroDivisionError\ndef f(x): return 0",
        "def f(x):\n  import sys; sys.exit(0)",
    ],
)
def test_programs_cannot_talk_themselves_through(program: str) -> None:
    with CodeVerifier(wall_s=1.0, cpu_s=1) as verifier:
        response = f"```python\n{program}\n```"
        assert verifier.verify(response, [CodeTest.returns("f", [1], 2)]).passed is False
        assert verifier.verify(response, [CodeTest.prints("", "2")]).passed is False


BIG = "10**400"


@pytest.mark.parametrize(
    ("returned", "expected", "reason"),
    [
        ("1e308", 1e308, "passed"),
        ("1.7e308", 1.6e308, "failed"),
        (BIG, 10**400, "passed"),
        (BIG, 10**400 + 1, "failed"),
        (BIG, 1.5, "failed"),
        ("-(10**4000)", -(10**4000), "passed"),
        ("list(range(20_000))", list(range(20_000)), "passed"),
        ("list(range(20_000))", list(range(20_001)), "failed"),
        ("list(range(300_000))", [], "limit"),
        ("1 << (1 << 21)", 0, "limit"),
        ("eval('[' * 60 + ']' * 60)", eval("[" * 60 + "]" * 60), "passed"),
        ("[[]] and __import__('functools').reduce(lambda a, _: [a], range(150), [])", [], "limit"),
        ("['x' * 1_000_000] * 5", [], "limit"),
        ("{3: 1}", {3: 1}, "passed"),
        ("{3: 1}", {"3": 1}, "failed"),
        ("{'3': 1}", {"3": 1}, "passed"),
        ("{(1, 2): 3, 'a': 4}", {"a": 4, (1, 2): 3}, "passed"),
        ("{1, 2}", {2, 1}, "passed"),
        ("{1, 2}", [1, 2], "failed"),
        ("[1, 2]", {1, 2}, "failed"),
        ("frozenset([1])", {1}, "passed"),
        ("{0.1 + 0.2, 7}", {0.3, 7}, "passed"),
        ("{'__set__': [1]}", {1}, "failed"),
        ("{'__type__': 'E'}", {"__type__": "E"}, "passed"),
        ("float('nan')", float("nan"), "passed"),
        ("'nan'", float("nan"), "failed"),
        ("float('inf')", float("inf"), "passed"),
        ("float('inf')", 10**400, "failed"),
        ("1 + 2j", 1 + 2j, "passed"),
        ("1 + 2j", 1 - 2j, "failed"),
        ("2 + 0j", 2, "passed"),
        ("True", 1, "failed"),
        ("1.0", 1, "passed"),
        ("(1, 2)", [1, 2], "passed"),
        ("b'ab'", b"ab", "passed"),
        ("'ab'", b"ab", "failed"),
        ("__import__('fractions').Fraction(1, 4)", 0.25, "passed"),
        ("__import__('decimal').Decimal('0.25')", 0.25, "passed"),
        ("__import__('decimal').Decimal('1e999999')", 0.25, "failed"),
        ("'1/4'", Fraction(1, 4), "failed"),
        ("None", None, "passed"),
        ("0", None, "failed"),
    ],
)
def test_values_keep_their_types(
    programs: CodeVerifier, returned: str, expected: object, reason: str
) -> None:
    test = CodeTest.returns("f", [], expected)
    verdict = programs.verify(f"def f():\n    return {returned}\n", [test], is_program=True)
    assert verdict.reason == reason


def test_arguments_arrive_as_they_are(programs: CodeVerifier) -> None:
    given = [{1, 2}, set(), (3, [4]), {5: b"x"}, 1j, float("inf"), 10**5000, None, "'\n"]
    program = "def f(*given):\n    return given"
    assert programs.verify(program, [CodeTest.returns("f", given, given)], is_program=True).passed
    nan = CodeTest.returns("f", [float("nan")], [float("nan")])
    assert programs.verify(program, [nan], is_program=True).passed


def test_what_no_test_can_hold_is_said_at_once() -> None:
    with pytest.raises(ValueError, match="type object"):
        CodeTest.returns("f", [object()], 1)
    with pytest.raises(ValueError, match="type object"):
        CodeTest.returns("f", [], [object()])
    with pytest.raises(ValueError, match="too large"):
        CodeTest.returns("f", [], [0] * 300_000)


JUMP = """
import sys
def jump(frame, event, arg):
    if event == 'line' and frame.f_code.co_filename == '<check>':
        frame.f_lineno = 3
    return jump
def f():
    frame = sys._getframe(1)
    frame.f_trace = jump
    sys.settrace(jump)
    return 1
sys.settrace(jump)
"""


JUMP_OUT = """
import sys
frame = sys._getframe(1)
def jump(at, event, arg):
    if at is frame and event == 'line':
        frame.f_lineno = int(LINE)
    return jump
def f():
    return 1
for LINE in range(frame.f_lineno + 1, frame.f_lineno + 12):
    try:
        frame.f_trace = jump
        sys.settrace(jump)
    except Exception:
        pass
"""


def test_a_program_cannot_trace_its_assertions(programs: CodeVerifier) -> None:
    for program in (JUMP, JUMP.replace("\nsys.settrace(jump)\n", "\n"), JUMP_OUT):
        for check in ("assert False\nassert False\n1", "f()\nassert False\n1"):
            verdict = programs.verify(program, [CodeTest.holds(check)], is_program=True)
            assert verdict.passed is False
    traced = "import sys\nsys.settrace(None)\nprint(1)"
    assert programs.verify(traced, [CodeTest.prints("", "1")], is_program=True).passed


HOOKED = """
import builtins, sys
globals_of_caller = sys._getframe(1).f_globals
try:
    {attack}
except RuntimeError:
    pass
def jump(frame, event, arg):
    if frame.f_code.co_filename == '<check>' and event == 'line':
        frame.f_lineno = 2
    return jump
sys.settrace(jump)
"""
BLIND = "(lambda event, args: None).__code__"


@pytest.mark.parametrize(
    "attack",
    [
        f"globals_of_caller['_no_tracing'].__code__ = {BLIND}",
        f"object.__setattr__(globals_of_caller['_no_tracing'], '__code__', {BLIND})",
        "globals_of_caller['_no_tracing'] = print",
        "builtins.RuntimeError = lambda *a: None",
        "sys._getframe(1).f_locals['request']['check'] = ''",
    ],
)
def test_a_program_cannot_blind_what_keeps_it_from_tracing(
    programs: CodeVerifier, attack: str
) -> None:
    program = HOOKED.format(attack=attack)
    check = [CodeTest.holds("assert False\nx = 1")]
    assert programs.verify(program, check, is_program=True).passed is False
    alone = "x = 2\n" + program.replace("sys.settrace(jump)", "")
    assert programs.verify(alone, check, is_program=True).passed is False
    honest = [CodeTest.holds("assert True")]
    assert programs.verify("def f(): return 2", honest, is_program=True).passed


def test_a_program_cannot_take_away_what_runs_its_assertions(programs: CodeVerifier) -> None:
    program = (
        "import builtins, sys\n"
        "builtins.exec = builtins.compile = lambda *a, **k: 'pass'\n"
        "sys.settrace = sys.addaudithook = lambda *a: None\n"
        "builtins.AssertionError = builtins.RuntimeError = SystemExit\n"
    )
    failing = [CodeTest.holds("assert 1 == 2")]
    assert programs.verify(program, failing, is_program=True).passed is False
    assert programs.verify(program, [CodeTest.holds("assert 1 == 1")], is_program=True).passed


def test_runs_repeat(executor: PythonExecutor) -> None:
    code = "import random\nresult = [random.random(), list({'a', 'b', 'c', 'd'}), hash('x')]"
    with PythonExecutor(size=1) as other:
        assert executor.run(code).value == executor.run(code).value == other.run(code).value


def test_a_pipe_cannot_send_signals(executor: PythonExecutor) -> None:
    if isolation_report().level != "full":
        pytest.skip("needs seccomp")
    # F_SETLK, F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETLEASE, F_NOTIFY
    for command in (6, 8, 10, 15, 1024, 1026):
        code = f"import fcntl, os\nr, w = os.pipe()\nfcntl.fcntl(r, {command}, 1)"
        assert "not permitted" in executor.run(code).error
    assert executor.run("import fcntl\nresult = fcntl.fcntl(1, fcntl.F_GETFD)").value is not None


def test_the_last_program_after_the_reasoning_counts() -> None:
    text = "<think>```python\n1\n```</think>```python\n2\n```and```\n3\n```"
    assert extract_program(text) == "2\n"
    assert extract_program(text.replace("python", "")) == "2\n"
    assert extract_program("<think>```python\n1\n```</think>none") is None


def test_a_snippet_cannot_change_anybodys_priority() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with PythonExecutor() as executor:
        if isolation_report().level != "full":
            pytest.skip("needs seccomp")
        for target in ("os.getppid()", str(os.getpid()), "0"):
            outcome = executor.run(f"import os\nos.setpriority(os.PRIO_PROCESS, {target}, 7)")
            assert outcome.status == "error"
        after = executor.run("import os\nresult = os.getpriority(os.PRIO_PROCESS, 0)")
        assert after.value == before
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
