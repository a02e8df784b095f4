// The page of a job: it reads snapshots from the stream of the server, and shows them. All texts of others become text nodes.

import { after, axes, bytes, duration, figure, number, parts, uses, waitedFor, whole } from "./model.js";
import { followTime, line, stack, timeline, timePart } from "./charts.js";
import { $, element, listen, showLegend, usesBar } from "./common.js";

// state is what the page shows.
const state = { snapshot: null, ended: "", over: false, trouble: "", log: false, axis: "step", range: [0, 1], due: false };

// plural returns a number of things.
const plural = (n, what) => `${number(n)} ${what}${n === 1 ? "" : "s"}`;

// draw draws the page at the next frame.
function draw() {
  if (state.due) return;
  state.due = true;
  requestAnimationFrame(() => {
    state.due = false;
    if (state.snapshot) show(state.snapshot);
  });
}

// show shows a snapshot.
function show(s) {
  headline(s);
  goodput(s);
  alert(s);
  const rows = byRank(s.peers || []);
  timeline($("timeline"), s, rows, state.range, charts(s));
  unheard(s);
  ring(s, rows);
  table(s);
  changes(s);
  messages(s);
}

// byRank orders peers by rank, those without one last.
const byRank = (peers) => [...peers].sort((a, b) => (a.rank < 0) - (b.rank < 0) || a.rank - b.rank || a.index - b.index);

// headline shows the job and its progress.
function headline(s) {
  const name = s.job.job || "elrun";
  const members = s.recent_views && s.recent_views.length > 0 ? s.recent_views[s.recent_views.length - 1].members.length : 0;
  const hosts = new Set((s.peers || []).filter((p) => p.rank >= 0).map((p) => `${p.host} ${p.machine || ""}`)).size;
  let word = "running", tone = "good";
  if (s.done) word = "finished";
  else if (state.ended || state.over) [word, tone] = ["ended", ""];
  else if (s.quorum) [word, tone] = ["waits for peers", "bad"];
  else if (s.stall) [word, tone] = ["waits", "bad"];
  document.title = `${name} ${s.step || ""} ${word}`;
  $("job").textContent = name;
  $("state").textContent = word;
  $("state").className = `badge ${tone}`;
  $("step").textContent = s.of ? `step ${number(s.step)} / ${number(s.of)}` : `step ${number(s.step)}`;
  $("progress").hidden = !s.of;
  $("progress").value = s.of ? Math.min(1, s.step / s.of) : 0;
  $("left").textContent = s.left_ms && !s.done && !state.ended && !state.over ? `${duration(s.left_ms)} left` : "";
  $("size").textContent = `view ${s.epoch}, ${plural(members, "peer")}, ${plural(hosts, "host")}`;
}

// goodput shows what the time of the peers was used for.
function goodput(s) {
  const g = s.goodput, all = parts(g.uses);
  $("goodput-line").textContent = all.length === 0 ? "no step yet" : [`${Math.round(100 * g.ratio)} % of ${plural(g.peers, "peer")} for ${duration(g.wall_ms)}`, ...all
    .filter(([name, part]) => name !== "useful" && part >= 0.005)
    .map(([name, part]) => `${uses.find(([n]) => n === name)[2]} ${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`)].join(" · ");
  $("goodput-bar").replaceChildren(...usesBar(g.uses));
}

// who names a peer for people.
function who(s, ids) {
  return ids.split(",").map((id) => {
    const p = (s.peers || []).find((q) => q.id === id || (q.ids || []).includes(id));
    if (!p) return `peer ${id}`;
    return `peer ${p.index >= 0 ? p.index : id} (${id}${p.host ? `, ${p.host}` : ""})`;
  }).join(", ");
}

// alert shows what people should look at.
function alert(s) {
  let text = "";
  if (state.ended && !s.done) text = state.ended;
  else if (state.trouble) text = state.trouble;
  else if (state.over) text = "";
  else if (s.quorum) text = `the job waits for peers: ${s.quorum.present} of ${s.quorum.needed} are present`;
  else if (s.stall) text = `waiting ${duration(s.stall.since_ms)} for ${who(s, s.stall.culprit)}: ${s.stall.phase}; ${s.stall.what}`;
  $("alert").hidden = text === "";
  if ($("alert").textContent !== text) $("alert").textContent = text;
}

// charts shows the series. It returns the point at the cursor, null if it is nowhere.
function charts(s) {
  const points = whole(s, "steps");
  const [x, label] = axes[state.axis](points, s);
  const last = points[points.length - 1];
  const series = [{ colour: "line", value: (p) => p.loss || undefined }];
  const evals = (s.evals || []).filter((e) => Number.isFinite(e.loss)).map((e) => [points.find((p) => p.last >= e.step), e.loss]).filter(([p]) => p);
  if (evals.length > 0) series.push({ colour: "second", points: evals.map(([p, loss]) => ({ x: x(p), y: loss })) });
  const at = line($("loss"), points, x, label, series, { log: state.log });
  line($("speed"), points, x, label, [{ colour: "line", value: (p) => p.samples_per_s || undefined }], { zero: true });
  stack($("time"), points, x, label);
  const p = at || last;
  if (p) {
    const score = (s.evals || []).findLast((e) => e.step <= p.last);
    const test = score ? `, ${score.set || "test"} ${score.accuracy !== undefined ? `accuracy ${figure(score.accuracy)}` : figure(score.loss)} at step ${number(score.step)}` : "";
    $("loss-now").textContent = `step ${number(p.last)}: ${figure(p.loss)}${test}`;
    $("speed-now").textContent = `step ${number(p.last)}: ${number(p.samples_per_s || 0)}${at ? "" : `, over the last ten seconds ${number(s.samples_per_s || 0)}`}`;
    const predicted = at ? 0 : Math.max(0, ...(s.peers || []).map((q) => (q.last_step || {}).predicted_ms || 0));
    $("time-now").textContent = `step ${number(p.last)}: ${figure(p.step_ms)} ms, the slowest ${figure(p.slow_ms)} ms${predicted > 0 ? `, predicted ${figure(predicted)} ms` : ""}`;
  }
  return at;
}

// unheard names the peers of which nothing but their membership is known.
function unheard(s) {
  const ids = (s.peers || []).filter((p) => !p.heard).map((p) => p.id);
  const text = ids.length === 0 ? "" : `nothing is known of what ${who(s, ids.slice(0, 8).join(","))}${ids.length > 8 ? ` and ${ids.length - 8} more` : ""} did: their elrun has not told it`;
  $("unheard").hidden = text === "";
  $("unheard").textContent = text;
}

// ring shows the members in the order of the ring, with what is known of the links to them.
function ring(s, rows) {
  const members = rows.filter((p) => p.rank >= 0);
  const order = s.ring && s.ring.length === members.length ? s.ring.map((rank) => members.find((p) => p.rank === rank)).filter(Boolean) : members;
  $("ring").replaceChildren(...order.map((p, i) => {
    const from = order[(i + order.length - 1) % order.length];
    const speed = (p.links || {})[from.id];
    return element("li", `${p.index >= 0 ? p.index : p.id} ${p.host || ""}${speed ? `, ${figure(speed * 8)} Mbit/s from ${from.index >= 0 ? from.index : from.id}` : ""}`);
  }));
}

// manyPeers is the number of peers from which on the table has a row for each host.
const manyPeers = 24;

// opened has the hosts whose peers the table shows.
const opened = new Set();

// table shows the peers, those for which the others waited longest first.
function table(s) {
  const peers = [...(s.peers || [])].sort((a, b) => (a.rank < 0) - (b.rank < 0) || waitedFor(b) - waitedFor(a));
  const shares = peers.reduce((sum, p) => sum + (p.rank >= 0 ? p.share : 0), 0);
  const rows = [];
  if (peers.length <= manyPeers) rows.push(...peers.map((p) => row(p, shares)));
  else {
    const hosts = Map.groupBy(peers, (p) => p.host || "-");
    for (const [host, all] of hosts) {
      rows.push(hostRow(host, all, shares));
      if (opened.has(host)) rows.push(...all.map((p) => row(p, shares)));
    }
  }
  const focused = document.activeElement && document.activeElement.dataset.host;
  $("peers").querySelector("tbody").replaceChildren(...rows);
  if (focused !== undefined) for (const b of $("peers").querySelectorAll("button")) if (b.dataset.host === focused) b.focus();
}

// row returns the row of a peer.
function row(p, shares) {
  const l = p.last_step || {}, signal = p.exit && p.exit.signal;
  const cells = [
    p.index >= 0 ? p.index : "-", p.id, p.host || "-", signal ? `signal ${signal}` : p.state,
    shares > 0 && p.rank >= 0 ? `${Math.round(100 * p.share / shares)} %` : "-", p.samples_per_s ? number(p.samples_per_s) : "-",
    figure(l.compute_ms), figure(l.wait_ms || 0), waitedFor(p) > 0 ? duration(waitedFor(p)) : "-",
    p.cpu ? p.cpu.toFixed(2) : "-", bytes(p.rss), p.path || "-",
  ];
  const tr = document.createElement("tr");
  tr.append(...cells.map((text, i) => element("td", text, i === 3 && (signal || p.state === "lost" || (p.exit && p.exit.status > 0)) ? { class: "bad" } : {})));
  return tr;
}

// hostRow returns the row of a host: sums over its members, and the peer that the others waited for.
function hostRow(host, all, shares) {
  const members = all.filter((p) => p.rank >= 0);
  const sum = (f) => members.reduce((x, p) => x + (f(p) || 0), 0);
  const worst = all.reduce((a, b) => waitedFor(b) > waitedFor(a) ? b : a);
  const open = element("button", opened.has(host) ? "−" : "+", { type: "button", "aria-expanded": String(opened.has(host)), "aria-label": `peers of ${host}` });
  open.dataset.host = host;
  open.addEventListener("click", () => {
    if (!opened.delete(host)) opened.add(host);
    draw();
  });
  const first = document.createElement("td");
  first.append(open);
  const cells = [
    plural(all.length, "peer"), host, plural(members.length, "member"), shares > 0 ? `${Math.round(100 * sum((p) => p.share) / shares)} %` : "-",
    number(sum((p) => p.samples_per_s)), "-", "-", waitedFor(worst) > 0 ? `${duration(waitedFor(worst))} (${worst.id})` : "-",
    sum((p) => p.cpu).toFixed(2), bytes(sum((p) => p.rss)), "-",
  ];
  const tr = document.createElement("tr");
  tr.append(first, ...cells.map((text) => element("td", text)));
  return tr;
}

// changes shows the views, the latest first: what has changed, why, and what it cost.
function changes(s) {
  $("changes").replaceChildren(...[...(s.recent_views || [])].reverse().map((v) => {
    const parts = [];
    for (const l of v.lost || []) parts.push(`lost ${who(s, l.who)}: ${l.cause || "for an unknown reason"}${l.detect_ms ? `, noticed after ${duration(l.detect_ms)}` : ""}`);
    if ((v.joined || []).length > 0) parts.push(`joined ${who(s, v.joined.join(","))}`);
    if ((v.left || []).length > 0) parts.push(`left ${who(s, v.left.join(","))}`);
    if (v.cost_ms) parts.push(`took ${duration(v.cost_ms)}`);
    if (v.recomputed) parts.push(`${number(v.recomputed)} microbatches computed twice`);
    const item = document.createElement("li");
    item.append(element("time", new Date(v.time).toLocaleTimeString()), `view ${v.epoch}, ${plural((v.members || []).length, "peer")}${parts.length > 0 ? `: ${parts.join("; ")}` : ""}`);
    return item;
  }));
}

// messages shows the lines of elrun, the latest first.
function messages(s) {
  const all = [...(s.messages || [])].reverse();
  $("messages").replaceChildren(...all.map((m) => {
    const item = document.createElement("li");
    item.append(element("time", new Date(m.time).toLocaleTimeString()), m.text);
    return item;
  }));
}

// connect reads the stream. The browser connects again after a break.
function connect() {
  const stream = new EventSource("events");
  stream.addEventListener("snapshot", (e) => {
    state.snapshot = JSON.parse(e.data);
    draw();
  });
  stream.addEventListener("delta", (e) => {
    if (!state.snapshot) return;
    state.snapshot = after(state.snapshot, JSON.parse(e.data));
    draw();
  });
  stream.addEventListener("trouble", (e) => {
    state.trouble = JSON.parse(e.data);
    draw();
  });
  stream.addEventListener("end", (e) => {
    state.ended = JSON.parse(e.data);
    stream.close();
    draw();
  });
  stream.onopen = () => {
    state.trouble = "";
    draw();
  };
  stream.onerror = () => {
    if (state.ended) return;
    state.trouble = stream.readyState === EventSource.CLOSED ? "this page is refused: open the link that elrun has printed" : "elrun does not answer any more; trying again";
    $("alert").hidden = false;
    $("alert").textContent = state.trouble;
  };
}

// act sends a form to the server.
async function act(form) {
  const body = {};
  for (const input of form.querySelectorAll("input")) body[input.name] = input.type === "number" ? Number(input.value) : input.value;
  const action = form.dataset.action;
  if ((action === "stop" || action === "kick") && !window.confirm(`${action === "stop" ? "Stop the job" : `Kick ${body.peer}`}?`)) return;
  $("answer").textContent = "...";
  try {
    const answer = await fetch(`do/${action}`, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
    const text = await answer.text();
    let said = {};
    try { said = JSON.parse(text); } catch { said = { error: text }; }
    $("answer").textContent = said.error || said.text;
  } catch (e) {
    $("answer").textContent = String(e);
  }
}

// zoom changes the range of the timeline about its middle.
function zoom(factor, shift) {
  let [a, b] = state.range;
  const width = Math.min(1, Math.max(0.001, (b - a) * factor)), middle = (a + b) / 2 + shift * (b - a);
  a = Math.min(Math.max(0, middle - width / 2), 1 - width);
  state.range = [a, a + width];
  draw();
}

// dragToZoom zooms the timeline to the range that the pointer is dragged over.
function dragToZoom(canvas) {
  let from = null;
  canvas.addEventListener("pointerdown", (e) => { from = e.clientX; });
  canvas.addEventListener("pointerup", (e) => {
    if (from === null || Math.abs(e.clientX - from) < 8) return;
    const box = canvas.getBoundingClientRect(), [a, b] = state.range;
    const place = (x) => Math.min(1, Math.max(0, timePart(x - box.left, box.width)));
    const ends = [place(from), place(e.clientX)].sort((x, y) => x - y).map((x) => a + x * (b - a));
    from = null;
    if (ends[1] - ends[0] < 0.0005) return;
    state.range = ends;
    draw();
  });
}

// begin sets the page up.
function begin() {
  showLegend();
  listen(state, draw);
  $("menu").addEventListener("click", () => {
    $("actions").hidden = !$("actions").hidden;
    $("menu").setAttribute("aria-expanded", String(!$("actions").hidden));
  });
  for (const form of document.querySelectorAll("form")) {
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      act(form);
    });
  }
  $("timeline").addEventListener("keydown", (e) => {
    const keys = { "+": [0.5, 0], "=": [0.5, 0], "-": [2, 0], ArrowLeft: [1, -0.25], ArrowRight: [1, 0.25] };
    if (e.key === "0") state.range = [0, 1];
    else if (!keys[e.key]) return;
    e.preventDefault();
    zoom(...(keys[e.key] || [1, 0]));
  });
  followTime($("timeline"), (at) => {
    const begin = Date.parse(state.snapshot.begin), length = Date.parse(state.snapshot.time) - begin;
    return begin + length * (state.range[0] + at * (state.range[1] - state.range[0]));
  });
  dragToZoom($("timeline"));
  const data = $("data");
  if (!data) {
    connect();
    return;
  }
  // The page of a report: all is here, and nothing can be done to the job.
  $("menu").remove();
  state.snapshot = JSON.parse(data.textContent);
  state.over = true;
  draw();
}

begin();
