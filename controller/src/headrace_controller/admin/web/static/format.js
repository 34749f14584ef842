// Numbers as people read them: with units, few digits, and a dash for what was not measured.

export const NONE = "–";
const known = (value) => value !== null && value !== undefined && Number.isFinite(value);

export function fixed(value, digits = 0) {
  return known(value) ? value.toFixed(digits) : NONE;
}

export function percent(value, digits = 0) {
  return known(value) ? `${(value * 100).toFixed(digits)} %` : NONE;
}

/** Milliseconds, from seconds; seconds where that is shorter. */
export function milliseconds(seconds) {
  if (!known(seconds)) return NONE;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`;
}

/** An age or a span, in the two units that matter. */
export function span(seconds) {
  if (!known(seconds)) return NONE;
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

export function age(seconds) {
  if (!known(seconds)) return NONE;
  return seconds < 10 ? `${seconds.toFixed(1)} s` : span(seconds);
}

export function count(value) {
  return known(value) ? Math.round(value).toLocaleString("en-GB") : NONE;
}

export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

const TITLES = {
  queue_depth: "Queue", ttft_p95_s: "TTFT p95", error_rate: "Errors", kv_fill: "KV cache", gpu_util: "GPU busy",
  vram_util: "VRAM", compute_active: "Compute active", memory_bw_util: "Memory bandwidth", rtt_ms: "RTT", jitter_ms: "Jitter",
};

/** What a signal is called on the page. */
export function title(name) {
  return TITLES[name] ?? name;
}

/** A figure of a signal, by its unit in the catalogue. */
export function signal(value, unit) {
  if (!known(value)) return NONE;
  if (unit === "fraction") return percent(value, value < 0.1 ? 1 : 0);
  if (unit === "s") return milliseconds(value);
  if (unit === "ms") return `${value.toFixed(value < 10 ? 2 : 1)} ms`;
  return `${value.toFixed(value % 1 ? 1 : 0)}`;
}

export function path(rtt, jitter) {
  if (!known(rtt)) return "not measured";
  const digits = rtt < 10 ? 2 : 1;
  return known(jitter) ? `${rtt.toFixed(digits)} ± ${jitter.toFixed(digits)} ms` : `${rtt.toFixed(digits)} ms`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** The time of day of an ISO time, in the reader's zone; with the day where it is not today. */
export function clock(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return iso;
  const today = at.toDateString() === new Date().toDateString();
  return today ? CLOCK.format(at) : `${DAY.format(at)} ${CLOCK.format(at)}`;
}
