// One cell: its figures over time, the account of its weight, its story, and draining it.

import { cellPath, get } from "./api.js";
import { askDrain } from "./dialogs.js";
import { h, keyed, panel, setText, shown } from "./dom.js";
import { whyOf } from "./events.js";
import { account } from "./explain.js";
import * as format from "./format.js";
import { marksList, pressureBar, stateMark } from "./states.js";
import { timeline } from "./timelines.js";

const REFRESH_MS = 2000;

export class CellView {
  constructor(store) {
    this.store = store;
    this.element = h("div", { class: "view view-cell" });
    this.id = null;
  }

  open(_, id) {
    this.id = id;
    this.detail = null;
    this.found = null;
    this.askedAt = -Infinity;
    this.built = "";
  }

  build(signals) {
    this.state = stateMark();
    this.since = h("span", { class: "muted" });
    this.marks = marksList();
    this.drain = h("button", { type: "button", class: "danger", onclick: () => this.ask(false) }, "Drain …");
    this.undrain = h("button", { type: "button", onclick: () => this.ask(true) }, "Undrain …");
    this.role = h("span", { class: "muted" });
    this.cause = h("p", { class: "cause" });
    this.facts = factList();
    this.pressure = pressureBar();
    const at = (name) => (store) => `${name}@${store.gateway}`;
    this.lines = [
      timeline({ name: "Pressure", unit: "pressure", high: 20 }, at("pressure")),
      timeline({ name: "Weight", unit: "weight" }, at("weight")),
      ...signals.map((each) => timeline(each, each.origin === "network" ? at(each.name) : () => each.name)),
    ];
    this.account = account();
    this.accountOf = h("span", { class: "muted" });
    this.story = h("ol", { class: "events story", "aria-label": "Changes of state, newest first" });
    this.reports = h("tbody", {});
    this.gone = h("p", { class: "empty", hidden: true });
    this.body = h(
      "div",
      {},
      h("div", { class: "panel head" }, this.cause, this.facts),
      panel("Last five minutes", "The left edge is five minutes ago, as far as this page was open; a gap was not measured. Each scale begins at 0; below each line, the least and the greatest in sight.", h("div", { class: "timelines" }, this.lines)),
      panel("Why this weight", "Read downwards: each signal adds its normalised value times its share; the rest says how the mean becomes the pressure and the pressure the weight. * marks a value that the pool's median stands in for.", this.accountOf, this.account),
      panel("Its story", "Newest first; what it was, what it became, and what led to it.", this.story),
    );
    this.element.replaceChildren(
      h("p", { class: "back" }, h("a", { href: "#/cells" }, "All cells")),
      h("div", { class: "title-line" }, h("h1", {}, this.id), this.state, this.since, this.marks, h("div", { class: "acts" }, this.role, this.undrain, this.drain)),
      this.gone,
      this.body,
    );
  }

  ask(undrain) {
    const cell = this.store.cells.get(this.id);
    if (cell) askDrain(this.store, cell, undrain);
  }

  show() {
    const { store } = this;
    if (!store.hello || !store.region) return;
    if (this.built !== this.id) {
      this.build(store.signals);
      this.built = this.id;
    }
    const cell = store.cells.get(this.id);
    this.body.hidden = !cell;
    this.gone.hidden = Boolean(cell);
    if (!cell) {
      setText(this.gone, `There is no cell ${this.id} now. It may have been withdrawn by its agent.`);
      this.drain.hidden = this.undrain.hidden = true;
      return;
    }
    this.showHead(cell);
    for (const line of this.lines) line.show(store, cell);
    this.refresh(cell);
  }

  showHead(cell) {
    const { store } = this;
    this.state.show(cell.state);
    setText(this.since, cell.since === null ? "" : `for ${format.span(store.wall() - cell.since)}`);
    this.marks.show(cell.marks);
    const operator = store.hello.role === "operator";
    this.drain.hidden = !operator || !["READY", "LOADING", "FAILED"].includes(cell.state);
    this.undrain.hidden = !operator || !["DRAINING", "TERMINATED"].includes(cell.state);
    setText(this.role, operator ? "" : `You look as ${store.hello.who} (viewer): draining needs an operator's token.`);
    const drain = this.detail?.drain;
    const left = drain && !drain.finished ? ` Drain asked by ${drain.requested_by}, at most ${format.span(drain.remaining_s)} more.` : "";
    const why = cell.cause || this.detail?.cell.cause || "";
    setText(this.cause, why || left ? `Why: ${why}.${left}` : "");
    this.facts.show([
      ["Pressure", format.fixed(cell.pressure[store.gateway] ?? null, 3)],
      ["Weight", format.fixed(cell.weight[store.gateway] ?? null)],
      ["Share", format.percent(cell.share[store.gateway] ?? null, 1)],
      ["In flight", format.fixed(cell.in_flight)],
      ["Heard", `${format.age(cell.age)} ago`],
      ["Site", cell.site],
      ["Node", cell.node],
      ["Address", cell.address],
      ["Engine", cell.engine],
      ["Models", this.detail?.served.map(served).join(", ") || cell.models.join(", ")],
      ["GPUs", this.detail?.gpus.join(", ") || "–"],
      ["Requests", this.detail ? requests(this.detail.cell.requests) : "–"],
    ]);
  }

  /** Ask for what the stream does not carry; again after a while, and at once after a change of state. */
  refresh(cell) {
    const now = performance.now();
    if (this.askedState === cell.state && now - this.askedAt < REFRESH_MS) return;
    this.askedState = cell.state;
    this.askedAt = now;
    this.fetch(this.id).catch(() => {
      // The stream says when the controller is away; what is shown stays until it is back.
    });
  }

  async fetch(id) {
    const gateway = this.store.hello.gateways[this.store.gateway];
    const query = gateway === undefined ? "" : `?gateway=${encodeURIComponent(gateway)}`;
    const [detail, explained] = await Promise.all([get(cellPath(id)), get(cellPath(id, `/explain${query}`))]);
    if (id !== this.id || this.built !== id) return;
    this.detail = detail;
    setText(this.accountOf, gateway === undefined ? "" : `As seen from ${gateway}, at the controller's last tick.`);
    this.account.show(explained.explanations[0] ?? null, this.store.signals);
    const history = detail.history.map((each, at) => ({ ...each, at: each.at, number: at })).reverse();
    keyed(this.story, history, (each) => `${each.at} ${each.to} ${each.event}`, storyLine);
  }
}

function served(model) {
  const parts = [model.max_model_len === null ? "" : `${format.count(model.max_model_len)} tokens`, model.base_model ? `adapter of ${model.base_model}` : ""];
  const said = parts.filter(Boolean).join(", ");
  return said ? `${model.id} (${said})` : model.id;
}

function requests(found) {
  return Object.entries(found).map(([kind, number]) => `${format.count(number)} ${kind.replaceAll("_", " ")}`).join(", ");
}

function factList() {
  const list = h("dl", { class: "facts" });
  const pair = ([name]) => {
    const value = h("dd", {});
    return shown(h("div", {}, h("dt", {}, name), value), ([, said]) => setText(value, said));
  };
  return shown(list, (pairs) => keyed(list, pairs, ([name]) => name, pair));
}

function storyLine(each) {
  const change = h("span", { class: "change" });
  if (each.from) change.append(h("span", { class: "was" }, each.from), h("span", { class: "to", "aria-label": "to" }, "→"));
  change.append(stateMark(each.to));
  return h("li", { "data-to": each.to }, h("time", { class: "num", datetime: each.at, title: each.at }, format.clock(each.at)), change, h("span", { class: "why" }, whyOf(each)));
}
