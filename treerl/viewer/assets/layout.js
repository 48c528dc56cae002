// Where each node stands. A column a level, a row a visible tip; no function calls itself, so a
// tree of any depth is laid out.

const COLUMN = 252, ROW = 32, BOX_W = 212, BOX_H = 26;

/** Give a tree its children, depths and sums below; once, when it is first shown. */
function prepare(tree) {
  if (tree.children) return;
  const { nodes } = tree;
  tree.children = nodes.map(() => []);
  tree.depth = new Int32Array(nodes.length);
  tree.below = new Int32Array(nodes.length);
  for (let i = 1; i < nodes.length; i++) {  // a parent stands before its children
    tree.children[nodes[i].parent].push(i);
    tree.depth[i] = tree.depth[nodes[i].parent] + 1;
  }
  for (let i = nodes.length - 1; i > 0; i--) tree.below[nodes[i].parent] += tree.below[i] + 1;
  tree.folded = new Set();
  tree.scales = scalesOf(tree);
}

/** Return {order, x, y, width, height}: visible nodes in depth-first order and their left middles. */
function layOut(tree) {
  const { children, depth, folded, nodes } = tree;
  const x = new Float64Array(nodes.length), y = new Float64Array(nodes.length);
  const order = [], stack = [0];
  let rows = 0, deepest = 0;
  while (stack.length) {
    const i = stack.pop();
    order.push(i);
    x[i] = depth[i] * COLUMN;
    deepest = Math.max(deepest, depth[i]);
    if (folded.has(i) || !children[i].length) y[i] = ROW * rows++;
    else for (let c = children[i].length - 1; c >= 0; c--) stack.push(children[i][c]);
  }
  for (let at = order.length - 1; at >= 0; at--) {  // children before their parent
    const i = order[at], below = children[i];
    if (below.length && !folded.has(i)) y[i] = (y[below[0]] + y[below[below.length - 1]]) / 2;
  }
  return { order, x, y, width: deepest * COLUMN + BOX_W, height: Math.max(1, rows) * ROW };
}

/** Return the nodes from the root down to one, both included. */
function wayTo(tree, node) {
  const way = [];
  for (let i = node; i !== undefined; i = tree.nodes[i].parent) way.push(i);
  return way.reverse();
}
