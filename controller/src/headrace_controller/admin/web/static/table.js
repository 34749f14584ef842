// A table that draws the rows in sight and no others, each changed in place.

import { h, setAttribute } from "./dom.js";

const SPARE = 6;
const LONGEST_SCREEN = 60;

export class VirtualTable {
  /** `columns` as columns.js has them; `on.sort(key)`, `on.open(cell)`. */
  constructor(store, columns, label, on) {
    this.store = store;
    this.columns = columns;
    this.on = on;
    this.cells = [];
    this.rows = new Map();
    this.active = 0;
    this.heads = new Map(columns.map((column) => [column.key, this.makeHead(column)]));
    // One cell each: to span columns that the style sheet drops would bring them back.
    this.above = h("tr", { class: "space", "aria-hidden": "true" }, h("td"));
    this.below = h("tr", { class: "space", "aria-hidden": "true" }, h("td"));
    this.body = h("tbody", {}, this.above, this.below);
    this.table = h(
      "table",
      { class: "cells", "aria-label": label },
      h("colgroup", {}, columns.map((column) => h("col", { class: column.class }))),
      h("thead", {}, h("tr", { "aria-rowindex": 1 }, [...this.heads.values()])),
      this.body,
    );
    this.element = h("div", { class: "table-scroll", tabindex: "0", role: "region", "aria-label": label }, this.table);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.body.addEventListener("click", (event) => this.clicked(event));
    this.body.addEventListener("focusin", (event) => this.focused(event));
    this.element.addEventListener("keydown", (event) => this.pressed(event));
  }

  makeHead(column) {
    const arrow = h("span", { class: "arrow", "aria-hidden": "true" });
    const button = h(
      "button",
      { type: "button", title: column.said ?? null, onclick: () => this.on.sort(column.key) },
      column.label,
      arrow,
    );
    return h("th", { scope: "col", class: column.class }, button);
  }

  showSort(key, direction) {
    for (const [name, head] of this.heads) {
      setAttribute(head, "aria-sort", name !== key ? null : direction > 0 ? "ascending" : "descending");
    }
  }

  /** Show these cells, in this order. */
  show(cells) {
    this.cells = cells;
    setAttribute(this.table, "aria-rowcount", cells.length + 1);
    this.draw();
  }

  rowHeight() {
    // Fixed by the style sheet; read once it is known.
    this.height ||= parseFloat(getComputedStyle(this.element).getPropertyValue("--row-height")) || 30;
    return this.height;
  }

  draw() {
    const height = this.rowHeight();
    const from = Math.max(0, Math.floor(this.element.scrollTop / height) - SPARE);
    const fits = Math.min(LONGEST_SCREEN, Math.ceil((this.element.clientHeight || 600) / height));
    const until = Math.min(this.cells.length, from + fits + 2 * SPARE);
    const spare = [];
    for (const [index, row] of this.rows) {
      if (index < from || index >= until) {
        this.rows.delete(index);
        spare.push(row);
      }
    }
    for (let index = from; index < until; index++) {
      let row = this.rows.get(index);
      if (!row) {
        row = spare.pop() ?? this.makeRow();
        row.index = index;
        this.rows.set(index, row);
        setAttribute(row, "aria-rowindex", index + 2);
        this.body.insertBefore(row, this.rows.get(index + 1) ?? this.after(index));
      }
      this.fill(row, this.cells[index]);
    }
    for (const row of spare) row.remove();
    this.above.firstChild.style.height = `${from * height}px`;
    this.below.firstChild.style.height = `${(this.cells.length - until) * height}px`;
    this.rove();
  }

  after(index) {
    let next = null;
    for (const [at, row] of this.rows) if (at > index && (!next || at < next.index) && row.isConnected) next = row;
    return next ?? this.below;
  }

  makeRow() {
    const row = h("tr", {});
    row.parts = this.columns.map((column, at) => {
      const part = column.make();
      // The row's height is the box's own, whatever is in it.
      part.classList.add("box");
      row.append(h(at ? "td" : "th", { class: column.class, scope: at ? null : "row" }, part));
      return part;
    });
    return row;
  }

  fill(row, cell) {
    row.cell = cell;
    setAttribute(row, "data-state", cell.state);
    for (const part of row.parts) part.show(cell, this.store);
  }

  /** One row's link can be reached with Tab; the arrows go on from there. */
  rove() {
    const shown = this.rows.has(this.active) ? this.active : Math.min(...this.rows.keys());
    for (const [index, row] of this.rows) setAttribute(row.parts[0].link, "tabindex", index === shown ? 0 : -1);
  }

  get hasFocus() {
    return this.body.contains(document.activeElement);
  }

  focused(event) {
    const row = event.target.closest("tr");
    if (row?.index !== undefined) {
      this.active = row.index;
      this.rove();
    }
  }

  clicked(event) {
    if (event.target.closest("a") || getSelection()?.toString()) return;
    const row = event.target.closest("tr");
    if (row?.cell) this.on.open(row.cell);
  }

  pressed(event) {
    if (!this.hasFocus || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight()) - 2);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined || !this.cells.length) return;
    event.preventDefault();
    this.go(Math.min(this.cells.length - 1, Math.max(0, this.active + step)));
  }

  /** Bring a row into sight and its link into focus. */
  go(index) {
    this.active = index;
    const height = this.rowHeight();
    const head = this.heads.values().next().value.offsetHeight;
    const room = this.element.clientHeight - head - height;
    const top = index * height;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top > this.element.scrollTop + room) this.element.scrollTop = top - room;
    this.draw();
    this.rows.get(index)?.parts[0].link.focus({ preventScroll: true });
  }
}
