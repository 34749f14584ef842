// What is asked of the controller. The token stays in this tab and goes nowhere else.

const KEY = "headrace.token";

export function token() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function setToken(text) {
  try {
    if (text) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  } catch {
    // Without storage the page asks again after every reload.
  }
}

/** The controller said no; `status` is HTTP's, the message is its own. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function headers(more = {}) {
  const secret = token();
  return secret ? { ...more, Authorization: `Bearer ${secret}` } : more;
}

/** The error of an answer that is not OK. */
export async function refusal(response) {
  let said = "";
  try {
    said = (await response.json()).error ?? "";
  } catch {
    // Something before the controller may answer without JSON.
  }
  return new Refused(response.status, said || `the controller answered ${response.status}`);
}

async function ask(path, options) {
  const response = await fetch(path, { ...options, cache: "no-store", signal: AbortSignal.timeout(10_000) });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

export function get(path) {
  return ask(path, { headers: headers() });
}

export function post(path, body) {
  return ask(path, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
  });
}

export function cellPath(id, rest = "") {
  return `/api/v1/cells/${encodeURIComponent(id)}${rest}`;
}
