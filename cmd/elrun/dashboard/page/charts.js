// Charts on canvas: lines, stacked bars, and the timeline of peers. A chart is drawn anew for each snapshot; it keeps nothing but the
// place of the cursor, which all charts of a page share.

import { duration, figure, ticks, uses } from "./model.js";

const margin = { left: 44, right: 10, top: 8, bottom: 18 };

// known has the colours of the style sheet that were asked for: to ask for one is slow.
const known = new Map();

// colour returns a colour of the style sheet.
export function colour(name) {
  if (!known.has(name)) known.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return known.get(name);
}

// forget forgets the colours, after a change of the scheme.
export const forget = () => known.clear();

// cursor is where the pointer is: as a part of the axis of the charts, or as a time in the timeline; null if nowhere.
export const cursor = { at: null, time: null, listeners: new Set() };

// move moves the cursor of all charts.
function move(at, time) {
  cursor.at = at;
  cursor.time = time;
  for (const f of cursor.listeners) f();
}

// timePart returns the part of the axis at a place in a canvas with a width.
export const timePart = (x, width) => (x - margin.left) / (width - margin.left - margin.right);

// place returns where the pointer is over a canvas, as a part of the axis; null if beside it.
function place(canvas, e) {
  const box = canvas.getBoundingClientRect();
  const at = timePart(e.clientX - box.left, box.width);
  return at >= 0 && at <= 1 ? at : null;
}

// prepare sizes a canvas for the screen, and returns its context and its size in CSS pixels.
function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  c.font = "11px system-ui, sans-serif";
  return [c, width, height];
}

// follow lets the pointer over a chart, and the arrows of the keyboard, move the cursor.
export function follow(canvas) {
  canvas.addEventListener("pointermove", (e) => move(place(canvas, e), null));
  canvas.addEventListener("pointerleave", () => move(null, null));
  canvas.addEventListener("keydown", (e) => {
    const step = { ArrowLeft: -0.01, ArrowRight: 0.01 }[e.key];
    if (!step) return;
    e.preventDefault();
    const at = cursor.at === null ? (step > 0 ? 0 : 1) : cursor.at + step;
    move(Math.min(1, Math.max(0, at)), null);
  });
  canvas.addEventListener("blur", () => move(null, null));
}

// followTime lets the pointer over the timeline move the cursor. timeOf returns the time at a part of its axis.
export function followTime(canvas, timeOf) {
  canvas.addEventListener("pointermove", (e) => {
    const at = place(canvas, e);
    move(null, at === null ? null : timeOf(at));
  });
  canvas.addEventListener("pointerleave", () => move(null, null));
}

// frame draws the axes of a chart, and returns functions that place values.
function frame(c, width, height, x0, x1, y0, y1, labelX, log) {
  const inner = { w: width - margin.left - margin.right, h: height - margin.top - margin.bottom };
  const f = log ? Math.log10 : (v) => v;
  const x = (v) => margin.left + (x1 > x0 ? (v - x0) / (x1 - x0) : 0.5) * inner.w;
  const y = (v) => margin.top + (1 - (y1 > y0 ? (f(v) - f(y0)) / (f(y1) - f(y0)) : 0.5)) * inner.h;
  c.strokeStyle = colour("grid");
  c.fillStyle = colour("quiet");
  c.lineWidth = 1;
  c.textAlign = "right";
  c.textBaseline = "middle";
  const rows = log ? [y0, Math.sqrt(y0 * y1), y1] : ticks(y0, y1, 3);
  for (const v of rows) {
    c.beginPath();
    c.moveTo(margin.left, Math.round(y(v)) + 0.5);
    c.lineTo(width - margin.right, Math.round(y(v)) + 0.5);
    c.stroke();
    c.fillText(figure(v), margin.left - 5, y(v));
  }
  c.textBaseline = "top";
  for (const [v, align] of [[x0, "left"], [x1, "right"]]) {
    c.textAlign = align;
    c.fillText(labelX(v), x(v), height - margin.bottom + 4);
  }
  return [x, y];
}

// nearest returns the point whose value is nearest to one. The values of points, of which there are some, grow.
function nearest(points, value, wanted) {
  let low = 0, high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (value(points[middle]) <= wanted) low = middle;
    else high = middle;
  }
  return wanted - value(points[low]) < value(points[high]) - wanted ? points[low] : points[high];
}

// pointAt returns the point at the cursor, null if it is nowhere.
export function pointAt(points, xOf) {
  if (points.length === 0 || (cursor.at === null && cursor.time === null)) return null;
  const x0 = xOf(points[0]), x1 = xOf(points[points.length - 1]);
  const [wanted, value] = cursor.time === null ? [x0 + cursor.at * (x1 - x0), xOf] : [cursor.time, (p) => Date.parse(p.time)];
  return nearest(points, value, wanted);
}

// mark draws the cursor at a point.
function mark(c, height, x) {
  c.strokeStyle = colour("quiet");
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(x, margin.top);
  c.lineTo(x, height - margin.bottom);
  c.stroke();
}

// bounds returns the range of an axis that shows values.
function bounds(values, zero, log) {
  let low = Math.min(...values), high = Math.max(...values);
  if (zero) low = Math.min(0, low);
  if (low === high) {
    low = log ? low / 2 : low - Math.abs(low) / 10 - 1e-9;
    high = log ? high * 2 : high + Math.abs(high) / 10 + 1e-9;
  }
  return [low, high];
}

// path draws a line through the values of points, with a gap where there is none.
function path(c, points, x, value, y, log) {
  c.lineWidth = 1.5;
  c.beginPath();
  let drawn = false;
  for (const p of points) {
    const v = value(p);
    if (!Number.isFinite(v) || (log && v <= 0)) {
      drawn = false;
      continue;
    }
    if (drawn) c.lineTo(x(p), y(v));
    else c.moveTo(x(p), y(v));
    drawn = true;
  }
  c.stroke();
}

// line draws series over points: of each a colour, a function for its value (undefined where there is none), and marks as dots. It
// returns the point at the cursor.
export function line(canvas, points, xOf, labelX, series, { zero = false, log = false } = {}) {
  const [c, width, height] = prepare(canvas);
  const values = series.flatMap((s) => s.points ? s.points.map((p) => p.y) : points.map(s.value)).filter((v) => Number.isFinite(v) && (!log || v > 0));
  if (points.length === 0 || values.length === 0) {
    c.fillStyle = colour("quiet");
    c.fillText("no figures yet", margin.left, height / 2);
    return null;
  }
  const [low, high] = bounds(values, zero, log);
  const [x, y] = frame(c, width, height, xOf(points[0]), xOf(points[points.length - 1]), low, high, labelX, log);
  for (const s of series) {
    c.strokeStyle = c.fillStyle = colour(s.colour);
    if (s.points) {
      for (const p of s.points) {
        c.beginPath();
        c.arc(x(p.x), y(p.y), 3, 0, 7);
        c.fill();
      }
      continue;
    }
    path(c, points, (p) => x(xOf(p)), (p) => s.value(p), y, log);
  }
  const at = pointAt(points, xOf);
  if (at) mark(c, height, x(xOf(at)));
  return at;
}

// lines draws a value of runs over each other, of each with its points, their places on the axis, its colour and its dashes. The axis has
// all runs. It returns the points at the cursor, null for a run that does not reach it; null if the cursor is nowhere.
export function lines(canvas, runs, value, labelX, { zero = false, log = false } = {}) {
  const [c, width, height] = prepare(canvas);
  const values = runs.flatMap((r) => r.points.map(value)).filter((v) => Number.isFinite(v) && (!log || v > 0));
  if (values.length === 0) {
    c.fillStyle = colour("quiet");
    c.fillText("no figures", margin.left, height / 2);
    return null;
  }
  const known = runs.filter((r) => r.points.length > 0);
  const x0 = Math.min(...known.map((r) => r.x(r.points[0]))), x1 = Math.max(...known.map((r) => r.x(r.points[r.points.length - 1])));
  const [x, y] = frame(c, width, height, x0, x1, ...bounds(values, zero, log), labelX, log);
  for (const r of known) {
    c.strokeStyle = colour(r.colour);
    c.setLineDash(r.dashes);
    path(c, r.points, (p) => x(r.x(p)), value, y, log);
  }
  c.setLineDash([]);
  if (cursor.at === null) return null;
  const wanted = x0 + cursor.at * (x1 - x0);
  mark(c, height, x(wanted));
  return runs.map((r) => r.points.length > 0 && wanted >= r.x(r.points[0]) && wanted <= r.x(r.points[r.points.length - 1]) ? nearest(r.points, r.x, wanted) : null);
}

// stack draws for each point a bar of its step time, divided by the uses of the peers' time.
export function stack(canvas, points, xOf, labelX) {
  const [c, width, height] = prepare(canvas);
  if (points.length === 0) return null;
  const high = Math.max(...points.map((p) => p.step_ms));
  const [x, y] = frame(c, width, height, xOf(points[0]), xOf(points[points.length - 1]), 0, high || 1, labelX, false);
  const bar = Math.max(1, (width - margin.left - margin.right) / points.length);
  for (const p of points) {
    const total = Object.values(p.uses).reduce((sum, ms) => sum + ms, 0);
    let base = 0;
    for (const [name] of uses) {
      const part = total > 0 ? (p.uses[name] || 0) / total * p.step_ms : 0;
      if (part === 0) continue;
      c.fillStyle = colour(`use-${name}`);
      const left = Math.round(x(xOf(p)) - bar / 2), right = Math.max(left + 1, Math.round(x(xOf(p)) + bar / 2));
      c.fillRect(left, y(base + part), right - left, y(base) - y(base + part));
      base += part;
    }
  }
  const at = pointAt(points, xOf);
  if (at) mark(c, height, x(xOf(at)));
  return at;
}

// heightOf returns the height of a row of the timeline: many peers make a map of heat.
const heightOf = (rows) => rows <= 24 ? 18 : rows <= 64 ? 9 : Math.max(2, Math.floor(576 / rows));

// timeline draws what each peer did when, and the changes of the membership above. The canvas is as high as the rows need. at is
// a point at which the cursor stands; null for none.
export function timeline(canvas, snapshot, rows, range, at) {
  const rowHeight = heightOf(rows.length), head = 18, gap = rowHeight > 4 ? Math.round(rowHeight / 6) : 0;
  canvas.style.height = `${head + rowHeight * rows.length + margin.bottom}px`;
  const [c, width, height] = prepare(canvas);
  const begin = Date.parse(snapshot.begin), end = Date.parse(snapshot.time);
  const from = begin + range[0] * (end - begin), to = begin + range[1] * (end - begin);
  const x = (t) => margin.left + (to > from ? (t - from) / (to - from) : 0) * (width - margin.left - margin.right);
  const clip = (v) => Math.min(Math.max(v, margin.left), width - margin.right);
  const letters = Object.fromEntries(uses.map(([name, letter]) => [letter, name]));
  c.textBaseline = "middle";
  rows.forEach((p, i) => {
    const top = head + rowHeight * i;
    c.fillStyle = colour("text");
    c.textAlign = "right";
    if (i % Math.ceil(11 / rowHeight) === 0) c.fillText(p.index >= 0 ? String(p.index) : p.id.slice(0, 4), margin.left - 5, top + rowHeight / 2);
    const strip = p.strip || {}, start = Date.parse(strip.begin);
    [...(strip.uses || "")].forEach((letter, k) => {
      const a = Math.round(clip(x(start + k * strip.width_ms))), b = Math.round(clip(x(Math.min(start + (k + 1) * strip.width_ms, end))));
      if (b <= a || !letters[letter]) return;
      c.fillStyle = colour(`use-${letters[letter]}`);
      c.fillRect(a, top + gap, b - a, rowHeight - 2 * gap);
    });
    if (p.exit && p.end) {
      c.fillStyle = colour(p.exit.signal || p.exit.status ? "bad" : "quiet");
      c.textAlign = "left";
      c.fillText(p.exit.signal || p.exit.status ? "✕" : "◂", clip(x(Date.parse(p.end))) + 1, top + rowHeight / 2);
    }
  });
  c.textAlign = "left";
  for (const v of snapshot.recent_views || []) {
    const begun = x(Date.parse(v.time));
    if (begun < margin.left || begun > width - margin.right) continue;
    c.strokeStyle = c.fillStyle = colour((v.lost || []).length > 0 ? "bad" : "quiet");
    c.beginPath();
    c.moveTo(Math.round(begun) + 0.5, 2);
    c.lineTo(Math.round(begun) + 0.5, height - margin.bottom);
    c.stroke();
    c.fillText(String(v.epoch), begun + 2, head / 2);
  }
  if (at) mark(c, height, clip(x(Date.parse(at.time))));
  c.fillStyle = colour("quiet");
  c.textBaseline = "top";
  c.fillText(duration(from - begin), margin.left, height - margin.bottom + 4);
  c.textAlign = "right";
  c.fillText(duration(to - begin), width - margin.right, height - margin.bottom + 4);
}
