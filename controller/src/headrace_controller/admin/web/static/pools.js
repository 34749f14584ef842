// Pools, gateways and the paths between sites and gateways, as tables.

import { h, keyed, panel, setText, shown } from "./dom.js";
import { count, path, percent, plural } from "./format.js";
import { STATES, shape } from "./states.js";

/** How many cells are in which state, as a bar and in words. */
export function statesBar() {
  const bar = h("span", { class: "states-bar", "aria-hidden": "true" }, STATES.map((state) => h("span", { "data-state": state })));
  const words = h("span", { class: "states-words" });
  const both = h("span", { class: "states-both" }, bar, words);
  return shown(both, (states) => {
    STATES.forEach((state, at) => (bar.children[at].style.flexGrow = states[state] ?? 0));
    const now = JSON.stringify(states);
    if (both.now === now) return;
    both.now = now;
    words.replaceChildren(
      ...STATES.filter((state) => states[state]).map((state) => h("span", {}, shape(state), `${count(states[state])} ${state}`)),
    );
  });
}

/** A table whose rows are kept: `columns` are [heading, class, make → element with show(item)]. A narrow window
 * shows each row of one that is `stacked` as a list, figure below figure. */
function table(label, columns, key, stacked = true) {
  const body = h("tbody", {});
  const made = h(
    "table",
    { class: stacked ? "plain stacked" : "plain close", "aria-label": label },
    h("thead", {}, h("tr", {}, columns.map(([heading, kind]) => h("th", { scope: "col", class: kind }, heading)))),
    body,
  );
  const row = () => {
    const parts = columns.map(([heading, kind, make], at) => {
      const inner = make();
      return [h(at ? "td" : "th", { class: kind, scope: at ? null : "row", "data-heading": heading }, inner), inner];
    });
    return shown(h("tr", {}, parts.map(([outer]) => outer)), (item) => parts.forEach(([, inner]) => inner.show(item)));
  };
  const scroll = h("div", { class: "plain-scroll", tabindex: "0", role: "region", "aria-label": label }, made);
  return shown(scroll, (items) => keyed(body, items, key, row));
}

const text = (say) => () => {
  const span = h("span", {});
  return shown(span, (item) => setText(span, say(item)));
};

const list = (found) => Object.entries(found).map(([name, value]) => `${name} ${count(value)}`).join(", ") || "–";

export class PoolsView {
  constructor(store) {
    this.store = store;
    this.pools = table(
      "Pools",
      [
        ["Pool (model)", "words", text((pool) => pool.model)],
        ["Ready", "num", text((pool) => `${count(pool.ready)} of ${count(pool.cells)}`)],
        ["States", "", () => { const bar = statesBar(); return shown(h("span", {}, bar), (pool) => bar.show(pool.states)); }],
        ["Ready by site", "words", text((pool) => list(pool.ready_by_site))],
        ["Sum of weights by gateway", "words", text((pool) => list(pool.weights))],
        ["Context, tokens", "num", text((pool) => pool.max_model_len.map(count).join(" / ") || "–")],
        ["Pinned to", "words", text((pool) => pool.pinned_to?.join(", ") ?? "any site")],
      ],
      (pool) => pool.model,
    );
    this.gateways = table(
      "Gateways",
      [
        ["Gateway", "words", text((gateway) => gateway.id)],
        ["Connected", "words", text((gateway) => (gateway.connected ? `yes, ${plural(gateway.streams, "stream")}` : "no"))],
        ["Has the newest", "words", text((gateway) => (gateway.in_force ? "yes" : "not yet"))],
        ["Pushes", "num", text((gateway) => count(gateway.pushes))],
        ["Refused", "num", text((gateway) => count(gateway.nacks))],
        ["Last refusal", "words", text((gateway) => gateway.last_nack || "none")],
        ["Pools that no cell serves", "words", text((gateway) => gateway.unknown.join(", ") || "none")],
      ],
      (gateway) => gateway.id,
    );
    this.paths = table(
      "Paths",
      [
        ["Site", "words", text((each) => each.site)],
        ["Gateway", "words", text((each) => each.gateway)],
        ["RTT ± jitter", "num", text((each) => path(each.rtt_ms, each.jitter_ms))],
        ["Flow by weight", "num", text((each) => percent(each.flow, 1))],
      ],
      (each) => `${each.site}\n${each.gateway}`,
      false,
    );
    this.empty = h("p", { class: "empty" }, "No pool yet: a pool begins with the first cell that names its model.");
    this.element = h(
      "div",
      { class: "view" },
      h("h1", {}, "Pools and gateways"),
      panel("Pools", "A pool is the cells that serve one model. A pool with no READY cell answers 503.", this.pools, this.empty),
      panel("Gateways", "A gateway holds the last weights when it is not connected. A refusal means that its Envoy did not take what it was sent.", this.gateways),
      panel("Paths", "Medians over the site's cells. Flow is the share of the gateway's requests that the weights send to the site, averaged over pools.", this.paths),
    );
  }

  open() {}

  show() {
    const { region } = this.store;
    if (!region) return;
    this.pools.show(region.pools);
    this.pools.hidden = !region.pools.length;
    this.empty.hidden = region.pools.length > 0;
    this.gateways.show(region.status.gateways);
    this.paths.show(region.paths);
  }
}
