/* Layered layout. Input: boxes {w, h} and edges [from, to] with from before to. Output: x, y of each box (its top left corner),
   the segments [x0, y0, x1, y1] that edges pass, and the size of the whole. Boxes never overlap, and edges only lead down. */

const GAP_X = 16, GAP_Y = 30, LANE = 8, SWEEPS = 6;

function layered(boxes, edges) {
  const rank = ranks(boxes.length, edges);
  const { cells, links, chains } = lanes(boxes, edges, rank);
  const layers = order(cells, links);
  const height = place(cells, layers, links);
  let least = Infinity, most = -Infinity;
  for (const c of cells) { least = Math.min(least, c.x); most = Math.max(most, c.x + c.w); }
  if (!cells.length) { least = 0; most = 0; }
  for (const c of cells) c.x -= least;
  const paths = edges.map(([from, to]) => {
    const middle = chains(from, rank[to]).map((c) => [c.x + c.w / 2, c.y + c.h / 2]);
    const a = cells[from], b = cells[to];
    return [[a.x + a.w / 2, a.y + a.h], ...middle, [b.x + b.w / 2, b.y]];
  });
  return { at: cells.slice(0, boxes.length), segments: unique(paths), w: most - least, h: height };
}

/* Edges that share a way are drawn once where they do. */
function unique(paths) {
  const seen = new Set(), out = [];
  for (const path of paths) for (let i = 1; i < path.length; i++) {
    const segment = [...path[i - 1], ...path[i]], key = segment.map((v) => v.toFixed(1)).join(' ');
    if (!seen.has(key)) { seen.add(key); out.push(segment); }
  }
  return out;
}

function ranks(count, edges) {
  const rank = new Array(count).fill(0), into = new Array(count).fill(0), first = new Array(count).fill(Infinity);
  const by = [...edges].sort((a, b) => a[0] - b[0]);
  for (const [from, to] of by) { rank[to] = Math.max(rank[to], rank[from] + 1); into[to]++; }
  /* What has no source moves down to its first user: short edges. */
  for (const [from, to] of by) first[from] = Math.min(first[from], rank[to]);
  for (let i = 0; i < count; i++) if (!into[i] && first[i] < Infinity) rank[i] = first[i] - 1;
  return rank;
}

/* An edge over several ranks gets a narrow cell on each rank between; the edges of one box share them. */
function lanes(boxes, edges, rank) {
  const cells = boxes.map((b, i) => ({ w: b.w, h: b.h, r: rank[i], x: 0, y: 0 }));
  const last = new Map(), lane = new Map(), links = [], seen = new Set();
  for (const [from, to] of edges) last.set(from, Math.max(last.get(from) ?? -1, rank[to]));
  for (const [from, to] of last) {
    const own = [];
    for (let r = rank[from] + 1; r < to; r++) {
      own.push(cells.length);
      cells.push({ w: LANE, h: 0, r, x: 0, y: 0, lane: true });
      links.push([own.length > 1 ? own[own.length - 2] : from, own[own.length - 1]]);
    }
    lane.set(from, own);
  }
  for (const [from, to] of edges) {
    const key = from * 1e6 + to;
    if (seen.has(key)) continue;
    seen.add(key);
    const steps = rank[to] - rank[from] - 1;
    links.push([steps > 0 ? lane.get(from)[steps - 1] : from, to]);
  }
  return { cells, links, chains: (from, until) => (lane.get(from) ?? []).slice(0, Math.max(0, until - rank[from] - 1)).map((i) => cells[i]) };
}

function order(cells, links) {
  const layers = [];
  cells.forEach((c, i) => { (layers[c.r] ??= []).push(i); });
  for (let r = 0; r < layers.length; r++) layers[r] ??= [];
  const up = cells.map(() => []), down = cells.map(() => []);
  for (const [a, b] of links) { up[b].push(a); down[a].push(b); }
  const spot = new Array(cells.length);
  const number = (layer) => layer.forEach((c, i) => { spot[c] = i; });
  layers.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down_now = sweep % 2 === 0, near = down_now ? up : down;
    for (let k = 0; k < layers.length; k++) {
      const layer = layers[down_now ? k : layers.length - 1 - k];
      const want = new Map(layer.map((c) => [c, near[c].length ? near[c].reduce((s, n) => s + spot[n], 0) / near[c].length : spot[c]]));
      layer.sort((a, b) => want.get(a) - want.get(b) || spot[a] - spot[b]);
      number(layer);
    }
  }
  return layers;
}

function place(cells, layers, links) {
  const near = cells.map(() => []);
  for (const [a, b] of links) { near[a].push(b); near[b].push(a); }
  let y = 0;
  for (const layer of layers) {
    const tall = Math.max(0, ...layer.map((c) => cells[c].h));
    let x = 0;
    for (const c of layer) { cells[c].x = x; x += cells[c].w + GAP_X; cells[c].y = y + (tall - cells[c].h) / 2; }
    const middle = x / 2;
    for (const c of layer) cells[c].x -= middle;
    y += tall + GAP_Y;
  }
  for (let sweep = 0; sweep < 12; sweep++) {
    for (let k = 0; k < layers.length; k++) relax(layers[sweep % 2 ? layers.length - 1 - k : k], cells, near);
  }
  return Math.max(0, y - GAP_Y);
}

/* Move a layer's cells as near to their neighbours as the order allows: least squares by pooling. */
function relax(layer, cells, near) {
  const blocks = [];
  let offset = 0;
  for (const c of layer) {
    const cell = cells[c];
    let want = cell.x;
    if (near[c].length) want = near[c].reduce((s, n) => s + cells[n].x + cells[n].w / 2, 0) / near[c].length - cell.w / 2;
    const weight = cell.lane ? 2 : 1;
    blocks.push({ sum: (want - offset) * weight, weight, count: 1 });
    while (blocks.length > 1) {
      const b = blocks[blocks.length - 1], a = blocks[blocks.length - 2];
      if (a.sum / a.weight <= b.sum / b.weight) break;
      blocks.pop();
      a.sum += b.sum; a.weight += b.weight; a.count += b.count;
    }
    offset += cell.w + GAP_X;
  }
  let k = 0;
  offset = 0;
  for (const b of blocks) {
    for (let i = 0; i < b.count; i++, k++) {
      cells[layer[k]].x = b.sum / b.weight + offset;
      offset += cells[layer[k]].w + GAP_X;
    }
  }
}
