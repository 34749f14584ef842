// The region at a glance: how many cells are how, where requests flow, what needs a person, what happened.

import { h, keyed, panel, setText, shown } from "./dom.js";
import { eventList } from "./events.js";
import { count, plural, span } from "./format.js";
import { SiteMap } from "./map.js";
import { SAID, STATES, marksList, pressureBar, severity, shape, stateMark } from "./states.js";

const MOST_TROUBLES = 8;
const MOST_EVENTS = 10;

export class OverviewView {
  constructor(store) {
    this.store = store;
    this.tiles = new Map(STATES.map((state) => [state, tile(state)]));
    this.map = new SiteMap(store);
    this.troubles = h("ul", { class: "troubles", "aria-label": "Cells that need attention" });
    this.calm = h("p", { class: "empty" });
    this.more = h("a", { href: "#/cells", hidden: true });
    this.events = eventList("Newest events");
    this.quiet = h("p", { class: "empty", hidden: true }, "Nothing has happened since this controller started.");
    this.intents = h("ul", { class: "intents", "aria-label": "What operators have asked for" });
    this.asked = panel("Asked by operators", "In force until taken back, also over a restart.", this.intents);
    this.noCells = h(
      "p",
      { class: "empty", hidden: true },
      "No cells yet. An agent shows its cells within a second of its start; on the GPU host, ",
      h("code", {}, "headrace-agent check"),
      " says what is missing.",
    );
    this.element = h(
      "div",
      { class: "view overview" },
      h("h1", { class: "sr" }, "Overview"),
      h("ul", { class: "tiles", "aria-label": "Cells by state" }, [...this.tiles.values()]),
      h(
        "div",
        { class: "halves" },
        panel("Sites and gateways", "A line is as wide as the share of the gateway's requests that the weights send to the site; labels (of the chosen gateway): that share, round trip ± jitter.", this.map.element, this.noCells),
        panel("Needs attention", "Not READY first, then marks, then the highest pressures above 0.75.", this.troubles, this.calm, this.more),
      ),
      this.asked,
      panel("Newest events", null, this.events, this.quiet, h("p", { class: "after" }, h("a", { href: "#/events" }, "All events"))),
    );
  }

  open() {}

  show() {
    const { store } = this;
    if (!store.region) return;
    const counts = store.stateCounts();
    for (const [state, element] of this.tiles) element.show(counts[state]);
    this.map.show();
    this.map.element.hidden = store.list.length === 0;
    this.noCells.hidden = store.list.length > 0;
    this.showTroubles();
    this.events.show(store.events.slice(-MOST_EVENTS));
    this.quiet.hidden = store.events.length > 0;
    const { intents } = store.region.status;
    this.asked.hidden = !intents.length;
    keyed(this.intents, intents, (intent) => `${intent.kind}\n${intent.subject}\n${intent.at}`, intentLine);
  }

  showTroubles() {
    const { store } = this;
    const pressed = (cell) => cell.state === "READY" && (cell.pressure[store.gateway] ?? 0) > 0.75;
    const found = store.list.filter((cell) => cell.state !== "TERMINATED" && (cell.state !== "READY" || cell.marks.length || pressed(cell)));
    found.sort((a, b) => severity(a) - severity(b) || (b.pressure[store.gateway] ?? 0) - (a.pressure[store.gateway] ?? 0) || (a.id < b.id ? -1 : 1));
    keyed(this.troubles, found.slice(0, MOST_TROUBLES), (cell) => cell.id, () => troubleLine(store));
    this.calm.hidden = found.length > 0;
    setText(this.calm, store.list.length ? `All ${plural(store.list.length, "cell")} are READY, without marks.` : "No cells yet.");
    this.more.hidden = found.length <= MOST_TROUBLES;
    setText(this.more, `${count(found.length - MOST_TROUBLES)} more in the table of cells`);
  }
}

function tile(state) {
  const figure = h("span", { class: "num figure" }, "–");
  const link = h(
    "a",
    { href: `#/cells?state=${state}`, title: SAID[state] },
    figure, h("span", { class: "state", "data-state": state }, shape(state), h("span", { class: "word" }, state)),
  );
  const item = h("li", { "data-state": state }, link);
  return shown(item, (number) => {
    setText(figure, count(number));
    item.classList.toggle("none", number === 0);
  });
}

function troubleLine(store) {
  const mark = stateMark();
  const link = h("a", { class: "id" });
  const bar = pressureBar();
  const marks = marksList();
  const why = h("span", { class: "why" });
  const line = h("li", {}, h("div", { class: "who" }, mark, link, marks), bar, why);
  return shown(line, (cell) => {
    mark.show(cell.state);
    setText(link, cell.id);
    link.href = `#/cell/${encodeURIComponent(cell.id)}`;
    bar.show(cell.pressure[store.gateway] ?? null);
    bar.hidden = cell.state !== "READY";
    marks.show(cell.marks);
    const since = cell.since === null ? "" : `for ${span(store.wall() - cell.since)}`;
    setText(why, cell.state === "READY" ? cell.site : [cell.cause, since].filter(Boolean).join(", "));
  });
}

function intentLine(intent) {
  const what = {
    shadow: () => "shadow: weights are computed and not pushed",
    freeze: () => "freeze: the weights in force are held",
    override: () => `weight of ${intent.subject} set to ${intent.weight}`,
    cordon: () => `site ${intent.subject} cordoned`,
    pin: () => `pool ${intent.subject} pinned to ${intent.sites.join(", ") || "no site"}`,
  }[intent.kind];
  return h("li", {}, h("span", { class: "chip" }, intent.kind), ` ${what ? what() : intent.subject}`, h("span", { class: "why" }, ` ${intent.cause} (${intent.by})`));
}
