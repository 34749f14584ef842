// The account of a weight: every number between a cell's figures and what a gateway holds.

import { h, keyed, setAttribute, setText, shown } from "./dom.js";
import * as format from "./format.js";

const six = (value) => format.fixed(value, 6);

function figures(value, unit) {
  return value === null ? format.NONE : format.signal(value, unit);
}

function range(value, unit) {
  if (unit === "fraction") return `${Math.round(value * 100)} %`;
  const short = Number(value.toPrecision(4));
  return unit === "s" || unit === "ms" ? `${short} ${unit}` : `${short}`;
}

/** Show `explanation` (null = none) and the units of `signals`. */
export function account() {
  const body = h("tbody", {});
  const sum = h("td", { class: "num" });
  const quorum = h("span", { class: "muted" });
  const table = h(
    "table",
    { class: "plain account", "aria-label": "From figures to the mean" },
    h("thead", {}, h("tr", {}, [
      ["Signal", ""], ["Value", "num"], ["Range", "num wide"], ["Normalised", "num"], ["× share", "num wide"], ["= adds", "num"], ["", "wide"], ["Age", "num wide"],
    ].map(([title, kind]) => (title ? h("th", { scope: "col", class: kind }, title) : h("td", { class: kind }))))),
    body,
    h("tfoot", {}, h("tr", {}, h("th", { scope: "row" }, "Mean ", quorum), h("td"), h("td", { class: "wide" }), h("td"), h("td", { class: "wide" }), sum, h("td", { class: "wide" }), h("td", { class: "wide" }))),
  );
  const steps = h("dl", { class: "steps" });
  const none = h("p", { class: "empty" }, "Not scored yet: there is nothing to account for.");
  const box = h("div", { class: "account-box" }, h("div", { class: "plain-scroll", tabindex: "0", role: "region", "aria-label": "From figures to the mean" }, table), steps, none);
  return shown(box, (found, signals) => {
    table.parentElement.hidden = steps.hidden = !found;
    none.hidden = Boolean(found);
    if (!found) return;
    const units = new Map(signals.map((each) => [each.name, each]));
    keyed(body, found.signals, (each) => each.name, () => signalRow(units));
    setText(sum, six(found.smoothing.mean));
    setText(quorum, found.quorum ? "(a quorum of signals)" : "(no quorum of signals)");
    const lines = [...pressureSteps(found), ...found.weights.flatMap((term) => [...weightSteps(term)])];
    keyed(steps, lines.map((line, at) => [at, ...line]), ([at]) => at, stepLine);
  });
}

function signalRow(units) {
  const cells = ["th", ...Array(7).fill("td")].map((tag, at) => h(tag, { class: at === 0 ? "" : at === 6 ? "wide" : at === 2 || at === 4 || at === 7 ? "num wide" : "num", scope: at ? null : "row" }));
  const part = h("span", { class: "part" });
  cells[6].append(h("span", { class: "bar", "aria-hidden": "true" }, part));
  return shown(h("tr", {}, cells), (each) => {
    const { unit, meaning } = units.get(each.name) ?? { unit: "", meaning: "" };
    setText(cells[0], format.title(each.name));
    setAttribute(cells[0], "title", meaning);
    setText(cells[1], figures(each.raw, unit));
    setText(cells[2], `${range(each.low, unit)} to ${range(each.high, unit)}`);
    setText(cells[3], each.filled === null ? format.fixed(each.normalised, 4) : `${each.filled.toFixed(4)} *`);
    setAttribute(cells[3], "title", each.filled === null ? null : "not measured; the median of its pool stands in");
    setText(cells[4], each.weight.toFixed(4));
    setText(cells[5], each.contribution.toFixed(6));
    part.style.transform = `scaleX(${Math.min(1, each.contribution * 4)})`;
    setText(cells[7], format.age(each.age_s));
  });
}

function stepLine() {
  const name = h("dt");
  const how = h("dd", { class: "how" });
  const result = h("dd", { class: "num result" });
  return shown(h("div", {}, name, how, result), ([, title, said, value, strong]) => {
    setText(name, title);
    setText(how, said);
    setText(result, value);
    result.classList.toggle("strong", Boolean(strong));
  });
}

function* pressureSteps(found) {
  const { smoothing: smooth, error } = found;
  yield [
    "Smoothed",
    smooth.jumped ? "the mean as it is: nothing to smooth it with, or it jumped" : `${six(smooth.before)} + ${six(smooth.step)} × (${six(smooth.aim)} − ${six(smooth.before)})`,
    six(smooth.smoothed),
  ];
  yield ["Settled", settled(smooth), six(smooth.settled)];
  yield ["Base", base(smooth), six(smooth.base)];
  yield [
    "Errors",
    `${format.percent(error.estimate, 2)} of about ${error.samples.toFixed(0)} requests (by the ${error.source}), others ${format.percent(error.others, 2)}, chance ${format.percent(error.chance, 2)}; excess ${format.percent(error.excess, 2)}`,
    six(error.normalised),
  ];
  for (const term of found.early) {
    if (term.chart > 0 || term.alert) {
      yield ["Early warning", `${term.kind.replaceAll("_", " ")}: ${term.chart.toFixed(2)} of its limit${term.alert ? ", alert" : ""}`, ""];
    }
  }
  yield [
    "Pressure",
    `min(1, 1 − (1 − ${six(smooth.base)}) × (1 − ${six(error.normalised)}) + ${six(found.early_added)})`,
    six(found.pressure),
    true,
  ];
}

function settled(smooth) {
  if (smooth.taken) return "the smoothed one: further away than luck explains";
  if (smooth.shifted) return "the mean of seconds: further away than luck explains";
  return `${six(smooth.settled_before)} + ${six(smooth.gain)} × (${six(smooth.mean)} − ${six(smooth.settled_before)})`;
}

function base(smooth) {
  if (smooth.settled === null) return smooth.median === null ? "the middle of the scale" : "the median of its pool";
  if (!smooth.decayed) return "the settled one";
  return `${six(smooth.settled)} + ${six(smooth.decayed)} × (${six(smooth.median)} − ${six(smooth.settled)})`;
}

function* weightSteps(term) {
  if (term.weight === null) {
    yield [term.model, `no weight: ${term.decision}`, "0", true];
    return;
  }
  const power = `^ ${term.sharpness}`;
  yield [
    "Room",
    term.speed !== null
      ? `speed ${six(term.speed)} × (relief ${six(term.relief)} × health ${six(term.health)}) ${power} × ramp ${term.ramp}${reach(term)}; load ${six(term.measured)}, usual ${six(term.usual)}`
      : term.log_weight === null
      ? `headroom ${six(term.headroom)} ${power} × ramp ${term.ramp}${reach(term)}`
      : `exp(log-weight ${six(term.log_weight)}) × ramp ${term.ramp} × health ${six(term.health)} ${power}; last step ${six(term.step)}: measured ${six(term.measured)}, aim ${six(term.aim)}`,
    six(term.room),
  ];
  yield ["Target", `max(1, round(${term.max_weight} × room ${six(term.room)} / best ${six(term.best)}))`, `${term.target}`];
  yield [`Weight in ${term.model}`, decision(term), `${term.weight}`, true];
  if (term.would_be !== null) yield ["Without shadow", "it would be", `${term.would_be}`];
}

// What the path leaves, where it takes anything.
function reach(term) {
  if (term.reach === null || term.reach === 1) return "";
  return ` × reach ${six(term.reach)} (its path costs ${format.fixed(term.excess_ms, 1)} ms more)`;
}

function decision(term) {
  const before = term.before === null ? "it had none" : `it was ${term.before}`;
  if (term.decision === "limited") return `limited; ${before}, and one push makes ${term.least} to ${term.most} of it`;
  if (term.decision === "override") return `an operator set ${term.override}; ${before}`;
  return `${term.decision}; ${before}${term.reason ? `, pushed for: ${term.reason}` : ""}`;
}
