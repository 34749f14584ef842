// What the page knows of the region: filled by the stream, read by the views.

import { History } from "./history.js";

const MOST_EVENTS = 1000;
const SAMPLE_MS = 900;

export class Store {
  constructor() {
    this.cells = new Map();
    this.events = [];
    this.region = null;
    this.hello = null;
    this.history = null;
    this.gateway = 0;
    this.heardAt = null;
    this.signals = [];
    this.list = [];
    this.version = 0;
  }

  /** The names of the figures that are kept over time. */
  figures() {
    const gateways = this.hello.gateways.map((_, number) => number);
    const own = this.hello.signals.filter((each) => each.origin !== "network").map((each) => each.name);
    return [...own, ...["pressure", "weight", "rtt_ms", "jitter_ms"].flatMap((name) => gateways.map((g) => `${name}@${g}`))];
  }

  takeHello(hello) {
    const other = !this.hello || this.hello.gateways.join() !== hello.gateways.join();
    this.hello = hello;
    this.signals = hello.signals;
    this.own = hello.signals.filter((each) => each.origin !== "network").map((each) => each.name);
    if (other) {
      this.cells.clear();
      this.history = null;
      this.gateway = 0;
    }
  }

  takeCells({ whole, facts, rows, gone }) {
    const { columns, facts: factNames } = this.hello;
    const seen = whole ? new Set() : null;
    for (const values of facts) {
      const cell = this.cell(values[0]);
      for (let at = 1; at < factNames.length; at++) cell[factNames[at]] = values[at];
      cell.text = `${cell.id} ${cell.site} ${cell.node} ${cell.address} ${cell.engine} ${cell.models.join(" ")}`.toLowerCase();
    }
    for (const values of rows) {
      const cell = this.cell(values[0]);
      for (let at = 1; at < columns.length; at++) cell[columns[at]] = values[at];
      seen?.add(values[0]);
    }
    if (seen) for (const id of this.cells.keys()) if (!seen.has(id)) this.cells.delete(id);
    for (const id of gone) this.cells.delete(id);
    this.list = [...this.cells.values()];
    this.version++;
  }

  cell(id) {
    let cell = this.cells.get(id);
    if (!cell) {
      cell = { id, node: "", site: "", address: "", engine: "", models: [], text: id, state: "", since: null, marks: [] };
      for (const name of ["pressure", "weight", "share", "rtt_ms", "jitter_ms"]) cell[name] = [];
      this.cells.set(id, cell);
    }
    return cell;
  }

  takeRegion(region) {
    this.region = region;
    const now = performance.timeOrigin + performance.now();
    this.history ??= new History(this.figures(), this.cells.size);
    const last = this.history.head < 0 ? -Infinity : this.history.times[this.history.head];
    if (now - last < SAMPLE_MS) return;
    if (now - last > 5 * SAMPLE_MS && last > 0) {
      this.history.gap(this.list.map((cell) => cell.past).filter(Boolean), last + SAMPLE_MS);
    }
    this.history.begin(now);
    for (const cell of this.list) {
      cell.past ??= this.history.row();
      const figures = this.own.map((name) => cell[name]);
      figures.push(...cell.pressure, ...cell.weight, ...cell.rtt_ms, ...cell.jitter_ms);
      this.history.write(cell.past, figures);
    }
  }

  /** Entries of the log, in any order; those that are known already are left out. */
  takeLog(entries) {
    for (const entry of entries) {
      const last = this.events.at(-1);
      if (!last || entry.id > last.id) this.events.push(entry);
      else if (!this.events.some((each) => each.id === entry.id)) {
        this.events.push(entry);
        this.events.sort((a, b) => a.id - b.id);
      }
      const cell = entry.kind === "state" ? this.cells.get(entry.cell) : null;
      // The mark must not wait for the row that will say the same.
      if (cell && entry.to) {
        cell.state = entry.to;
        cell.since = Date.parse(entry.at) / 1000;
        cell.cause = entry.to === "READY" ? "" : entry.cause;
      }
    }
    if (this.events.length > MOST_EVENTS) this.events.splice(0, this.events.length - MOST_EVENTS);
  }

  /** The controller's wall clock now, s: its own word, carried on by this machine's clock. */
  wall() {
    if (!this.region) return Date.now() / 1000;
    return Date.parse(this.region.at) / 1000 + (performance.now() - this.heardAt) / 1000;
  }

  stateCounts() {
    const counts = { FAILED: 0, DRAINING: 0, LOADING: 0, READY: 0, TERMINATED: 0 };
    for (const cell of this.list) if (cell.state in counts) counts[cell.state]++;
    return counts;
  }
}
