// Puts the page together: the stream fills the store, the address picks the view, a frame draws it.

import { get, token } from "./api.js";
import { CellView } from "./cell.js";
import { CellsView } from "./cells.js";
import { askToken } from "./dialogs.js";
import { h, keyed, setAttribute, setText } from "./dom.js";
import { EventsView } from "./events.js";
import { span } from "./format.js";
import { OverviewView } from "./overview.js";
import { PoolsView } from "./pools.js";
import { Store } from "./store.js";
import { Stream } from "./stream.js";

const STALE_MS = 3000;
const LATE_TICK_S = 2;
const FIRST_EVENTS = 200;
const NO_TOKEN = "Its settings list the files that hold the tokens (admin.tokens); ask whoever runs it for yours.";
const TITLES = { overview: "Overview", cells: "Cells", cell: "Cell", events: "Events", pools: "Pools" };

const byId = (id) => document.getElementById(id);
const store = new Store();
const views = {
  overview: new OverviewView(store),
  cells: new CellsView(store, go),
  cell: new CellView(store),
  events: new EventsView(store),
  pools: new PoolsView(store),
};
let current = null;
let link = { state: "connecting", error: null };
let drawing = false;
let title = TITLES.overview;

const stream = new Stream({
  block(event, data) {
    link = { state: "live", error: null };
    store.heardAt = performance.now();
    if (event === "hello") {
      store.takeHello(data);
      get(`/api/v1/events?limit=${FIRST_EVENTS}`).then(({ events }) => { store.takeLog(events); draw(); }, () => {});
    } else if (event === "cells") store.takeCells(data);
    else if (event === "region") store.takeRegion(data);
    else if (event === "log") store.takeLog([data]);
    if (event === "cells" || event === "log") showTitle();
    draw();
  },
  async state(state, error = null) {
    link = { state, error };
    draw();
    if (state !== "denied") return;
    if (error.status === 401) {
      await askToken(token() ? error.message : NO_TOKEN);
      follow();
    }
  },
});

function follow() {
  // The loop must have ended before it can begin again.
  setTimeout(() => stream.run(), 0);
}

function go(address, replace = false) {
  if (replace) {
    history.replaceState(null, "", address);
    route();
  } else location.hash = address.slice(1);
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    // An address that somebody typed; there will be no such cell.
    return text;
  }
}

/** The title tells of failures in a tab that nobody looks at. */
function showTitle() {
  const failed = store.stateCounts().FAILED;
  document.title = `${failed ? `(${failed} failed) ` : ""}${title} · Headrace`;
}

/** #/cells?state=FAILED, #/cell/ID: the view and what it is asked to show. */
function route() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...rest] = path.split("/");
  const key = name in views ? name : "overview";
  const view = views[key];
  const id = decoded(rest.join("/"));
  view.open(new URLSearchParams(query), id);
  title = key === "cell" ? id : TITLES[key];
  showTitle();
  for (const each of document.querySelectorAll("#nav a")) {
    const here = each.dataset.view === (key === "cell" ? "cells" : key);
    setAttribute(each, "aria-current", here ? "page" : null);
  }
  if (view !== current) {
    const first = current === null;
    current = view;
    byId("main").replaceChildren(view.element);
    if (!first) {
      window.scrollTo(0, 0);
      byId("main").focus({ preventScroll: true });
    }
  }
  draw();
}

/** Draw what there is, once in the next frame however much has come. */
function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    showFrame();
    if (store.region || link.state === "denied") current.show();
  });
}

function showFrame() {
  const quiet = store.heardAt === null ? null : performance.now() - store.heardAt;
  const late = store.region ? store.region.status.tick_age_s > LATE_TICK_S : false;
  const stale = store.region !== null && (link.state !== "live" || quiet > STALE_MS || late);
  document.documentElement.toggleAttribute("data-stale", stale);
  document.documentElement.toggleAttribute("data-ready", store.region !== null);
  const age = quiet === null ? "" : span(quiet / 1000);
  const state = link.state === "denied" ? "denied" : stale ? "stale" : store.region ? "live" : "connecting";
  setAttribute(byId("live"), "data-state", state);
  setText(byId("live-text"), { live: "live", stale: `stale, ${age}`, connecting: "connecting", denied: "not let in" }[state]);
  setText(byId("live-said"), { live: "Live", stale: "The page is stale", connecting: "", denied: "Not let in" }[state]);
  showStale(stale, late, age);
  showRegion();
}

function showStale(stale, late, age) {
  const bar = byId("stale");
  const denied = link.state === "denied" && link.error?.status !== 401;
  const lost = store.region === null && link.state === "waiting";
  bar.hidden = !(stale || denied || lost);
  if (bar.hidden) return;
  if (denied) setText(bar, `Not let in: ${link.error.message}`);
  else if (late && link.state === "live") setText(bar, "Stale: the controller answers, but its control loop does not turn. Envoys keep the weights they hold.");
  else {
    const why = link.error?.status ? link.error.message : "the controller does not answer";
    setText(bar, `${stale ? `Stale: nothing new for ${age}; ` : ""}${why}. Trying again. Envoys keep the weights they hold.`);
  }
}

function showRegion() {
  if (!store.hello) return;
  setText(byId("region"), store.hello.region);
  const { gateways } = store.hello;
  const choice = byId("gateway");
  byId("gateway-choice").hidden = gateways.length < 2;
  if (choice.names !== gateways.join()) {
    choice.names = gateways.join();
    choice.replaceChildren(...gateways.map((name, at) => h("option", { value: at }, name)));
  }
  keyed(byId("notices"), store.region ? notices(store.region.status) : [], ([kind, text]) => kind + text, ([kind, text]) => h("p", { class: `notice ${kind}` }, text));
}

/** What an operator must know of the region before anything else. */
function notices(status) {
  const found = [];
  if (!status.published) found.push(["warn", `No weights are published: ${status.warm_start}.`]);
  if (status.self_preservation) found.push(["warn", "Self-preservation: too many agents fell silent at once; the last weights are held."]);
  const away = status.gateways.filter((gateway) => !gateway.connected).map((gateway) => gateway.id);
  if (away.length === 1) found.push(["warn", `Gateway ${away[0]} is not connected; it keeps the weights it holds.`]);
  if (away.length > 1) found.push(["warn", `Gateways ${away.join(", ")} are not connected; they keep the weights they hold.`]);
  for (const gateway of status.gateways) {
    if (gateway.connected && gateway.nacks && !gateway.in_force) found.push(["warn", `Gateway ${gateway.id} refused what it was sent: ${gateway.last_nack}`]);
  }
  for (const site of status.sites) {
    if (site.cells && !site.ready) found.push(["warn", `Site ${site.site} has no READY cell.`]);
  }
  if (status.shadow) found.push(["", "Shadow: weights are computed and none is pushed."]);
  if (status.frozen) found.push(["", "Freeze: the weights in force are held."]);
  if (status.baseline) found.push(["", `Baseline ${status.baseline}: Envoy's own balancing; nothing is scored.`]);
  return found;
}

function themes() {
  const button = byId("theme");
  const order = ["auto", "dark", "light"];
  const show = (name) => setText(button, `Theme: ${name}`);
  show(document.documentElement.dataset.theme ?? "auto");
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? "auto";
    const next = order[(order.indexOf(now) + 1) % order.length];
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem("headrace.theme", next);
    } catch {
      // It holds until the page is closed.
    }
    show(next);
  });
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea, dialog");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    if (current !== views.cells) go("#/cells");
    // The view is put in place by the change of the address.
    setTimeout(() => byId("search")?.focus(), 0);
  }
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
byId("gateway").addEventListener("change", (event) => {
  store.gateway = Number(event.target.value);
  views.cells.stale = true;
  draw();
});
window.addEventListener("hashchange", route);
window.addEventListener("online", () => stream.poke());
document.addEventListener("visibilitychange", () => draw());
themes();
route();
// Ages go on while nothing comes: that is when they matter.
setInterval(draw, 1000);
follow();
