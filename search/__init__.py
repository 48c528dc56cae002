"""Tree search: algorithms without I/O, and the drivers that feed them."""

if not __name__.startswith("treerl."):
    raise ImportError(
        "this folder is the package treerl.search; import it as `import treerl.search` "
        "(the root of the checkout is on sys.path: run Python from elsewhere, or with -P)"
    )

from treerl.search.chain_values import ChainValues, chain_values
from treerl.search.growth import (
    Growth,
    Judgement,
    JudgeRequest,
    Judges,
    run,
    run_coroutine,
    run_steps,
    run_sync,
)
from treerl.search.mcts import MCTS, MCTSConfig
from treerl.search.restmcts import restmcts_config
from treerl.search.rollout_reward import RolloutReward
from treerl.search.rollouts import Rollouts
from treerl.search.root_call import RootCall
from treerl.search.sampling import Sampling
from treerl.search.treepo import TreePO
from treerl.search.treepo_config import TreePOConfig
from treerl.search.treepo_presets import preset
from treerl.search.treepo_summary import TreeSummary, branch_weights, sibling_shares, summarise

__all__ = [
    "MCTS",
    "ChainValues",
    "Growth",
    "JudgeRequest",
    "Judgement",
    "Judges",
    "MCTSConfig",
    "RolloutReward",
    "Rollouts",
    "RootCall",
    "Sampling",
    "TreePO",
    "TreePOConfig",
    "TreeSummary",
    "branch_weights",
    "chain_values",
    "preset",
    "restmcts_config",
    "run",
    "run_coroutine",
    "run_steps",
    "run_sync",
    "sibling_shares",
    "summarise",
]
