// A cell's states and marks: each has a word, a shape and a colour, and never the colour alone.

import { h, setAttribute, setText, svg } from "./dom.js";

export const STATES = ["FAILED", "DRAINING", "LOADING", "READY", "TERMINATED"];
const SEVERITY = { FAILED: 0, DRAINING: 1, LOADING: 2, "": 3, READY: 5, TERMINATED: 6 };
const SHAPES = {
  READY: "M6 1.2a4.8 4.8 0 1 0 0 9.6a4.8 4.8 0 1 0 0-9.6Z",
  FAILED: "M2.6 1 6 4.4 9.4 1 11 2.6 7.6 6 11 9.4 9.4 11 6 7.6 2.6 11 1 9.4 4.4 6 1 2.6Z",
  DRAINING: "M.8 2h10.4L6 11Z",
  LOADING: "M6 1a5 5 0 1 0 0 10a5 5 0 1 0 0-10Zm0 1.8v6.4a3.2 3.2 0 0 1 0-6.4Z",
  TERMINATED: "M1.4 1.4h9.2v9.2H1.4Zm1.7 1.7v5.8h5.8V3.1Z",
  "": "M1 5h10v2H1Z",
};
export const SAID = {
  READY: "serving, and has weight",
  FAILED: "its engine or hardware is gone; no requests",
  DRAINING: "no new requests; those in flight finish",
  LOADING: "the engine is not up yet",
  TERMINATED: "drained, and done",
};

/** How near the top of a list a cell belongs: what needs a person comes first. */
export function severity(cell) {
  return SEVERITY[cell.state] - (cell.state === "READY" && cell.marks.length ? 1 : 0);
}

/** The shape of a state, 12 px. */
export function shape(state) {
  return svg(
    "svg",
    { class: "shape", viewBox: "0 0 12 12", "aria-hidden": "true", "data-state": state },
    svg("path", { d: SHAPES[state] ?? SHAPES[""], "fill-rule": "evenodd" }),
  );
}

/** A state in shape and word, that can change. */
export function stateMark(state = "") {
  const icon = shape(state);
  const word = h("span", { class: "word" });
  const mark = h("span", { class: "state", "data-state": state }, icon, word);
  mark.show = (next) => {
    if (mark.now === next) return;
    mark.now = next;
    setAttribute(mark, "data-state", next);
    setAttribute(icon, "data-state", next);
    icon.firstChild.setAttribute("d", SHAPES[next] ?? SHAPES[""]);
    setText(word, next || "unknown");
  };
  mark.show(state);
  return mark;
}

const MARKS = {
  telemetry_lost: ["agent silent", "the agent is silent; the engine answers, and the last weight is held"],
  member_lost: ["member lost", "another node that the engine runs on does not report"],
  nvml: ["NVML", "NVML stands in for the DCGM exporter"],
  partial: ["GPU partly", "some of its nodes have no hardware figures"],
  dcgm_fallback: ["no GPU data", "no hardware figures; scored on what is left"],
  cordoned: ["cordoned", "an operator has cordoned its site"],
};

/** A mark as [short word, what it means, whether it is a warning]. */
export function markOf(mark) {
  const [kind, detail] = mark.split(":");
  if (kind === "override") return [`set to ${detail}`, `an operator has set its weight to ${detail}`, false];
  if (kind === "early") {
    const word = detail.replaceAll("_", " ");
    return [`early: ${word}`, `early warning: ${word}`, true];
  }
  const [word, said] = MARKS[kind] ?? [mark, mark];
  return [word, said, kind === "telemetry_lost" || kind === "member_lost" || kind === "dcgm_fallback"];
}

/** The marks of a cell as chips, in an element that is filled again only when they change. */
export function marksList() {
  const list = h("span", { class: "marks" });
  list.show = (marks) => {
    const now = marks.join();
    if (list.now === now) return;
    list.now = now;
    list.replaceChildren(
      ...marks.map((mark) => {
        const [word, said, warning] = markOf(mark);
        return h("span", { class: warning ? "chip warn" : "chip", title: said }, word);
      }),
    );
  };
  return list;
}

/** How high a pressure is, as a word for the colour of its bar. */
export function level(pressure) {
  if (pressure === null || pressure === undefined) return "none";
  return pressure < 0.5 ? "low" : pressure < 0.75 ? "mid" : "high";
}

/** A bar with its figure, 0 to 1. */
export function pressureBar() {
  const part = h("span", { class: "part" });
  const figure = h("span", { class: "num" });
  const bar = h("span", { class: "pressure" }, h("span", { class: "bar", "aria-hidden": "true" }, part), figure);
  bar.show = (pressure) => {
    if (bar.now === pressure) return;
    bar.now = pressure;
    const known = pressure !== null && pressure !== undefined;
    part.style.transform = `scaleX(${known ? Math.min(1, Math.max(0, pressure)) : 0})`;
    setAttribute(bar, "data-level", level(pressure));
    setText(figure, known ? pressure.toFixed(3) : "–");
  };
  return bar;
}
