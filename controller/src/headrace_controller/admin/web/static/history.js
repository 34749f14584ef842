// The last minutes of every cell, kept in this browser: one ring of moments, one row of figures a cell.

const MOST_SAMPLES = 300;
const MOST_FIGURES = 12_000_000;

export class History {
  /** `names` are the figures of a cell, one a column. */
  constructor(names, cells) {
    this.names = names;
    this.at = new Map(names.map((name, number) => [name, number]));
    const room = Math.floor(MOST_FIGURES / (names.length * Math.max(1, cells)));
    this.length = Math.max(60, Math.min(MOST_SAMPLES, room));
    this.times = new Float64Array(this.length).fill(NaN);
    this.head = -1;
  }

  /** A cell's own row. */
  row() {
    return new Float32Array(this.length * this.names.length).fill(NaN);
  }

  /** Begin another moment, `time` in ms. */
  begin(time) {
    this.head = (this.head + 1) % this.length;
    this.times[this.head] = time;
  }

  /** Write a cell's figures of the moment; null is a gap. */
  write(row, figures) {
    let at = this.head;
    for (let column = 0; column < figures.length; column++, at += this.length) row[at] = figures[column] ?? NaN;
  }

  /** Mark a gap for all: nothing was heard meanwhile. */
  gap(rows, time) {
    this.begin(time);
    for (const row of rows) for (let at = this.head; at < row.length; at += this.length) row[at] = NaN;
  }

  /** `visit(time, value)` from the oldest moment to the newest. */
  each(row, name, visit) {
    const from = this.at.get(name) * this.length;
    for (let step = 1; step <= this.length; step++) {
      const at = (this.head + step) % this.length;
      if (!Number.isNaN(this.times[at])) visit(this.times[at], row[from + at]);
    }
  }
}
