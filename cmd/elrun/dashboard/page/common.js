// What the page of a job and the page that compares runs share. All texts of others become text nodes.

import { parts, uses } from "./model.js";
import { cursor, follow, forget } from "./charts.js";

export const $ = (id) => document.getElementById(id);

// element makes an element with a text.
export function element(tag, text, attributes = {}) {
  const e = document.createElement(tag);
  e.textContent = text;
  for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
  return e;
}

// usesBar returns the parts of a bar that shows what time was used for.
export const usesBar = (all) => parts(all).map(([name, part]) => {
  const e = element("span", "", { title: `${uses.find(([n]) => n === name)[2]} ${(100 * part).toFixed(1)} %` });
  e.style.width = `${100 * part}%`;
  e.style.background = `var(--use-${name})`;
  return e;
});

// showLegend names the colours of the uses.
export function showLegend() {
  $("legend").append(...uses.map(([name, , text, definition]) => {
    const item = element("li", text, { title: definition });
    const square = document.createElement("i");
    square.style.background = `var(--use-${name})`;
    item.prepend(square);
    return item;
  }));
}

// listen lets what a page has besides charts change them: the axis and the scale of state, the cursor, the window and the colours.
export function listen(state, draw) {
  $("log").addEventListener("click", () => {
    state.log = !state.log;
    $("log").setAttribute("aria-pressed", String(state.log));
    draw();
  });
  for (const radio of document.querySelectorAll("input[name=axis]")) {
    radio.addEventListener("change", () => {
      state.axis = radio.value;
      draw();
    });
  }
  for (const id of ["loss", "speed", "time"]) follow($(id));
  cursor.listeners.add(draw);
  window.addEventListener("resize", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    forget();
    draw();
  });
}
