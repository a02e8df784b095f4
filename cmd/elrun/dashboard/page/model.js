// What the page knows of the job: snapshots of package event/timeline as JSON, whose names are fixed.

// levelPoints is the number of points of a level of series.
const levelPoints = 512;

// after returns a shortened snapshot with the points of the one before, as timeline.After does.
export function after(known, delta) {
  const join = (levels, before) => (levels || []).map((level, i) => {
    const old = before && before[i];
    if (!old) return level;
    let points = old.points || [];
    const fresh = level.points || [];
    if (fresh.length > 0) {
      const at = points.findIndex((p) => p.first === fresh[0].first);
      if (at >= 0) points = points.slice(0, at);
    }
    points = points.concat(fresh);
    return { width: level.width, points: points.slice(Math.max(0, points.length - levelPoints)) };
  });
  const series = { by_steps: join(delta.series.by_steps, known.series.by_steps), by_time: join(delta.series.by_time, known.series.by_time) };
  return { ...delta, series };
}

// whole returns the level that covers the whole job, by "steps" or by "time".
export function whole(snapshot, axis) {
  const levels = snapshot.series[axis === "time" ? "by_time" : "by_steps"] || [];
  return levels.length > 0 ? levels[levels.length - 1].points || [] : [];
}

// uses are the uses of the peers' time in the order of the model: JSON name, letter of a strip, name for people, definition.
export const uses = [
  ["useful", "u", "useful", "computing that counts"],
  ["data", "d", "data", "waits for samples"],
  ["wait", "w", "waiting", "waits for peers that still compute"],
  ["communicate", "c", "communication", "sums and commit records that computing does not hide"],
  ["apply", "a", "update", "the update of the parameters"],
  ["recompute", "r", "computing twice", "microbatches computed again, and attempts at a step that failed"],
  ["change", "v", "changes", "changes of the membership"],
  ["catch_up", "k", "catching up", "a newcomer's copy of the state"],
  ["stalled", "s", "stalls", "waits that were unusually long, and waits for enough peers"],
  ["evaluate", "e", "evaluation", "evaluations that delay a step"],
  ["checkpoint", "p", "checkpoints", "checkpoints that delay a step"],
  ["start", "b", "start", "from the start of a process to its first step"],
  ["other", "o", "other", "all else, such as work of the program between two steps"],
];

// parts returns the uses with a time, as [name, part of the total], in the order of the model.
export function parts(all) {
  const total = Object.values(all || {}).reduce((sum, ms) => sum + ms, 0);
  return total > 0 ? uses.filter(([name]) => all[name] > 0).map(([name]) => [name, all[name] / total]) : [];
}

// waitedFor returns the time for which the others have waited for a peer, in ms.
export function waitedFor(peer) {
  const w = peer.waited_for || {};
  return (w.computing_ms || 0) + (w.call_ms || 0) + (w.absent_ms || 0);
}

// number formats a count with separators of thousands.
export const number = (x) => Math.round(x).toLocaleString("en-US");

// duration formats milliseconds.
export function duration(ms) {
  if (!(ms > 0)) return "0 s";
  if (ms < 1000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(1)} s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${String(Math.floor(s % 60)).padStart(2, "0")}s`;
  return `${Math.floor(s / 3600)}h${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}m`;
}

// bytes formats a number of bytes.
export function bytes(n) {
  if (!(n > 0)) return "-";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) n /= 1000;
  return `${n < 10 && i > 0 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

// figure formats a number with three or four digits.
export function figure(x) {
  if (x === undefined || x === null || Number.isNaN(x)) return "-";
  const a = Math.abs(x);
  if (a !== 0 && (a >= 1e6 || a < 1e-3)) return x.toExponential(2);
  return Number(x.toPrecision(4)).toString();
}

// ticks returns up to n round values that cover a range.
export function ticks(low, high, n) {
  if (!(high > low)) return [low];
  const raw = (high - low) / n;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((f) => f * power).find((s) => s >= raw);
  const out = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step / 1e6; v += step) out.push(Number(v.toPrecision(12)));
  return out;
}

// axes are what the charts can be drawn over: the value of a point, and its text.
export const axes = {
  step: (points) => [(p) => p.last, number],
  samples: (points) => {
    const sums = new Map();
    let sum = 0;
    for (const p of points) sums.set(p, sum += p.samples);
    return [(p) => sums.get(p), number];
  },
  time: (points, s) => [(p) => Date.parse(p.time) - Date.parse(s.begin), duration],
};
