// The live stream: server-sent events read by fetch, which can carry a token; taken up again by itself.

import { Refused, headers, refusal } from "./api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 5000;
const SILENCE_MS = 5000;

/** The blocks of a stream of server-sent events, as they come: {event, data, id}. */
async function* blocks(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      let end;
      let from = 0;
      while ((end = rest.indexOf("\n\n", from)) >= 0) {
        const block = { event: "", data: "", id: "" };
        for (const line of rest.slice(from, end).split("\n")) {
          const colon = line.indexOf(":");
          if (colon > 0) block[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
        }
        yield block;
        from = end + 2;
      }
      rest = rest.slice(from);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

export class Stream {
  /** `on.block(event, data)`, `on.state(state, error)`: connecting, live, waiting, or denied. */
  constructor(on) {
    this.on = on;
    this.lastId = null;
    this.retryAt = 0;
    this.running = false;
  }

  /** Follow until denied; `poke()` tries again at once. */
  async run() {
    if (this.running) return;
    this.running = true;
    let wait = FIRST_WAIT_MS;
    try {
      for (;;) {
        this.on.state("connecting");
        let error = null;
        try {
          await this.follow(() => (wait = FIRST_WAIT_MS));
        } catch (caught) {
          error = caught;
        }
        if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
          this.on.state("denied", error);
          return;
        }
        // Spread, so that a hundred open pages do not all come back in the same moment.
        const pause = wait * (0.75 + Math.random() / 2);
        this.retryAt = performance.now() + pause;
        this.on.state("waiting", error);
        await this.pause(pause);
        wait = Math.min(wait * 2, LONGEST_WAIT_MS);
      }
    } finally {
      this.running = false;
    }
  }

  pause(milliseconds) {
    return new Promise((resolve) => {
      this.wake = resolve;
      setTimeout(resolve, milliseconds);
    });
  }

  poke() {
    this.wake?.();
  }

  async follow(onFirst) {
    const abort = new AbortController();
    let watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
    try {
      const after = this.lastId === null ? "" : `?after=${this.lastId}`;
      const response = await fetch(`/api/v1/live${after}`, {
        headers: headers({ Accept: "text/event-stream" }),
        cache: "no-store",
        signal: abort.signal,
      });
      if (!response.ok) throw await refusal(response);
      for await (const block of blocks(response.body)) {
        clearTimeout(watchdog);
        watchdog = setTimeout(() => abort.abort(), SILENCE_MS);
        if (block.id) this.lastId = block.id;
        if (!block.event) continue;
        if (block.event === "hello") onFirst();
        this.on.block(block.event, JSON.parse(block.data));
      }
    } finally {
      clearTimeout(watchdog);
      abort.abort();
    }
  }
}
