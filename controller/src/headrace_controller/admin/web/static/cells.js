// The table of cells: sort, filter, search. What is chosen stands in the address, so that it can be shared.

import { BY_KEY, COLUMNS, comparer } from "./columns.js";
import { h, setAttribute, setText } from "./dom.js";
import { count } from "./format.js";
import { SAID, STATES, shape } from "./states.js";
import { VirtualTable } from "./table.js";

const DEFAULT_SORT = "state";

export class CellsView {
  constructor(store, go) {
    this.store = store;
    this.go = go;
    this.order = [];
    this.table = new VirtualTable(store, COLUMNS, "Cells", {
      sort: (key) => this.sortBy(key),
      open: (cell) => go(`#/cell/${encodeURIComponent(cell.id)}`),
    });
    this.search = h("input", {
      type: "search", id: "search", placeholder: "Search id, node, model …", "aria-label": "Search cells",
      autocomplete: "off", spellcheck: "false", oninput: () => this.set("q", this.search.value),
    });
    this.states = new Map(STATES.map((state) => [state, this.stateButton(state)]));
    this.site = this.chooser("site", "All sites");
    this.model = this.chooser("model", "All models");
    this.marked = h("input", { type: "checkbox", onchange: () => this.set("marked", this.marked.checked ? "1" : "") });
    this.found = h("span", { class: "found num", role: "status" });
    this.held = h("span", { class: "held" });
    this.empty = h("p", { class: "empty", hidden: true });
    this.element = h(
      "div",
      { class: "view view-cells" },
      h("div", { class: "title-line" }, h("h1", {}, "Cells"), this.found),
      h(
        "div",
        { class: "filters", role: "search" },
        this.search,
        h("div", { class: "states", role: "group", "aria-label": "Only these states" }, [...this.states.values()]),
        h("label", { class: "choice" }, h("span", { class: "sr" }, "Site"), this.site),
        h("label", { class: "choice" }, h("span", { class: "sr" }, "Model"), this.model),
        h("label", { class: "choice" }, this.marked, "with marks only"),
      ),
      h(
        "p",
        { class: "howto" },
        "Longer bar = more pressure = less traffic. Share is what the weight means in its pool. ",
        "The order holds still while the pointer or the keyboard is in the table. ",
        this.held,
      ),
      this.table.element,
      this.empty,
    );
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && event.target === this.search && this.search.value) this.set("q", "");
    });
  }

  stateButton(state) {
    const number = h("span", { class: "num" });
    const button = h(
      "button",
      { type: "button", class: "toggle", "aria-pressed": "false", title: SAID[state], onclick: () => this.toggle(state) },
      shape(state), h("span", { class: "word" }, state), number,
    );
    button.number = number;
    return button;
  }

  chooser(name, all) {
    const select = h("select", { onchange: () => this.set(name, select.value) }, h("option", { value: "" }, all));
    select.all = all;
    return select;
  }

  fillChooser(select, names, chosen) {
    const wanted = names.join("\n");
    if (select.names !== wanted) {
      select.names = wanted;
      select.replaceChildren(h("option", { value: "" }, select.all), ...names.map((name) => h("option", { value: name }, name)));
    }
    if (select.value !== chosen) select.value = chosen;
  }

  /** Take up what the address says. */
  open(query) {
    this.query = query;
    if (document.activeElement !== this.search) this.search.value = query.get("q") ?? "";
    else if (!query.get("q")) this.search.value = "";
    this.marked.checked = query.get("marked") === "1";
    const sort = query.get("sort") ?? DEFAULT_SORT;
    const key = sort.replace(/^-/, "");
    this.column = BY_KEY.get(key) ?? BY_KEY.get(DEFAULT_SORT);
    this.direction = sort.startsWith("-") ? -1 : 1;
    this.table.showSort(this.column.key, this.direction);
    this.stale = true;
  }

  set(name, value) {
    const query = new URLSearchParams(this.query);
    if (value) query.set(name, value);
    else query.delete(name);
    const text = query.toString();
    this.go(`#/cells${text ? `?${text}` : ""}`, true);
  }

  toggle(state) {
    const chosen = new Set((this.query.get("state") ?? "").split(",").filter(Boolean));
    if (!chosen.delete(state)) chosen.add(state);
    this.set("state", [...chosen].join(","));
  }

  sortBy(key) {
    const column = BY_KEY.get(key);
    const direction = this.column === column ? -this.direction : column.first;
    this.set("sort", `${direction < 0 ? "-" : ""}${key}`);
  }

  show() {
    const { store, query } = this;
    const counts = store.stateCounts();
    const states = new Set((query.get("state") ?? "").split(",").filter(Boolean));
    for (const [state, button] of this.states) {
      setText(button.number, count(counts[state]));
      setAttribute(button, "aria-pressed", String(states.has(state)));
    }
    this.fillChooser(this.site, [...new Set(store.list.map((cell) => cell.site))].sort(), query.get("site") ?? "");
    this.fillChooser(this.model, (store.region?.pools ?? []).map((pool) => pool.model), query.get("model") ?? "");
    const matching = store.list.filter(this.filter(states));
    const held = !this.stale && (this.table.hasFocus || this.table.body.matches(":hover"));
    this.order = held ? this.keepOrder(matching) : matching.sort(comparer(this.column, this.direction, store));
    this.stale = false;
    setText(this.held, held ? "Held now." : "");
    setText(this.found, `${count(this.order.length)} of ${count(store.list.length)} cells`);
    this.table.show(this.order);
    this.showEmpty();
  }

  /** The cells of before in their order, those that came at the end. */
  keepOrder(matching) {
    const wanted = new Set(matching);
    const kept = this.order.filter((cell) => wanted.has(cell));
    for (const cell of kept) wanted.delete(cell);
    return [...kept, ...wanted];
  }

  filter(states) {
    const words = (this.query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const site = this.query.get("site");
    const model = this.query.get("model");
    const marked = this.query.get("marked") === "1";
    return (cell) =>
      (!states.size || states.has(cell.state)) &&
      (!site || cell.site === site) &&
      (!model || cell.models.includes(model)) &&
      (!marked || cell.marks.length > 0) &&
      words.every((word) => cell.text.includes(word));
  }

  showEmpty() {
    const none = this.order.length === 0;
    this.empty.hidden = !none;
    setAttribute(this.table.element, "data-empty", none ? "" : null);
    if (none) {
      setText(
        this.empty,
        this.store.list.length
          ? "No cell matches. Take a filter away, or clear the search with Escape."
          : "No cells yet. An agent shows its cells within a second of its start; on the GPU host, "
            + "`headrace-agent check` says what is missing.",
      );
    }
  }
}
