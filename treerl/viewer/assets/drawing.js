// The tree as SVG. Only what the window shows, and half a window around it, is in the document; far
// out, nodes of one tint become one path. So 5,000 nodes cost what a few hundred do.

const SVG = "http://www.w3.org/2000/svg";
const NEAR = 0.5;  // below this scale no text can be read, so none is drawn
const LEAST = 0.04, MOST = 2.5;
const CARD_FONT = '12.5px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif';  // as in page.css
const TEXT_X = 26, COUNT_ROOM = 36;

function svg(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  element.append(...children);
  return element;
}

const pen = document.createElement("canvas").getContext("2d");

/** Return text as one line that is no wider than so many pixels in the tree's own type. */
function fitted(text, room) {
  const line = Array.from(text.slice(0, 2 * room).replace(/\s+/g, " ").trim());
  pen.font = CARD_FONT;
  const wide = (n) => pen.measureText(line.slice(0, n).join("") + (n < line.length ? "…" : "")).width;
  if (wide(line.length) <= room) return line.join("");
  let fits = 0, not = line.length;
  while (not - fits > 1) {
    const middle = (fits + not) >> 1;
    if (wide(middle) <= room) fits = middle;
    else not = middle;
  }
  return line.slice(0, fits).join("").trimEnd() + "…";
}

class Drawing {
  constructor(stage, choose, fold) {
    this.stage = stage;
    this.view = { x: 0, y: 0, k: 1 };  // screen = world * k + (x, y)
    this.links = svg("g", {});
    this.cards = svg("g", {});
    this.world = svg("g", {}, this.links, this.cards);
    stage.append(svg("svg", { "aria-hidden": "true" }, this.world));
    this.listen(choose, fold);
    new ResizeObserver(() => { if (this.tree) this.moved(); }).observe(stage);
  }

  show(tree, look, chosen) {
    this.tree = tree;
    this.look = look;
    this.chosen = chosen;
    this.way = new Set(wayTo(tree, chosen));
    this.places = layOut(tree);
    this.redraw();
  }

  size() { return [this.stage.clientWidth || 1, this.stage.clientHeight || 1]; }

  /** Return the part of the world that is in the window, grown by a share of its size. */
  window(grown) {
    const [w, h] = this.size(), { x, y, k } = this.view;
    return {
      left: (-x - w * grown) / k, right: (-x + w * (1 + grown)) / k,
      top: (-y - h * grown) / k, bottom: (-y + h * (1 + grown)) / k,
    };
  }

  moved() {
    const { x, y, k } = this.view, now = this.window(0), drawn = this.drawn;
    this.world.setAttribute("transform", `translate(${x} ${y}) scale(${k})`);
    const inside = drawn && now.left >= drawn.left && now.right <= drawn.right
      && now.top >= drawn.top && now.bottom <= drawn.bottom;
    if (!inside || (k >= NEAR) !== this.near || k > 2 * this.scale) this.redraw();
  }

  redraw() {
    const { x, y, k } = this.view;
    this.near = k >= NEAR;
    this.scale = k;
    this.drawn = this.window(0.5);
    this.world.setAttribute("transform", `translate(${x} ${y}) scale(${k})`);
    this.drawLinks();
    if (this.near) this.drawCards();
    else this.drawDots();
  }

  drawLinks() {
    const { tree, places: { order, x, y }, drawn } = this;
    const paths = new Map();  // class and width -> path
    for (const i of order) {
      const up = tree.nodes[i].parent;
      if (up === undefined) continue;
      const from = x[up] + BOX_W, to = x[i];
      if (to < drawn.left || from > drawn.right || Math.max(y[up], y[i]) < drawn.top
        || Math.min(y[up], y[i]) > drawn.bottom) continue;
      const width = Math.round(2 * linkWidth(tree, i, this.look.width)) / 2;
      const key = `${this.way.has(i) ? "link chosen" : "link"}/${width}`;
      const middle = (from + to) / 2;
      const piece = `M${from} ${y[up]}C${middle} ${y[up]} ${middle} ${y[i]} ${to} ${y[i]}`;
      paths.set(key, (paths.get(key) ?? "") + piece);
    }
    const drawnPaths = [...paths].sort(([a], [b]) => a.includes("chosen") - b.includes("chosen"));
    this.links.replaceChildren(...drawnPaths.map(([key, d]) => {
      const [kind, width] = key.split("/");
      return svg("path", { class: kind, "stroke-width": width, d });
    }));
  }

  *seen() {
    const { places: { order, x, y }, drawn } = this;
    for (const i of order) {
      if (x[i] <= drawn.right && x[i] + BOX_W >= drawn.left
        && y[i] - BOX_H <= drawn.bottom && y[i] + BOX_H >= drawn.top) yield i;
    }
  }

  drawCards() { this.cards.replaceChildren(...Array.from(this.seen(), (i) => this.card(i))); }

  card(i) {
    const { tree, places: { x, y } } = this, node = tree.nodes[i];
    const [tint, strength] = tintOf(tree, i, this.look.colour);
    const box = { x: 0, y: -BOX_H / 2, width: BOX_W, height: BOX_H, rx: 6 };
    const group = svg("g", {
      class: `node${this.way.has(i) ? " way" : ""}${i === this.chosen ? " chosen" : ""}`,
      transform: `translate(${x[i]} ${y[i]})`, "data-node": i,
    });
    group.append(svg("rect", { ...box, class: "card" }));
    if (strength) {
      group.append(
        svg("rect", { ...box, class: `fill-${tint}`, "fill-opacity": (0.28 * strength).toFixed(3) }),
        svg("rect", { x: 0, y: -BOX_H / 2, width: 5, height: BOX_H, rx: 2.5, class: `fill-${tint}`, "fill-opacity": strength.toFixed(3) }),
      );
      group.append(svg("text", { x: 11, y: 4.5, class: `mark fill-${tint}` }, signOf(tint, this.look.colour)));
    }
    const count = node.total ? `${node.correct}/${node.total}` : node.reward !== undefined ? `${node.reward}` : "";
    const room = BOX_W - TEXT_X - 8 - (count ? COUNT_ROOM : 0);
    const text = i === 0 ? "problem" : node.error ?? node.text ?? "";
    const instead = node.end ? `(${node.end})` : counted(node.tokens, "token");
    group.append(
      svg("text", { x: TEXT_X, y: 4.5 }, fitted(text, room) || instead),
      svg("text", { x: BOX_W - 7, y: 4, class: "count" }, count),
    );
    if (tree.folded.has(i)) group.append(svg("text", { x: BOX_W + 6, y: 4, class: "more" }, `+${tree.below[i]}`));
    return group;
  }

  drawDots() {
    const { tree, places: { x, y } } = this, paths = new Map();
    for (const i of this.seen()) {
      const [tint, strength] = tintOf(tree, i, this.look.colour);
      const kind = this.way.has(i) ? "way-dot" : `fill-${strength ? tint : "none"}`;
      const key = `${kind}/${this.way.has(i) ? 1 : Math.max(0.3, Math.round(5 * strength) / 5)}`;
      const piece = `M${x[i]} ${y[i] - BOX_H / 2}h${BOX_W}v${BOX_H}h${-BOX_W}z`;
      paths.set(key, (paths.get(key) ?? "") + piece);
    }
    this.cards.replaceChildren(...Array.from(paths, ([key, d]) => {
      const [kind, opacity] = key.split("/");
      return svg("path", { class: kind, "fill-opacity": opacity, d });
    }));
  }

  /** Return the node under a point of the stage, if any. */
  at(px, py) {
    const wx = (px - this.view.x) / this.view.k, wy = (py - this.view.y) / this.view.k;
    const { order, x, y } = this.places;
    return order.find((i) => wx >= x[i] && wx <= x[i] + BOX_W && Math.abs(wy - y[i]) <= BOX_H / 2 + 2);
  }

  fit() {
    const [w, h] = this.size(), { width, height } = this.places;
    const k = Math.max(LEAST, Math.min(1, (w - 32) / width, (h - 32) / height));
    const x = width * k < w ? (w - width * k) / 2 : 16;
    const y = height * k < h ? (h - (height - ROW) * k) / 2 : h / 2 - this.places.y[0] * k;
    this.view = { x, y, k };
    this.redraw();
  }

  /** Start where text can be read: the whole tree if it is small, else its root. */
  begin() {
    this.fit();
    const readable = 0.8;
    if (this.view.k >= readable) return;
    this.view = { x: 16, y: this.size()[1] / 2 - this.places.y[0] * readable, k: readable };
    this.redraw();
  }

  zoom(factor, px = this.size()[0] / 2, py = this.size()[1] / 2) {
    const { x, y, k } = this.view, to = Math.min(MOST, Math.max(LEAST, k * factor));
    this.view = { x: px - (px - x) * to / k, y: py - (py - y) * to / k, k: to };
    this.moved();
  }

  /** Bring a node into the window. */
  reveal(i) {
    const [w, h] = this.size(), { k } = this.view;
    const x = this.places.x[i] * k + this.view.x, y = this.places.y[i] * k + this.view.y;
    const most = Math.max(16, w - BOX_W * k - 16);
    this.view.x += Math.min(most, Math.max(16, x)) - x;
    const margin = Math.min(80, h / 4);
    this.view.y += Math.min(h - margin, Math.max(margin, y)) - y;
    this.moved();
  }

  listen(choose, fold) {
    const { stage } = this;
    let drag = null;
    const place = (event) => {
      const box = stage.getBoundingClientRect();
      return [event.clientX - box.left - stage.clientLeft, event.clientY - box.top - stage.clientTop];
    };
    stage.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      drag = { x: event.clientX, y: event.clientY, start: { ...this.view }, far: false };
      stage.setPointerCapture(event.pointerId);
    });
    stage.addEventListener("pointermove", (event) => {
      if (!drag) return;
      const dx = event.clientX - drag.x, dy = event.clientY - drag.y;
      drag.far ||= Math.hypot(dx, dy) > 4;
      if (!drag.far) return;
      stage.classList.add("dragging");
      this.view = { ...this.view, x: drag.start.x + dx, y: drag.start.y + dy };
      this.moved();
    });
    const end = (event) => {
      stage.classList.remove("dragging");
      const still = drag && !drag.far && event.type === "pointerup";
      drag = null;
      const node = still ? this.at(...place(event)) : undefined;
      if (node !== undefined) choose(node);
    };
    stage.addEventListener("pointerup", end);
    stage.addEventListener("pointercancel", end);
    stage.addEventListener("dblclick", (event) => {
      const node = this.at(...place(event));
      if (node !== undefined) fold(node);
    });
    stage.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) this.zoom(Math.exp(-event.deltaY / 300), ...place(event));
      else {
        const unit = event.deltaMode === 1 ? 16 : 1;
        this.view = { ...this.view, x: this.view.x - unit * event.deltaX, y: this.view.y - unit * event.deltaY };
        this.moved();
      }
    }, { passive: false });
  }
}
