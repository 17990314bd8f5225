/* Details, search, kernels and listings. Text of the model enters the page by textContent only. */

const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);
const details = $('details');

function make(tag, text, name) {
  const e = document.createElement(tag);
  if (text !== undefined) e.textContent = text;
  if (name) e.className = name;
  return e;
}

const graph = new Graph(data, $('view'), $('overview'), describe);
/* A few closed boxes show nothing: a graph that fused well starts open. */
if (graph.boxes.length < 5 && graph.nodes.length < 3000) graph.all(true);
graph.start();
describe(null);
/* Links into the graph: #expanded, #region=3, #node=name */
function follow() {
  const [what, value] = decodeURIComponent(location.hash.slice(1)).split(/=(.*)/s);
  const node = what === 'node' ? graph.nodes.find((n) => n.name === value) : undefined;
  if (what === 'expanded') graph.all(true);
  else if (what === 'region' && graph.regions.has(+value)) graph.show('r' + value);
  else if (node) graph.show('n' + node.id);
}
addEventListener('hashchange', follow);
requestAnimationFrame(follow);

function describe(key) {
  details.replaceChildren();
  if (key === null) { details.append(make('p', 'Click a node or a region for its details.', 'sub')); return; }
  const number = +key.slice(1);
  if (key[0] === 'r') describeRegion(graph.regions.get(number)); else describeNode(graph.nodes[number]);
}

function facts(pairs) {
  const list = make('dl');
  for (const [what, values] of pairs) {
    if (!values || !values.length) continue;
    list.append(make('dt', what));
    const dd = make('dd');
    for (const v of values) dd.append(v instanceof Node ? v : make('span', v, 'v'));
    list.append(dd);
  }
  details.append(list);
}

function describeNode(n) {
  details.append(make('h3', n.op));
  const fate = n.region < 0 ? make('span', n.reason || 'falling back to ONNX Runtime') : link(`region ${n.region}`, () => graph.show('r' + n.region));
  const time = data.fallbackTimes[n.name];
  facts([['name', [n.name || '(none)']], [n.region < 0 ? 'fall back to ONNX Runtime because' : 'in', [fate]], ['time', time === undefined ? [] : [microseconds(time)]],
    ['inputs', n.inputs.map((t) => data.texts[t])], ['outputs', n.outputs.map((t) => data.texts[t])], ['attributes', n.attributes.map((t) => data.texts[t])],
    ['reads from', n.sources.map((s) => block(link(`${graph.nodes[s].op} ${graph.nodes[s].name}`, () => graph.show('n' + s))))]]);
}

function describeRegion(r) {
  details.append(make('h3', `Region ${r.index}`));
  const open = graph.open.has(r.index), button = make('button', open ? 'close' : 'open');
  button.addEventListener('click', () => { graph.toggle(r.index); describe('r' + r.index); });
  details.append(button);
  const kernels = (data.kernels[r.entry] ?? []).map((k) => block(link(`${k[0]} (${k[1]})`, () => jump(k[0]))));
  const bound = r.bound && r.time ? `${(100 * r.bound / r.time).toFixed(0)}% of the roofline` : '';
  facts([['code', [link(r.entry, () => jump(r.entry))]], ['time', r.time == null ? [] : [microseconds(r.time), bound].filter(Boolean)],
    ['error', r.error == null ? [] : [r.error.toExponential(1)]], ['ops', [r.ops]], ['kernels', kernels],
    ['nodes', r.nodes.map((id) => block(link(`${graph.nodes[id].op} ${graph.nodes[id].name}`, () => graph.show('n' + id))))]]);
}

function link(text, act) {
  const a = make('a', text);
  a.href = '#graph';
  a.addEventListener('click', (e) => { e.preventDefault(); act(); });
  return a;
}

function block(child) { const d = make('span', undefined, 'v'); d.append(child); return d; }

/* search */

let found = [], current = -1;
$('search').addEventListener('input', (e) => search(e.target.value));
$('search').addEventListener('keydown', (e) => {
  if (e.key !== 'Enter' || !found.length) return;
  current = (current + (e.shiftKey ? found.length - 1 : 1)) % found.length;
  graph.show('n' + found[current]);
  $('hits').textContent = `${current + 1} of ${found.length}`;
});

function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  found = words.length ? graph.nodes.filter((n) => { const t = `${n.op} ${n.name} ${n.reason}`.toLowerCase(); return words.every((w) => t.includes(w)); }).map((n) => n.id) : [];
  current = -1;
  graph.hits = new Set(found);
  $('hits').textContent = words.length ? `${found.length} found` : '';
  graph.paint();
}

for (const a of document.querySelectorAll('a.find')) a.addEventListener('click', () => {
  const node = graph.nodes.find((n) => n.name === a.dataset.find);
  if (node) graph.show('n' + node.id);
});

$('expand').addEventListener('click', () => graph.all(true));
$('collapse').addEventListener('click', () => graph.all(false));
$('zoom-in').addEventListener('click', () => graph.zoom(1.25));
$('zoom-out').addEventListener('click', () => graph.zoom(0.8));
$('fit').addEventListener('click', () => graph.fit());
$('heat')?.addEventListener('click', (e) => { graph.heat = !graph.heat; e.target.setAttribute('aria-pressed', graph.heat); graph.paint(); });

/* kernels of a code */

for (const chip of document.querySelectorAll('[data-chip]')) {
  const hue = graph.hue.get(chip.dataset.chip);
  if (hue !== undefined) { chip.style.borderColor = `hsl(${hue} 45% 55%)`; chip.style.background = `hsl(${hue} 70% 60% / .22)`; }
}
for (const row of document.querySelectorAll('tr.code')) row.querySelector('.open').addEventListener('click', (e) => {
  const opened = row.nextElementSibling?.className === 'kernels';
  if (opened) row.nextElementSibling.remove(); else row.after(kernelRow(row));
  e.target.textContent = opened ? '▸' : '▾';
  e.target.setAttribute('aria-expanded', !opened);
});

function kernelRow(row) {
  const out = make('tr', undefined, 'kernels'), cell = make('td'), shown = row.dataset.regions.split(',');
  cell.colSpan = row.children.length;
  const where = make('p', 'In the graph: ', 'sub');
  for (const index of shown.slice(0, 60)) { const a = link(index, () => { graph.show('r' + index); $('graph').scrollIntoView(); }); a.style.marginRight = '8px'; where.append(a); }
  if (shown.length > 60) where.append(`… ${shown.length - 60} more`);
  const table = make('table'), head = make('tr');
  const kernels = data.kernels[row.dataset.entry] ?? [], timed = kernels.some((k) => k[6] != null);
  for (const title of ['kernel', 'kind', 'nodes', 'units of work', 'flops', 'bytes moved', ...(timed ? ['time', 'of roofline'] : [])]) head.append(make('th', title));
  table.append(head);
  for (const [name, kind, nodes, units, flops, bytes, time, bound] of kernels) {
    const line = make('tr'), first = make('td', undefined, 'names');
    first.append(link(name, () => jump(name)));
    line.append(first, make('td', kind), make('td', nodes.join(', '), 'names'), make('td', units), make('td', flops), make('td', bytes));
    if (timed) line.append(make('td', time == null ? 'with the one above' : microseconds(time)), make('td', time && bound ? `${(100 * bound / time).toFixed(0)}%` : ''));
    table.append(line);
  }
  cell.append(where, table);
  out.append(cell);
  return out;
}

/* listings */

const TOKEN = /(\/\/[^\n]*|\/\*[^]*?\*\/)|("(?:\\.|[^"\\\n])*")|(^[ \t]*#[^\n]*)|\b(0[xX][0-9a-fA-F.]+(?:[pP][+-]?\d+)?[fFuUlL]*|\d[\d.]*(?:[eE][+-]?\d+)?[fFuUlL]*)\b|\b(static|const|void|int32_t|int64_t|uint8_t|float|double|char|restrict|return|if|else|for|while|do|switch|case|break|continue|struct|typedef|sizeof|v_[a-z]+\d*)\b|\b([A-Za-z_]\w*)(?=\()/gm;
const KINDS = [null, 'c', 's', 'k', 'd', 'k', 'f'];

function highlighted(text) {
  const pre = make('pre');
  let last = 0;
  for (const match of text.matchAll(TOKEN)) {
    const kind = match.findIndex((group, i) => i > 0 && group !== undefined);
    if (match.index > last) pre.append(text.slice(last, match.index));
    pre.append(make('span', match[0], KINDS[kind]));
    last = match.index + match[0].length;
  }
  pre.append(text.slice(last));
  return pre;
}

function listing(unit) {
  if (unit.querySelector('.listing')) return;
  const text = data.sources[+unit.dataset.unit][1], box = make('div', undefined, 'listing');
  const lines = text.split('\n').length;
  box.append(make('pre', Array.from({ length: lines }, (_, i) => i + 1).join('\n'), 'lines'), highlighted(text));
  unit.append(box);
}

for (const unit of document.querySelectorAll('details.unit')) unit.addEventListener('toggle', () => { if (unit.open) listing(unit); });

function jump(name) {
  const mark = `SMELT_NAME(${name})(`;
  const index = data.sources.findIndex(([, text]) => text.includes(mark));
  const unit = document.querySelector(`details.unit[data-unit="${index}"]`);
  if (!unit) return;
  listing(unit);
  unit.open = true;
  const box = unit.querySelector('.listing'), text = data.sources[index][1];
  const lines = text.slice(0, text.indexOf(mark)).split('\n').length, height = box.scrollHeight / text.split('\n').length;
  unit.scrollIntoView({ behavior: 'instant' });
  box.scrollTop = Math.max(0, (lines - 2) * height);
}
