"""Trees of solutions, the first leaves with their advantages: `python examples/rollout.py`."""

from pyarrow.parquet import read_table

from treerl import Problem, engines, search, verifiers
from treerl.lab import words
from treerl.prm import AnswerReward

problems = [Problem.from_text(p.id, p.question, p.answer) for p in words.problems(4)]
engine = engines.HFEngine.from_pretrained(words.model_path())  # VLLMEngine takes any model
trees = search.preset("treerl", width=16, segment_tokens=16)
with verifiers.AnswerVerifier() as answers:
    search.Rollouts(reward=AnswerReward(answers), search=trees).run(problems, engine, "runs/trees")
for row in read_table("runs/trees/rows").slice(0, 16).to_pylist():
    print(row["text"].splitlines(), row["reward"], sorted({round(a, 2) for a in row["advantages"]}))
