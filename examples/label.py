"""Label the steps of a model's own solutions, in Python: `python examples/label.py`."""

from treerl.engines import HFEngine
from treerl.lab import words
from treerl.prm import AnswerReward, Labeler
from treerl.prm.formats import export
from treerl.problem import Problem
from treerl.search import MCTSConfig, Sampling
from treerl.steps import PlainSteps
from treerl.verifiers import AnswerVerifier, StepVerifier

problems = [Problem.from_text(p.id, p.question, p.answer) for p in words.problems(4)]
engine = HFEngine.from_pretrained(words.model_path())
search = MCTSConfig(simulations=16, sampling=Sampling(steps=PlainSteps("\n"), max_tokens=160))
with AnswerVerifier() as answers, StepVerifier() as steps:
    labeler = Labeler(reward=AnswerReward(answers), verifier=steps, search=search)
    print(labeler.run(problems, engine, out="runs/example")["labels"])
print(export("runs/example", "trl", "runs/example.jsonl"))
