// What happened in the region, newest first.

import { h, keyed, setText, shown } from "./dom.js";
import { clock, plural } from "./format.js";
import { stateMark } from "./states.js";

const KINDS = { state: "state", alert: "early warning", self_preservation: "self-preservation", operator: "operator", picker: "picker" };
const PAGE = 200;

/** What led to it: the event, and its cause where that says more. */
export function whyOf({ event, cause }) {
  return cause && cause !== event ? `${event}: ${cause}` : event;
}

/** One entry as a line. */
export function eventLine(entry) {
  const parts = [h("time", { class: "num", datetime: entry.at, title: entry.at }, clock(entry.at))];
  if (entry.cell) parts.push(h("a", { class: "id", href: `#/cell/${encodeURIComponent(entry.cell)}` }, entry.cell));
  if (entry.kind === "state") {
    const change = h("span", { class: "change" });
    if (entry.from) change.append(h("span", { class: "was" }, entry.from), h("span", { class: "to", "aria-label": "to" }, "→"));
    change.append(stateMark(entry.to));
    parts.push(change);
  } else parts.push(h("span", { class: "chip" }, KINDS[entry.kind] ?? entry.kind));
  const why = whyOf(entry);
  parts.push(h("span", { class: "why" }, entry.by ? `${why} (${entry.by})` : why));
  return h("li", { "data-kind": entry.kind, "data-to": entry.to || null }, parts);
}

/** A list of the newest entries; `show(entries)`, oldest first. */
export function eventList(label) {
  const list = h("ol", { class: "events", "aria-label": label });
  return shown(list, (entries) => keyed(list, [...entries].reverse(), (entry) => entry.id, eventLine));
}

export class EventsView {
  constructor(store) {
    this.store = store;
    this.most = PAGE;
    this.kind = h(
      "select",
      { onchange: () => this.show() },
      h("option", { value: "" }, "All kinds"),
      Object.entries(KINDS).map(([kind, word]) => h("option", { value: kind }, word)),
    );
    this.search = h("input", {
      type: "search", placeholder: "Search cell, cause …", "aria-label": "Search events", autocomplete: "off",
      oninput: () => this.show(),
    });
    this.found = h("span", { class: "found num", role: "status" });
    this.list = eventList("Events, newest first");
    this.more = h("button", { type: "button", hidden: true, onclick: () => { this.most += PAGE; this.show(); } }, "Show more");
    this.empty = h("p", { class: "empty", hidden: true });
    this.element = h(
      "div",
      { class: "view" },
      h("div", { class: "title-line" }, h("h1", {}, "Events"), this.found),
      h("div", { class: "filters", role: "search" }, this.search, h("label", { class: "choice" }, h("span", { class: "sr" }, "Kind"), this.kind)),
      h("p", { class: "howto" }, "Newest first, in this machine's time. Each change of state says what led to it. The controller keeps 4,096 entries; this page the newest 1,000."),
      h("div", { class: "panel" }, this.list, this.empty, this.more),
    );
  }

  open() {}

  show() {
    const kind = this.kind.value;
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.store.events.filter((entry) => {
      if (kind && entry.kind !== kind) return false;
      const text = `${entry.cell} ${entry.event} ${entry.cause} ${entry.from} ${entry.to} ${entry.by}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    this.list.show(found.slice(-this.most));
    this.more.hidden = found.length <= this.most;
    setText(this.found, plural(found.length, "entry", "entries"));
    this.empty.hidden = found.length > 0;
    setText(this.empty, this.store.events.length ? "No entry matches." : "Nothing has happened since this controller started.");
  }
}
