// Words around the tree. Every string of a run becomes a text node, by `append`; nothing is markup.

function el(tag, kind, ...children) {
  const element = document.createElement(tag);
  if (kind) element.className = kind;
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const plural = (number, word, many = `${word}s`) => (number === 1 ? word : many);
const counted = (number, word) => `${number.toLocaleString("en")} ${plural(number, word)}`;

function facts(pairs) {
  const list = el("dl", "");
  for (const [name, value] of pairs) {
    if (value !== undefined && value !== null && value !== "") list.append(el("dt", "", name), el("dd", "", String(value)));
  }
  return list;
}

function fillPanel(panel, tree, i) {
  const node = tree.nodes[i];
  const parts = [el("h2", "", i === 0 ? "Problem" : `Step ${tree.depth[i]}`, el("span", "dim", `  node ${i}`))];
  if (node.error !== undefined) parts.push(el("p", "warn", "The request failed: ", el("span", "text", node.error)));
  if (i > 0 && node.text !== undefined) parts.push(el("div", "step text", node.text || "(no text)"));
  if (node.label) parts.push(...labelParts(node.label));
  const average = node.logprob === undefined ? undefined : (node.logprob / node.tokens).toFixed(3);
  parts.push(el("h3", "", "Search"), facts([
    ["right / rollouts", node.total && `${node.correct} / ${node.total} (${(100 * node.correct / node.total).toFixed(0)} %)`],
    ["visits N", node.visits], ["value Q", node.value], ["prior", node.prior],
    ["reward", node.reward], [data.run.advantage ? `advantage (${data.run.advantage})` : "advantage", node.advantage], ["ω", node.omega],
    ["samples", node.samples], ["tokens", node.tokens.toLocaleString("en")],
    ["log-prob", average && `${node.logprob} (${average} a token)`],
    ["ends", node.end], ["kind", node.kind], ["steps below", tree.below[i].toLocaleString("en")],
    ["seed", node.seed], ["policy version", node.version],
  ]));
  if (node.verdict) parts.push(...verdictParts(node.verdict));
  if (node.meta) parts.push(el("details", "", el("summary", "", "Notes of the search"), el("pre", "text", node.meta)));
  panel.replaceChildren(...parts);
  panel.scrollTop = 0;
}

function labelParts(label) {
  const [tint, word] = label.masked ? ["none", "masked: behind a wrong step"]
    : label.value === 1 ? ["good", "right"] : label.value === 0 ? ["bad", "wrong"] : ["none", "no label"];
  return [
    el("p", tint, el("b", "", `${SIGNS[tint]} ${word}`), el("span", "dim", `  by ${label.source}`)),
    facts([["soft label", label.soft]]),
    label.why ? el("p", "dim text", label.why) : null,
  ].filter(Boolean);
}

function verdictTint(verdict) {
  return verdict === "SUPPORTED" ? "good" : verdict === "REFUTED" ? "bad" : "none";
}

function verdictParts(verdict) {
  const tint = verdictTint(verdict.verdict);
  const parts = [
    el("h3", "", "Tool verdict"),
    el("p", tint, el("b", "", `${SIGNS[tint]} ${verdict.verdict.toLowerCase()}`), el("span", "dim", `  ${verdict.reason}`)),
    facts([["strength", verdict.strength], ["verifier", verdict.verifier], ["unsourced", verdict.unsourced.join(", ")]]),
  ];
  for (const claim of verdict.claims) {
    const own = verdictTint(claim.verdict);
    const block = el("div", "claim", el("pre", "text", claim.claim.text),
      el("p", own, el("b", "", `${SIGNS[own]} ${claim.verdict.toLowerCase()}`),
        el("span", "dim", `  ${[claim.reason, claim.strength].filter(Boolean).join(", ")}`)),
      facts([["kind", claim.claim.kind], ["read as", claim.reading]]));
    for (const call of claim.calls) {
      block.append(el("details", "",
        el("summary", "", `${call.tool} ${call.tool_version}: ${call.status}`),
        el("div", "dim", "query"), el("pre", "text", call.query),
        el("div", "dim", "output"), el("pre", "text", call.output || "(nothing)"),
        facts([["ran in", call.isolation]])));
    }
    parts.push(block);
  }
  return parts;
}

function fillProblem(section, tree) {
  const { ledger, run } = tree;
  const parts = [el("h2", "", tree.id)];
  for (const message of tree.messages) {
    parts.push(el("p", "text", message.role === "user" ? "" : el("b", "", `${message.role}: `), message.text));
  }
  const gold = el("p", "", el("span", "dim", "gold answer "), el("span", "text", tree.answer ?? "unknown"));
  const chips = el("div", "chips");
  const add = (value, words) => chips.append(el("span", "", el("b", "", value.toLocaleString("en")), ` ${words}`));
  add(tree.nodes.length - 1, plural(tree.nodes.length - 1, "step"));
  add(tree.leaves, plural(tree.leaves, "leaf", "leaves"));
  chips.append(el("span", "", el("b", "", `${tree.right} / ${tree.scored}`), " samples right"));
  add(ledger.generated, `tokens generated (${ledger.kept.toLocaleString("en")} kept, ${ledger.discarded.toLocaleString("en")} discarded)`);
  add(ledger.submitted, "prompt tokens submitted");
  add(ledger.requests, `${plural(ledger.requests, "request")} (${ledger.failed_requests} failed)`);
  add(ledger.judged, plural(ledger.judged, "judgement"));
  if (run.sampler) chips.append(el("span", "", `by ${run.sampler}`));
  section.replaceChildren(...parts, gold, chips);
}

const SHOWN = 200;  // steps of a longer path that are written out; the rest on request

function fillPath(section, tree, chosen, colour, choose, whole) {
  const way = wayTo(tree, chosen).slice(1);
  const hidden = whole ? 0 : Math.max(0, way.length - SHOWN);
  const last = tree.nodes[chosen];
  // TreePO cuts anywhere, inside words too: its segments are written on like the text that they are.
  const list = el("ol", tree.run.sampler === "treepo" ? "flowing" : "");
  const tokens = way.reduce((sum, i) => sum + tree.nodes[i].tokens, 0);
  const title = el("h2", "", "The path to this step",
    el("span", "dim", `  ${counted(way.length, "step")}, ${counted(tokens, "token")}`));
  const parts = [title];
  if (!way.length) parts.push(el("p", "dim", "Choose a step: click it, or walk with the arrow keys."));
  if (hidden) {
    const more = el("button", "", `show the first ${counted(hidden, "step")} too`);
    more.addEventListener("click", () => fillPath(section, tree, chosen, colour, choose, true));
    parts.push(more);
  }
  for (const i of way.slice(hidden)) {
    const node = tree.nodes[i], [tint, strength] = tintOf(tree, i, colour);
    const item = el("li", "", el("span", tint, strength ? signOf(tint, colour) : ""),
      el("span", "text", node.error ?? (node.text || "(end)")),
      el("span", "dim", node.total ? `${node.correct}/${node.total}` : ""));
    if (i === chosen) item.setAttribute("aria-current", "step");
    item.addEventListener("click", () => choose(i));
    list.append(item);
  }
  parts.push(list);
  if (way.length) {
    const ended = last.end === undefined ? "The solution goes on below this step."
      : `Ends here: ${last.end}${last.reward === undefined ? "" : `, reward ${last.reward}`}.`;
    parts.push(el("p", "dim", ended));
  }
  section.replaceChildren(...parts);
}
