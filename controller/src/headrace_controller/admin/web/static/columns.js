// The columns of the table of cells: what each shows and how it sorts.

import { h, setAttribute, setText, shown } from "./dom.js";
import * as format from "./format.js";
import { marksList, pressureBar, severity, stateMark } from "./states.js";

/** Figures, right-aligned. */
function figure(text) {
  return () => {
    const box = h("div", { class: "num" });
    return shown(box, (cell, store) => setText(box, text(cell, store)));
  };
}

function words(text) {
  return () => {
    const box = h("div");
    return shown(box, (cell) => setText(box, text(cell)));
  };
}

function wrapped(make, value) {
  return () => {
    const inner = make();
    return shown(h("div", {}, inner), (cell, store) => inner.show(value(cell, store)));
  };
}

function nameCell() {
  const link = h("a", { class: "id", tabindex: "-1" });
  const mark = stateMark();
  const box = h("div", { class: "cell-name" }, mark, link);
  box.link = link;
  return shown(box, (cell) => {
    mark.show(cell.state);
    setText(link, cell.id);
    setAttribute(link, "href", `#/cell/${encodeURIComponent(cell.id)}`);
  });
}

const g = (name) => (cell, store) => cell[name][store.gateway] ?? null;

/**
 * `value(cell, store)` is what it sorts by, null last; `first` is the direction of the first click. The style
 * sheet drops columns where the page is narrow.
 */
export const COLUMNS = [
  { key: "id", label: "Cell", make: nameCell, value: (cell) => cell.id, first: 1, class: "c-id" },
  {
    key: "state", label: "State", make: wrapped(stateMark, (cell) => cell.state), value: severity, first: 1, class: "c-state",
  },
  { key: "site", label: "Site", make: words((cell) => cell.site), value: (cell) => cell.site, first: 1, class: "c-site" },
  {
    key: "pressure", label: "Pressure", said: "0 = idle, 1 = no room; the highest bars get the least traffic",
    make: wrapped(pressureBar, g("pressure")), value: g("pressure"), first: -1, class: "c-pressure",
  },
  {
    key: "weight", label: "Weight", said: "the integer that Envoy holds; 0 = gets nothing",
    make: figure((cell, store) => format.fixed(g("weight")(cell, store))), value: g("weight"), first: -1, class: "c-weight",
  },
  {
    key: "share", label: "Share", said: "of its pool's requests, by weight",
    make: figure((cell, store) => format.percent(g("share")(cell, store), 1)), value: g("share"), first: -1, class: "c-share",
  },
  {
    key: "ttft", label: "TTFT p95", said: "95th percentile of the time to the first token",
    make: figure((cell) => format.milliseconds(cell.ttft_p95_s)), value: (cell) => cell.ttft_p95_s, first: -1, class: "c-ttft",
  },
  {
    key: "queue", label: "Queue", said: "requests that wait in the engine",
    make: figure((cell) => format.fixed(cell.queue_depth)), value: (cell) => cell.queue_depth, first: -1, class: "c-small",
  },
  {
    key: "flight", label: "In flight", said: "requests that the engine has",
    make: figure((cell) => format.fixed(cell.in_flight)), value: (cell) => cell.in_flight, first: -1, class: "c-flight",
  },
  {
    key: "kv", label: "KV", said: "KV cache in use",
    make: figure((cell) => format.percent(cell.kv_fill)), value: (cell) => cell.kv_fill, first: -1, class: "c-small c-kv",
  },
  {
    key: "gpu", label: "GPU", said: "compute active: tensor pipe, else SM",
    make: figure((cell) => format.percent(cell.compute_active)), value: (cell) => cell.compute_active, first: -1, class: "c-small c-gpu",
  },
  {
    key: "errors", label: "Errors", said: "estimated failed share of its last requests",
    make: figure((cell) => format.percent(cell.errors, 1)), value: (cell) => cell.errors, first: -1, class: "c-errors",
  },
  {
    key: "rtt", label: "RTT", said: "round trip from its node to the gateway",
    make: figure((cell, store) => {
      const rtt = g("rtt_ms")(cell, store);
      return rtt === null ? format.NONE : `${rtt.toFixed(1)} ms`;
    }),
    value: g("rtt_ms"), first: -1, class: "c-rtt",
  },
  {
    key: "age", label: "Heard", said: "since its agent's last sign of life",
    make: figure((cell) => format.age(cell.age)), value: (cell) => cell.age, first: -1, class: "c-age",
  },
  {
    key: "marks", label: "Marks", said: "fallbacks, early warnings and what operators have set",
    make: wrapped(marksList, (cell) => cell.marks), value: (cell) => cell.marks.join(), first: -1, class: "c-marks",
  },
];

export const BY_KEY = new Map(COLUMNS.map((column) => [column.key, column]));

/** Compare two cells by a column; what is not known comes last either way, and ties go by id. */
export function comparer(column, direction, store) {
  return (a, b) => {
    const x = column.value(a, store);
    const y = column.value(b, store);
    const noX = x === null || x === undefined;
    const noY = y === null || y === undefined;
    if (noX || noY) return noX === noY ? (a.id < b.id ? -1 : 1) : noX ? 1 : -1;
    if (x === y) {
      // Within a state the most pressed comes first.
      if (column.key === "state") {
        const more = (b.pressure[store.gateway] ?? -1) - (a.pressure[store.gateway] ?? -1);
        if (more) return more;
      }
      return a.id < b.id ? -1 : 1;
    }
    return (x < y ? -1 : 1) * direction;
  };
}
