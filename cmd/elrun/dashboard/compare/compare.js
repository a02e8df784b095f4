// The page that compares runs: their charts over each other, their goodput, results and settings side by side.

import { axes, figure, parts, uses, whole } from "./model.js";
import { lines } from "./charts.js";
import { $, element, listen, showLegend, usesBar } from "./common.js";

// state is what the page shows: of each run its name, its snapshot, and its points.
const state = { runs: [], log: false, axis: "step", due: false };

// dashes tell lines apart where colours do not.
const dashes = [[], [6, 3], [2, 3]];

// draw draws the charts at the next frame.
function draw() {
  if (state.due) return;
  state.due = true;
  requestAnimationFrame(() => {
    state.due = false;
    charts();
  });
}

// charts shows the series of the runs, and their figures at the cursor, or at their ends.
function charts() {
  let label;
  const runs = state.runs.map((r, i) => {
    const [x, text] = axes[state.axis](r.points, r.job);
    label = text;
    return { points: r.points, x, colour: `run-${i}`, dashes: dashes[i % dashes.length] };
  });
  const show = (id, value, options) => {
    const at = lines($(id), runs, value, label, options);
    const figures = state.runs.map((r, i) => {
      const p = at ? at[i] : r.points[r.points.length - 1];
      return `${r.name} ${figure(p && value(p))}`;
    });
    const first = at && at.findIndex((p) => p);
    $(`${id}-now`).textContent = `${at ? (first >= 0 ? `at ${label(runs[first].x(at[first]))}` : "") : "at the end"}: ${figures.join(" · ")}`;
  };
  show("loss", (p) => p.loss || undefined, { log: state.log });
  show("speed", (p) => p.samples_per_s || undefined, { zero: true });
  show("time", (p) => p.step_ms, { zero: true });
}

// goodputs shows what the time of each run was used for.
function goodputs() {
  $("goodputs").replaceChildren(...state.runs.flatMap((r) => {
    const g = r.job.goodput, all = parts(g.uses).filter(([name, part]) => name !== "useful" && part >= 0.005).sort((a, b) => b[1] - a[1]).slice(0, 4);
    const line = [`${Math.round(100 * g.ratio)} %`, ...all.map(([name, part]) => `${uses.find(([n]) => n === name)[2]} ${(100 * part).toFixed(part < 0.1 ? 1 : 0)} %`)];
    const value = element("dd", line.join(" · ")), bar = element("div", "", { class: "bar", role: "img", "aria-label": `what the time of ${r.name} was used for` });
    bar.append(...usesBar(g.uses));
    value.append(bar);
    return [element("dt", r.name), value];
  }));
}

// table shows rows with a cell for each run.
function table(id, rows) {
  const head = document.createElement("thead"), body = document.createElement("tbody"), names = document.createElement("tr");
  names.append(document.createElement("td"), ...state.runs.map((r) => element("th", r.name, { scope: "col" })));
  head.append(names);
  body.append(...rows.map((r) => {
    const tr = document.createElement("tr");
    tr.append(element("th", r.name, { scope: "row" }), ...r.cells.map((text) => element("td", text || "-")));
    return tr;
  }));
  $(id).replaceChildren(head, body);
}

// begin sets the page up.
function begin() {
  const data = JSON.parse($("data").textContent);
  state.runs = data.runs.map((r) => ({ ...r, points: whole(r.job, "steps") }));
  $("title").textContent = `${data.runs.length} runs`;
  document.title = data.runs.map((r) => r.name).join(", ");
  $("runs").append(...state.runs.map((r, i) => {
    const item = element("li", r.name), line = document.createElement("i");
    line.style.borderTop = `3px ${["solid", "dashed", "dotted"][i % dashes.length]} var(--run-${i})`;
    item.prepend(line);
    return item;
  }));
  showLegend();
  listen(state, draw);
  goodputs();
  table("results", data.results || []);
  table("settings", data.settings || []);
  if (!(data.settings || []).length) $("settings").replaceWith(element("p", "none"));
  draw();
}

begin();
