// Figures over the last minutes, as lines. What was not measured is a gap, never a zero.

import { h, setAttribute, setText, svg } from "./dom.js";
import * as format from "./format.js";

const WIDTH = 300;
const HEIGHT = 48;
export const SPAN_S = 300;

/** The least top of a scale, so that a flat line of almost nothing does not look like a mountain. */
function leastTop(unit, high) {
  return unit === "fraction" ? 1 : unit === "requests" ? 4 : unit === "weight" ? 100 : high / 20;
}

function top(most, least) {
  if (!(most > least)) return least;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 5, 10].map((step) => step * power).find((each) => each >= most);
}

/** One line: `show(store, cell)`. `name` is the figure's name in the history. */
export function timeline(signal, name) {
  const line = svg("path", { class: "line" });
  const area = svg("path", { class: "area" });
  const now = h("span", { class: "num now" });
  const scale = h("span", { class: "num scale" });
  const title = format.title(signal.name);
  const picture = svg(
    "svg",
    { class: "chart", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
    area, line,
  );
  const caption = h("figcaption", { title: signal.meaning ?? null }, h("span", { class: "title" }, title), now);
  const figure = h("figure", { class: "timeline", "data-origin": signal.origin ?? null }, caption, picture, scale);
  figure.show = (store, cell) => {
    const drawn = draw(store, cell, name(store), leastTop(signal.unit, signal.high ?? 1));
    setAttribute(line, "d", drawn.line);
    setAttribute(area, "d", drawn.area);
    const said = (value) => (signal.unit === "weight" ? format.fixed(value) : signal.unit === "pressure" ? format.fixed(value, 3) : format.signal(value, signal.unit));
    setText(now, said(drawn.last));
    setText(scale, drawn.most === null ? "not measured" : `${said(drawn.least)} to ${said(drawn.most)}`);
    setAttribute(picture, "aria-label", `${title}: now ${said(drawn.last)}; in the last 5 minutes ${scale.shown}`);
  };
  return figure;
}

/** The line of a figure: paths, the last value, and the least and greatest in sight (null = none). */
function draw(store, cell, name, least) {
  const { history } = store;
  const found = { line: "", area: "", last: null, least: null, most: null };
  if (!history || !cell.past || !history.at.has(name)) return found;
  const points = [];
  const end = history.times[history.head];
  history.each(cell.past, name, (time, value) => {
    const ago = (end - time) / 1000;
    if (ago > SPAN_S) return;
    points.push([ago, value]);
    if (Number.isNaN(value)) return;
    if (found.least === null || value < found.least) found.least = value;
    if (found.most === null || value > found.most) found.most = value;
  });
  const high = top(found.most ?? 0, least);
  let open = null;
  const close = (x) => {
    if (open !== null) found.area += `L${x} ${HEIGHT}L${open} ${HEIGHT}Z`;
    open = null;
  };
  let lastX = 0;
  for (const [ago, value] of points) {
    if (Number.isNaN(value)) {
      close(lastX);
      continue;
    }
    const x = (WIDTH * (1 - ago / SPAN_S)).toFixed(1);
    const y = (HEIGHT - 1 - ((HEIGHT - 3) * value) / high).toFixed(1);
    const step = `${open === null ? "M" : "L"}${x} ${y}`;
    found.line += step;
    found.area += step;
    if (open === null) open = x;
    lastX = x;
  }
  close(lastX);
  const last = points.at(-1)?.[1];
  found.last = last === undefined || Number.isNaN(last) ? null : last;
  return found;
}
