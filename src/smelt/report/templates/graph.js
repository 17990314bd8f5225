/* The graph on a canvas: regions closed to one box or open with their nodes inside. */

const NODE_H = 30, REGION_H = 46, PAD = 14, HEAD = 24;
const HUES = [212, 145, 265, 28, 185, 335, 95, 300, 48, 235, 165, 5];

class Graph {
  constructor(data, view, overview, onPick) {
    this.data = data; this.view = view; this.overview = overview; this.onPick = onPick;
    this.pen = view.getContext('2d'); this.small = overview.getContext('2d');
    this.open = new Set(); this.picked = null; this.hits = new Set(); this.heat = false;
    this.scale = 1; this.x = 0; this.y = 0;
    this.nodes = data.nodes.map(([op, name, region, reason, sources, inputs, outputs, attributes], id) => ({
      id, op: data.texts[op], name, region, reason: data.texts[reason], sources, inputs, outputs, attributes }));
    this.regions = new Map(data.regions.map(([index, entry, time, bound, error, ops, count]) => [index, { index, entry, time, bound, error, ops, count, nodes: [] }]));
    for (const n of this.nodes) if (this.regions.has(n.region)) this.regions.get(n.region).nodes.push(n.id); else n.region = -1;
    const entries = [...new Set(data.regions.map((r) => r[1]))];
    this.hue = new Map(entries.map((e, i) => [e, HUES[i % HUES.length]]));
    const times = [...data.regions.map((r) => r[2] ?? 0), ...Object.values(data.fallbackTimes)];
    this.hottest = Math.max(1e-9, ...times);
    this.listen();
    this.arrange();
  }

  colours() {
    const css = getComputedStyle(document.documentElement), get = (n) => css.getPropertyValue(n).trim();
    return { card: get('--card'), ink: get('--ink'), dim: get('--dim'), line: get('--line'), edge: get('--edge'), left: get('--left'), leftLine: get('--left-line'), hit: get('--hit'), accent: get('--accent'),
      dark: matchMedia('(prefers-color-scheme: dark)').matches };
  }

  width(text, font) { this.pen.font = font; return this.pen.measureText(text).width; }

  /* Boxes to show, and their places. Regions are convex, so what is closed cannot make a cycle. */
  arrange() {
    const owner = new Map(), items = [];
    const item = (key, make) => { if (!owner.has(key)) { owner.set(key, items.length); items.push(make()); } return owner.get(key); };
    const keyOf = (n) => (n.region < 0 ? 'n' + n.id : 'r' + n.region);
    for (const n of this.nodes) item(keyOf(n), () => (n.region < 0 ? this.leaf(n) : this.group(this.regions.get(n.region))));
    const pairs = new Set(), edges = [];
    for (const n of this.nodes) for (const s of n.sources) {
      const a = owner.get(keyOf(this.nodes[s])), b = owner.get(keyOf(n));
      if (a !== b && !pairs.has(a * 1e6 + b)) { pairs.add(a * 1e6 + b); edges.push([a, b]); }
    }
    const sorted = topological(items.length, edges);
    const spot = new Array(items.length);
    sorted.forEach((old, now) => { spot[old] = now; });
    const boxes = sorted.map((old) => items[old]);
    const out = layered(boxes, edges.map(([a, b]) => [spot[a], spot[b]]));
    boxes.forEach((b, i) => { b.x = out.at[i].x; b.y = out.at[i].y; });
    this.boxes = boxes; this.segments = out.segments; this.w = out.w; this.h = out.h;
    this.where = new Map();
    for (const b of boxes) {
      if (b.node) this.where.set('n' + b.node.id, b);
      else { this.where.set('r' + b.region.index, b); for (const inner of b.inner ?? []) this.where.set('n' + inner.node.id, { x: b.x + PAD + inner.x, y: b.y + HEAD + inner.y, w: inner.w, h: inner.h }); }
    }
    this.paint();
  }

  leaf(node) { return { node, w: Math.max(70, Math.min(220, this.width(node.op, '600 12px system-ui') + 24)), h: NODE_H }; }

  group(region) {
    if (!this.open.has(region.index)) {
      const text = Math.max(this.width(this.subtitle(region), '11px system-ui'), this.width(this.title(region), '600 12px system-ui'));
      return { region, w: Math.max(120, Math.min(330, text + 28)), h: REGION_H };
    }
    const local = new Map(region.nodes.map((id, i) => [id, i])), edges = [];
    const inner = region.nodes.map((id) => this.leaf(this.nodes[id]));
    for (const id of region.nodes) for (const s of this.nodes[id].sources) if (local.has(s)) edges.push([local.get(s), local.get(id)]);
    const out = layered(inner, edges);
    const wide = Math.max(out.w, this.width(this.title(region), '600 12px system-ui') + 24 - 2 * PAD), shift = (wide - out.w) / 2;
    inner.forEach((b, i) => { b.x = out.at[i].x + shift; b.y = out.at[i].y; });
    const segments = out.segments.map(([x0, y0, x1, y1]) => [x0 + shift, y0, x1 + shift, y1]);
    return { region, inner, segments, w: wide + 2 * PAD, h: out.h + HEAD + PAD };
  }

  title(region) { return `region ${region.index} · ${region.entry} · ${region.count} node${region.count === 1 ? '' : 's'}`; }

  subtitle(region) { return region.time != null ? `${microseconds(region.time)} · ${region.ops}` : region.ops; }

  size(canvas) {
    const ratio = devicePixelRatio || 1, box = canvas.getBoundingClientRect();
    const w = Math.round(box.width * ratio), h = Math.round(box.height * ratio);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    return { w: box.width, h: box.height, ratio };
  }

  paint() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => { this.waiting = 0; this.draw(); this.drawOverview(); });
  }

  draw() {
    const { w, h, ratio } = this.size(this.view), p = this.pen, c = this.colours();
    p.setTransform(ratio, 0, 0, ratio, 0, 0); p.clearRect(0, 0, w, h);
    p.translate(-this.x * this.scale, -this.y * this.scale); p.scale(this.scale, this.scale);
    const seen = { x0: this.x - 40, y0: this.y - 40, x1: this.x + w / this.scale + 40, y1: this.y + h / this.scale + 40 };
    this.strokeEdges(this.segments, seen, 0, 0, c);
    for (const b of this.boxes) if (overlaps(b, seen)) this.box(b, b.x, b.y, c, seen);
  }

  strokeEdges(segments, seen, dx, dy, c) {
    const p = this.pen;
    p.strokeStyle = c.edge; p.lineWidth = Math.max(1.1, 0.7 / this.scale); p.beginPath();
    for (const [x0, y0, x1, y1] of segments) {
      if (y1 + dy < seen.y0 || y0 + dy > seen.y1) continue;
      const mid = (y0 + y1) / 2 + dy;
      p.moveTo(x0 + dx, y0 + dy); p.bezierCurveTo(x0 + dx, mid, x1 + dx, mid, x1 + dx, y1 + dy);
    }
    p.stroke();
  }

  fill(b, c) {
    if (this.heat) {
      const time = b.node ? this.data.fallbackTimes[b.node.name] ?? 0 : b.region.time ?? 0, part = Math.sqrt(time / this.hottest);
      return `hsl(${50 - 45 * part} 90% ${c.dark ? 18 + 30 * part : 96 - 38 * part}%)`;
    }
    if (b.node && b.node.region < 0) return c.left;
    const hue = this.hue.get(b.node ? this.regions.get(b.node.region).entry : b.region.entry);
    return b.node ? c.card : c.dark ? `hsl(${hue} 35% ${b.inner ? 16 : 24}%)` : `hsl(${hue} 70% ${b.inner ? 95 : 88}%)`;
  }

  stroke(b, c) {
    if (b.node && b.node.region < 0) return c.leftLine;
    const hue = this.hue.get(b.node ? this.regions.get(b.node.region).entry : b.region.entry);
    return c.dark ? `hsl(${hue} 40% 50%)` : `hsl(${hue} 45% 55%)`;
  }

  box(b, x, y, c, seen) {
    const p = this.pen, key = b.node ? 'n' + b.node.id : 'r' + b.region.index;
    const hit = b.node ? this.hits.has(b.node.id) : b.region.nodes.some((id) => this.hits.has(id));
    p.beginPath(); p.roundRect(x, y, b.w, b.h, 6); p.fillStyle = this.fill(b, c); p.fill();
    p.lineWidth = key === this.picked || hit ? 2.5 : 1; p.strokeStyle = key === this.picked ? c.accent : hit ? c.hit : this.stroke(b, c);
    p.setLineDash(b.node && b.node.region < 0 ? [4, 3] : []); p.stroke(); p.setLineDash([]);
    if (this.scale > 0.28) this.label(b, x, y, c);
    if (!b.inner) return;
    this.strokeEdges(b.segments, seen, x + PAD, y + HEAD, c);
    for (const inner of b.inner) {
      const at = { x: x + PAD + inner.x, y: y + HEAD + inner.y, w: inner.w, h: inner.h };
      if (overlaps(at, seen)) this.box(inner, at.x, at.y, c, seen);
    }
  }

  label(b, x, y, c) {
    const p = this.pen, text = (s, font, colour, tx, ty, align) => { p.font = font; p.fillStyle = colour; p.textAlign = align; p.textBaseline = 'middle'; p.fillText(fitted(p, s, b.w - 14), tx, ty); };
    if (b.node) text(b.node.op, '600 12px system-ui', c.ink, x + b.w / 2, y + b.h / 2, 'center');
    else if (b.inner) text(this.title(b.region), '600 12px system-ui', c.ink, x + 10, y + HEAD / 2 + 1, 'left');
    else {
      text(this.title(b.region), '600 12px system-ui', c.ink, x + b.w / 2, y + 16, 'center');
      text(this.subtitle(b.region), '11px system-ui', this.heat ? c.ink : c.dim, x + b.w / 2, y + 33, 'center');
    }
  }

  drawOverview() {
    const { w, h, ratio } = this.size(this.overview), p = this.small, c = this.colours();
    if (!w || !this.h) return;
    const s = this.overviewScale(w, h), view = this.view.getBoundingClientRect();
    p.setTransform(ratio, 0, 0, ratio, 0, 0); p.clearRect(0, 0, w, h);
    const block = (b, x, y, colour) => { p.fillStyle = colour; p.fillRect(s.dx + x * s.x, s.dy + y * s.y, Math.max(2, b.w * s.x), Math.max(1, b.h * s.y)); };
    for (const b of this.boxes) {
      block(b, b.x, b.y, b.inner ? this.fill(b, c) : this.stroke(b, c));
      for (const inner of b.inner ?? []) block(inner, b.x + PAD + inner.x, b.y + HEAD + inner.y, this.stroke(inner, c));
    }
    p.strokeStyle = c.accent; p.lineWidth = 1.5;
    const top = clamp(s.dy + this.y * s.y, 1, h - 3), bottom = clamp(s.dy + (this.y + view.height / this.scale) * s.y, 3, h - 1);
    p.strokeRect(1, top, w - 2, Math.max(3, bottom - top));
  }

  overviewScale(w, h) {
    const y = (h - 12) / this.h, x = Math.min((w - 12) / Math.max(1, this.w), 1);
    return { x, y: Math.min(y, 1), dx: (w - this.w * x) / 2, dy: 6 };
  }

  fit() {
    const box = this.view.getBoundingClientRect();
    this.scale = clamp(Math.min((box.width - 40) / Math.max(1, this.w), (box.height - 40) / Math.max(1, this.h)), 0.02, 1.3);
    this.x = this.w / 2 - box.width / 2 / this.scale; this.y = this.h / 2 - box.height / 2 / this.scale; this.paint();
  }

  /* The top at a size that can be read: where reading starts. */
  start() {
    const box = this.view.getBoundingClientRect();
    this.scale = clamp(Math.min((box.width - 40) / Math.max(1, this.w), (box.height - 40) / Math.max(1, this.h)), 0.8, 1);
    this.x = this.w / 2 - box.width / 2 / this.scale; this.y = Math.min(-20, (this.h - box.height / this.scale) / 2); if (this.h * this.scale > box.height) this.y = -20;
    this.paint();
  }

  zoom(factor, cx, cy) {
    const box = this.view.getBoundingClientRect(), px = cx ?? box.width / 2, py = cy ?? box.height / 2;
    const scale = clamp(this.scale * factor, 0.02, 3);
    this.x += px / this.scale - px / scale; this.y += py / this.scale - py / scale; this.scale = scale; this.paint();
  }

  centre(key) {
    const at = this.where.get(key), box = this.view.getBoundingClientRect();
    if (!at) return;
    if (this.scale < 0.6) this.scale = 0.8;
    this.x = at.x + at.w / 2 - box.width / 2 / this.scale; this.y = at.y + Math.min(at.h, 120) / 2 - box.height / 2 / this.scale; this.paint();
  }

  show(key) {
    if (key[0] === 'n') { const n = this.nodes[+key.slice(1)]; if (n.region >= 0 && !this.open.has(n.region)) { this.open.add(n.region); this.arrange(); } }
    this.pick(key); this.centre(key);
  }

  pick(key) { this.picked = key; this.onPick(key); this.paint(); }

  toggle(index) {
    const before = this.where.get('r' + index);
    if (this.open.has(index)) this.open.delete(index); else this.open.add(index);
    this.arrange();
    const after = this.where.get('r' + index);
    this.x += after.x + after.w / 2 - before.x - before.w / 2; this.y += after.y - before.y; this.paint();
  }

  all(open) { this.open = new Set(open ? this.regions.keys() : []); this.arrange(); this.start(); }

  at(event) {
    const box = this.view.getBoundingClientRect(), x = (event.clientX - box.left) / this.scale + this.x, y = (event.clientY - box.top) / this.scale + this.y;
    for (const b of this.boxes) {
      if (!within(b, x, y)) continue;
      for (const inner of b.inner ?? []) if (within(inner, x - b.x - PAD, y - b.y - HEAD)) return 'n' + inner.node.id;
      return b.node ? 'n' + b.node.id : 'r' + b.region.index;
    }
    return null;
  }

  listen() {
    const v = this.view; let from = null, moved = false;
    v.addEventListener('pointerdown', (e) => { from = { x: e.clientX, y: e.clientY }; moved = false; v.setPointerCapture(e.pointerId); v.classList.add('drag'); });
    v.addEventListener('pointermove', (e) => {
      if (!from) return;
      const dx = e.clientX - from.x, dy = e.clientY - from.y;
      if (Math.abs(dx) + Math.abs(dy) > 3) moved = true;
      if (moved) { this.x -= dx / this.scale; this.y -= dy / this.scale; from = { x: e.clientX, y: e.clientY }; this.paint(); }
    });
    v.addEventListener('pointerup', (e) => { v.classList.remove('drag'); if (from && !moved) { const key = this.at(e); this.pick(key); } from = null; });
    v.addEventListener('dblclick', (e) => { const key = this.at(e); if (key && key[0] === 'r') this.toggle(+key.slice(1)); });
    v.addEventListener('wheel', (e) => {
      e.preventDefault();
      const box = v.getBoundingClientRect();
      if (e.ctrlKey || e.metaKey) this.zoom(Math.exp(-e.deltaY / 300), e.clientX - box.left, e.clientY - box.top);
      else { this.x += e.deltaX / this.scale; this.y += e.deltaY / this.scale; this.paint(); }
    }, { passive: false });
    v.addEventListener('keydown', (e) => {
      const step = 80 / this.scale, moves = { ArrowUp: [0, -step], ArrowDown: [0, step], ArrowLeft: [-step, 0], ArrowRight: [step, 0] };
      if (moves[e.key]) { this.x += moves[e.key][0]; this.y += moves[e.key][1]; this.paint(); e.preventDefault(); }
      else if (e.key === '+' || e.key === '=') this.zoom(1.25); else if (e.key === '-') this.zoom(0.8); else if (e.key === '0') this.fit();
      else if (e.key === 'Enter' && this.picked?.[0] === 'r') this.toggle(+this.picked.slice(1));
    });
    const jump = (e) => {
      if (e.type === 'pointermove' && !e.buttons) return;
      const box = this.overview.getBoundingClientRect(), s = this.overviewScale(box.width, box.height), view = this.view.getBoundingClientRect();
      this.y = (e.clientY - box.top - s.dy) / s.y - view.height / 2 / this.scale; this.paint();
    };
    this.overview.addEventListener('pointerdown', jump); this.overview.addEventListener('pointermove', jump);
    new ResizeObserver(() => this.paint()).observe(v);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.paint());
  }
}

function topological(count, edges) {
  const into = new Array(count).fill(0), out = Array.from({ length: count }, () => []), done = [];
  for (const [a, b] of edges) { into[b]++; out[a].push(b); }
  const ready = into.flatMap((n, i) => (n ? [] : [i]));
  while (ready.length) { const i = ready.shift(); done.push(i); for (const b of out[i]) if (!--into[b]) ready.push(b); }
  if (done.length < count) { const seen = new Set(done); for (let i = 0; i < count; i++) if (!seen.has(i)) done.push(i); }
  return done;
}

function overlaps(b, s) { return b.x < s.x1 && b.x + b.w > s.x0 && b.y < s.y1 && b.y + b.h > s.y0; }
function within(b, x, y) { return x >= b.x && x <= b.x + b.w && y >= b.y && y <= b.y + b.h; }
function clamp(v, low, high) { return Math.max(low, Math.min(high, v)); }
function microseconds(us) { return us < 1000 ? us.toFixed(1) + ' us' : (us / 1000).toFixed(2) + ' ms'; }
function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let n = Math.max(1, Math.floor(text.length * width / pen.measureText(text).width));
  while (n > 1 && pen.measureText(text.slice(0, n) + '…').width > width) n--;
  return text.slice(0, n) + '…';
}
