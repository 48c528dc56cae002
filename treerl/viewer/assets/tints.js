// What a node looks like: a tint (good, bad, warn, none) and how strong it is, from 0 to 1.

const COLOURS = {
  label: "label", mc: "rollouts right", value: "value Q", verdict: "tool verdict",
  reward: "reward", advantage: "advantage",
};
const WIDTHS = { visits: "visits", samples: "samples", omega: "ω (branch weight)", even: "even" };
const SIGNS = { good: "✓", bad: "✗", warn: "!", none: "·" };

/** Return the character of a tint: numbers have a sign, judgements are ticked or crossed. */
function signOf(tint, colour) {
  const numeric = colour === "value" || colour === "advantage";
  return numeric && tint === "good" ? "+" : numeric && tint === "bad" ? "−" : SIGNS[tint];
}

const LEGENDS = {
  label: [["good", "right"], ["bad", "wrong"], ["none", "no label"]],
  mc: [["good", "more than half right"], ["bad", "less"], ["none", "no rollout"]],
  value: [["good", "above 0"], ["bad", "below 0"], ["none", "not visited"]],
  verdict: [["good", "supported"], ["bad", "refuted"], ["none", "unverifiable"]],
  reward: [["good", "upper half"], ["bad", "lower half"], ["none", "no reward"]],
  advantage: [["good", "above 0"], ["bad", "below 0"], ["none", "none"]],
};

/** Return what colours and widths a tree has data for, and the ranges they are scaled by. */
function scalesOf(tree) {
  const scales = { has: new Set(), value: 0, advantage: 0, low: 0, high: 1, visits: 0, samples: 0 };
  if (tree.labelled) scales.has.add("label");
  for (const node of tree.nodes) {
    if (node.total) scales.has.add("mc");
    for (const name of ["value", "verdict", "reward", "advantage", "visits", "omega"]) {
      if (node[name] !== undefined) scales.has.add(name);
    }
    scales.value = Math.max(scales.value, Math.abs(node.value ?? 0));
    scales.advantage = Math.max(scales.advantage, Math.abs(node.advantage ?? 0));
    scales.low = Math.min(scales.low, node.reward ?? 0);
    scales.high = Math.max(scales.high, node.reward ?? 0);
    scales.visits = Math.max(scales.visits, node.visits ?? 0);
    scales.samples = Math.max(scales.samples, node.samples ?? 0);
  }
  return scales;
}

function tintOf(tree, i, colour) {
  const node = tree.nodes[i], { scales } = tree;
  if (node.error !== undefined) return ["warn", 1];
  switch (colour) {
    case "label":
      if (node.label?.value === 1) return ["good", 1];
      if (node.label?.value === 0) return ["bad", 1];
      return ["none", node.label ? 0.5 : 0];
    case "verdict": {
      const strength = node.verdict?.strength === "exact" ? 1 : 0.6;
      if (node.verdict?.verdict === "SUPPORTED") return ["good", strength];
      if (node.verdict?.verdict === "REFUTED") return ["bad", strength];
      return ["none", node.verdict ? 0.5 : 0];
    }
    case "mc": return node.total ? around(node.correct / node.total - 0.5, 0.5) : ["none", 0];
    case "reward": {
      const middle = (scales.low + scales.high) / 2;
      return around(node.reward === undefined ? undefined : node.reward - middle, scales.high - middle);
    }
    default: return around(node[colour], scales[colour]);
  }
}

function around(value, most) {
  if (value === undefined) return ["none", 0];
  const strength = most > 0 ? 0.15 + 0.85 * Math.min(1, Math.abs(value) / most) : 0.15;
  return [value > 0 ? "good" : value < 0 ? "bad" : "none", strength];
}

/** Return the width of the link into a node, in pixels. */
function linkWidth(tree, i, by) {
  const node = tree.nodes[i];
  if (by === "even") return 1.5;
  const share = by === "omega" ? node.omega ?? 0 : (node[by] ?? 0) / (tree.scales[by] || 1);
  return 1 + 8 * Math.sqrt(share);
}
