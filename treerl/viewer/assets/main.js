// The page: one state, written into the address behind "#", so that a link leads to a step.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);
const state = { tree: 0, node: 0, colour: "", width: "", theme: "" };
let tree = null;
const drawing = new Drawing($("stage"), choose, fold);

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const at = data.trees.findIndex((one) => String(one.number) === given.get("tree"));
  state.tree = Math.max(0, at);
  state.node = Math.max(0, Math.min(Number(given.get("node")) | 0, data.trees[state.tree].nodes.length - 1));
  for (const name of ["colour", "width", "theme"]) state[name] = given.get(name) ?? state[name];
}

function writeAddress() {
  const kept = new URLSearchParams({ tree: data.trees[state.tree].number, node: state.node });
  for (const name of ["colour", "width", "theme"]) if (state[name]) kept.set(name, state[name]);
  try { history.replaceState(null, "", `#${kept}`); } catch { /* some browsers refuse it for files */ }
}

/** Return the wish if the tree has data for it, else the first it has data for. */
function able(wish, names, usable) { return usable(wish) && wish in names ? wish : Object.keys(names).find(usable) ?? ""; }

function look() {
  const { has } = tree.scales;
  return {
    colour: able(state.colour, COLOURS, (name) => has.has(name)),
    width: able(state.width, WIDTHS, (name) => name === "even" || name === "samples" || has.has(name)),
  };
}

function fillSelect(select, names, chosen, usable) {
  select.replaceChildren(...Object.keys(names).map((name) => {
    const option = el("option", "", names[name]);
    option.value = name;
    option.disabled = !usable(name);
    return option;
  }));
  select.value = chosen;
}

function showTree(node) {
  tree = data.trees[state.tree];
  prepare(tree);
  state.node = node;
  for (const button of $("list").querySelectorAll("button")) {
    button.setAttribute("aria-current", String(Number(button.dataset.at) === state.tree));
  }
  fillProblem($("problem"), tree);
  refresh();
  drawing.begin();
  if (node) drawing.reveal(node);
}

function refresh() {
  const now = look(), { has } = tree.scales;
  fillSelect($("colour"), COLOURS, now.colour, (name) => has.has(name));
  fillSelect($("width"), WIDTHS, now.width, (name) => name === "even" || name === "samples" || has.has(name));
  $("legend").replaceChildren(...(LEGENDS[now.colour] ?? []).map(([tint, word]) => el("span", tint, `${signOf(tint, now.colour)} ${word}`)));
  $("fold").disabled = !tree.children[state.node].length;
  $("fold").textContent = tree.folded.has(state.node) ? "unfold" : "fold";
  drawing.show(tree, now, state.node);
  fillPanel($("panel"), tree, state.node);
  fillPath($("path"), tree, state.node, now.colour, choose, false);
  writeAddress();
}

function choose(node) {
  state.node = node;
  for (const i of wayTo(tree, node).slice(0, -1)) tree.folded.delete(i);
  refresh();
  drawing.reveal(node);
}

function fold(node) {
  if (!tree.children[node].length) return;
  if (!tree.folded.delete(node)) {
    tree.folded.add(node);
    if (wayTo(tree, state.node).includes(node)) state.node = node;
  }
  const before = drawing.places.y[node];
  refresh();
  drawing.view.y += (before - drawing.places.y[node]) * drawing.view.k;  // it stays where it was
  drawing.redraw();
}

function step(key) {
  const { nodes, children, folded } = tree, { parent } = nodes[state.node];
  if (key === "ArrowLeft") return parent;
  if (key === "ArrowRight") return folded.has(state.node) ? undefined : children[state.node][0];
  if (key === "Home") return 0;
  // Up and down: the next node of the same level, across branches.
  const level = drawing.places.order.filter((i) => tree.depth[i] === tree.depth[state.node]);
  return level[level.indexOf(state.node) + (key === "ArrowDown" ? 1 : -1)];
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const actions = {
    "+": () => drawing.zoom(1.25), "=": () => drawing.zoom(1.25), "-": () => drawing.zoom(0.8),
    "0": () => drawing.fit(), f: () => fold(state.node), Enter: () => fold(state.node),
  };
  if (event.key.startsWith("Arrow") || event.key === "Home") {
    const next = step(event.key);
    if (next !== undefined) choose(next);
  } else if (actions[event.key]) actions[event.key]();
  else return;
  event.preventDefault();
}

function setTheme() {
  const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "light" : "dark";
  $("theme").setAttribute("aria-label", `Switch to the ${dark ? "light" : "dark"} theme`);
}

function fillFrame() {
  const { trees, held, more, run, source } = data;
  document.title = `${source}: treerl view`;
  $("source").textContent = source;
  const steps = trees.reduce((sum, one) => sum + one.nodes.length - 1, 0);
  $("counts").textContent = `${counted(trees.length, "tree")}, ${counted(steps, "step")}`;
  $("list").replaceChildren(...trees.map((one, at) => {
    const button = el("button", "", el("span", "name text", `${one.number}  ${one.id}`),
      el("span", "facts", `${counted(one.nodes.length - 1, "step")}, ${one.right}/${one.scored} right`));
    button.type = "button";
    button.dataset.at = at;
    button.addEventListener("click", () => { state.tree = at; showTree(0); });
    return el("li", "", button);
  }));
  if (more) {
    const of = held === null ? "" : ` of ${held.toLocaleString("en")}`;
    $("bound").textContent = `Only ${trees.length}${of} are in this page; --limit, --problem and --index of treerl view choose.`;
  }
  const { ledger, finished, ...rest } = run;
  const pairs = Object.entries(rest);
  if (finished === false) pairs.push(["state", "still under way, or interrupted"]);
  for (const [name, value] of Object.entries(ledger ?? {})) pairs.push([name.replace("_", " "), value.toLocaleString("en")]);
  $("run").replaceChildren(...facts(pairs).childNodes);
  $("run").parentElement.hidden = !pairs.length;
  if (innerWidth < 760 && trees.length > 1) document.querySelector("#trees details").open = false;
}

readAddress();
setTheme();
fillFrame();
showTree(state.node);
$("stage").addEventListener("keydown", pressed);
$("theme").addEventListener("click", () => {
  state.theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  setTheme();
  writeAddress();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", setTheme);
addEventListener("hashchange", () => { readAddress(); setTheme(); showTree(state.node); });
for (const name of ["colour", "width"]) {
  $(name).addEventListener("change", (event) => { state[name] = event.target.value; refresh(); });
}
$("in").addEventListener("click", () => drawing.zoom(1.25));
$("out").addEventListener("click", () => drawing.zoom(0.8));
$("fit").addEventListener("click", () => drawing.fit());
$("fold").addEventListener("click", () => fold(state.node));
