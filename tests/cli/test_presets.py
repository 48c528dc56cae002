"""Presets and methods: which options they bring, and which do not go together."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treerl.cli.presets import (
    PRESETS,
    LabelOptions,
    Method,
    Preset,
    Prior,
    Selection,
    Steps,
    in_force,
    settle,
)
from treerl.cli.setup import search_config
from treerl.errors import ConfigError
from treerl.prm.fuse import FUSIONS
from treerl.search.mcts import MCTSConfig
from treerl.search.omega import OmegaPRMConfig
from treerl.search.prefix_mc import PrefixMCConfig
from treerl.search.selection import PriorKind
from treerl.search.selection import Selection as Selections
from treerl.steps import PlainSteps
from treerl.steps_json import ObjectiveSteps


def test_every_preset_has_a_rule_and_a_search() -> None:
    assert set(PRESETS) == set(Preset)
    assert {spec.rule for spec in PRESETS.values()} == set(FUSIONS)
    kinds = {
        Method.mcts: MCTSConfig,
        Method.omegaprm: OmegaPRMConfig,
        Method.prefix_mc: PrefixMCConfig,
    }
    for preset, spec in PRESETS.items():
        for method in spec.methods:
            options = settle({"preset": preset, "method": method})
            search = search_config(options)
            assert type(search) is kinds[method]
            assert search.sampling.verify_steps == (spec.tools is not False)
        assert settle({"preset": preset}).method is spec.methods[0]


def test_choices_are_those_of_the_search() -> None:
    assert {str(choice) for choice in Selection} == set(get_args(Selections))
    assert {str(choice) for choice in Prior} == set(get_args(PriorKind))


def test_presets_bring_what_they_are_named_after() -> None:
    rpe, openr, restmcts, published = (
        search_config(settle({"preset": name}))
        for name in ("genprm_rpe", "openr", "restmcts", "groundedprm_published")
    )
    assert isinstance(rpe, PrefixMCConfig)
    assert rpe.estimate_root
    assert isinstance(openr, MCTSConfig)
    assert openr.selection == "puct"
    assert isinstance(restmcts, MCTSConfig)
    assert (restmcts.selection, restmcts.exploration, restmcts.children) == ("restmcts", 0.7, 3)
    assert isinstance(published, MCTSConfig)
    assert (published.selection, published.exploration) == ("uct_published", 1.8)


def test_options_override_presets() -> None:
    given = {"preset": "restmcts", "children": 5, "exploration": 0.1, "selection": "uct"}
    search = search_config(settle(given))
    assert isinstance(search, MCTSConfig)
    assert (search.selection, search.exploration, search.children) == ("uct", 0.1, 5)
    assert not settle({"preset": "genprm_rpe", "estimate_root": False}).estimate_root
    assert settle({"selection": "uct_published"}).exploration == 1.8


def test_the_least_number_of_rollouts_follows_the_number_of_rollouts() -> None:
    assert settle({"method": "prefix-mc"}).n_min == 4
    assert settle({"method": "prefix-mc", "rollouts": 2}).n_min == 2
    assert settle({"method": "omegaprm", "rollouts": 3, "n_min": 1}).n_min == 1


def test_steps() -> None:
    json_steps = search_config(settle({"step_format": "json", "root_call": True})).sampling.steps
    assert json_steps == ObjectiveSteps(root_call=True)
    assert search_config(settle({}, lines=True)).sampling.steps == PlainSteps("\n")
    assert search_config(settle({})).sampling.steps == PlainSteps("\n\n")


@pytest.mark.parametrize(
    ("chosen", "solutions", "said"),
    [
        ({"rollouts": 8}, False, "--rollouts belongs to --method omegaprm or prefix-mc, not to mc"),
        ({"method": "omegaprm", "wave": 2}, False, "--wave belongs to --method mcts"),
        ({"preset": "omegaprm", "samples": 2}, False, "--samples belongs to --method prefix-mc"),
        ({"method": "prefix-mc", "prior": "uniform"}, False, "--prior belongs to --method mcts"),
        ({"prior": "uniform"}, False, "--prior belongs to --selection puct, not to uct"),
        (
            {"preset": "openr", "exploration": 1.0},
            False,
            "--exploration belongs to --selection uct",
        ),
        ({"progress": 0.5}, False, "--progress belongs to --preset genprm_rpe"),
        ({"root_call": True}, False, "--root-call belongs to --step-format json"),
        ({"step_format": "json", "step_delimiter": "\n"}, False, "--step-delimiter belongs to"),
        ({"preset": "restmcts", "method": "omegaprm"}, False, "labels from mcts, not from omegapr"),
        ({"preset": "groundedprm_published", "tools": False}, False, "needs the tools"),
        ({"preset": "mathshepherd", "tools": True}, False, "asks no tools"),
        ({"preset": "mathshepherd", "verifier": "a:b"}, False, "--verifier has nothing to judge"),
        ({"tools": False, "verifier": "a:b"}, False, "leave --no-tools out"),
        ({"method": "mcts"}, True, "--solutions needs prefix-mc"),
        ({"preset": "openr"}, True, "which --solutions needs"),
        ({"samples": 2}, True, "leave it out with --solutions"),
        ({"method": "prefix-mc", "rollouts": 2, "n_min": 3}, False, "no step could be labelled"),
        ({"method": "omegaprm", "rollouts": 0}, False, "leaves the tools alone"),
        ({"rollouts": 0, "tools": False}, True, "leaves the tools alone"),
    ],
    ids=str,
)
def test_what_does_not_go_together_is_one_sentence(
    chosen: dict[str, Any], solutions: bool, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        settle(chosen, solutions=solutions)
    assert said in str(caught.value)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "preset": st.sampled_from(list(Preset)),
            "method": st.sampled_from(list(Method)),
            "selection": st.sampled_from(list(Selection)),
            "step_format": st.sampled_from(list(Steps)),
            "rollouts": st.integers(0, 9),
            "n_min": st.integers(1, 9),
            "children": st.integers(1, 9),
            "exploration": st.floats(0, 9),
            "tools": st.booleans(),
            "seed": st.integers(),
        },
    ),
    st.booleans(),
)
def test_what_is_in_force_gives_the_same_options_again(
    chosen: dict[str, Any], solutions: bool
) -> None:
    try:
        options = settle(chosen, solutions=solutions)
    except ConfigError:
        return
    again = settle(in_force(options, solutions=solutions), solutions=solutions)
    assert search_config(again) == search_config(options)
    assert in_force(again, solutions=solutions) == in_force(options, solutions=solutions)
    assert again.n_min == options.n_min


def test_defaults_are_the_first_preset() -> None:
    assert settle({}) == LabelOptions()
