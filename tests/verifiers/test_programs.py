"""CodeVerifier: which block is the program, and what counts as the right output."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from treerl.verifiers import CodeTest, CodeVerifier
from treerl.verifiers.programs import extract_program
from treerl.verifiers.snippets import same_output


@pytest.fixture(scope="module")
def programs() -> Iterator[CodeVerifier]:
    with CodeVerifier() as made:
        yield made


@pytest.mark.parametrize(
    ("program", "stdin", "expected"),
    [
        ("a, b = input().split(); print(a + '+' + b)", "3 4\n", "7"),
        ("a, b = input().split(); print(a + '*' + b)", "3 4\n", "12"),
        ("print(input() + '!')", "5\n", "120"),
        ("print('sqrt(4)')", "", "2"),
        ("print('50%')", "", "0.5"),
        (r"print('\\frac{1}{2}')", "", "0.5"),
        ("print('1/2')", "", "0.5"),
        ("print(0.46)", "", "0.5"),
        ("print('007')", "", "7"),
    ],
)
def test_what_is_printed_is_not_computed(
    programs: CodeVerifier, program: str, stdin: str, expected: str
) -> None:
    wrong = programs.verify(program, [CodeTest.prints(stdin, expected)], is_program=True)
    assert (wrong.passed, wrong.reason) == (False, "failed")
    right = programs.verify(
        f"print({expected})", [CodeTest.prints(stdin, expected)], is_program=True
    )
    assert right.passed is True


def test_a_step_may_state_a_value_but_a_program_must_print_it() -> None:
    assert same_output("0.5\n", "1/2")
    assert same_output("3.14159\n", "3.14")
    assert not same_output("1/2\n", "0.5")
    assert not same_output("3+4\n", "7")
    assert not same_output("3.14\n", "3.14159")


F = "def f(): return 1\n"


@pytest.mark.parametrize(
    ("response", "program"),
    [
        (f"```python\r\n{F}```".replace("\n", "\r\n"), F),
        (f"~~~python\n{F}~~~", F),
        (f"```Python3\n{F}```", F),
        (f"```{{.python}}\n{F}```", F),
        (f"````py\n{F}````", F),
        (f"Here it is: ```python\n{F}``` and that is all", F),
        ("```python\nprint(1)```", "print(1)\n"),
        # in a list
        ("1. do\n   ```python\n   def f():\n       return 1\n   ```", "def f():\n    return 1\n"),
        ("- ```python\n  x = 1\n\n  y = 2\n  ```", "x = 1\n\ny = 2\n"),
        ("  ```\n  x = '''\nz'''\n  ```", "x = '''\nz'''\n"),
        # a program before its use
        (f"```python\n{F}```\nExample:\n```\n>>> f()\n1\n```", F),
        (f"```python\n{F}```\nExample:\n```python\n>>> f()\n1\n```", F),
        (f"```python\n{F}```\nOutput:\n```\n1\n```", F),
        (f"```python\n{F}```\nOutput:\n```text\n1\n```", F),
        ("```python\nx = 1\n```\nbetter:\n```py\nx = 2\n```", "x = 2\n"),
        ("```\nx = 1\n```\nbetter:\n```\nx = 2\n```", "x = 2\n"),
        # fences inside, and fences that nothing closes
        ('```python\n"""x\n    ```\n    y\n    ```"""\n```', '"""x\n    ```\n    y\n    ```"""\n'),
        ("```\nfirst\n```python\nx = 1\n```", "x = 1\n"),
        ("I write ``` or ~~~ around code.\n```python\nx = 1\n```", "x = 1\n"),
        ("```python\nx = 1\n", None),
        ("```cpp\nint main() {}\n```", None),
        ("none", None),
    ],
)  # fmt: skip
def test_the_program_of_a_response(response: str, program: str | None) -> None:
    assert extract_program(response) == program
