// Polls /api/status while the page is visible and dispatches
//     "status" events with {data, error, ms}: the response, or the error.

import { call } from "./api.js";

const TIMEOUT_MS = 5000;

export class StatusPoll extends EventTarget {
  constructor() {
    super();
    this.periodMs = 5000;
    this.latest = { data: null, error: null };
    this.timer = 0;
    this.asking = false;
    document.addEventListener("visibilitychange", () => this.soon());
  }
  // Sets the polling interval; polls at once.
  every(ms) {
    this.periodMs = ms;
    this.soon();
  }
  soon() {
    clearTimeout(this.timer);
    if (!document.hidden) this.ask();
  }
  async ask() {
    if (this.asking) return;
    this.asking = true;
    try {
      const response = await call("api/status", { signal: AbortSignal.timeout(TIMEOUT_MS) });
      this.latest = { data: await response.json(), error: null, ms: performance.now() };
    } catch (error) {
      const words = error.name === "TimeoutError" ? "The server doesn't answer." : error.message;
      this.latest = { data: null, error: { message: words, status: error.status ?? 0 },
        ms: performance.now() };
    }
    this.asking = false;
    this.dispatchEvent(new CustomEvent("status", { detail: this.latest }));
    clearTimeout(this.timer);
    if (!document.hidden) this.timer = setTimeout(() => this.ask(), this.periodMs);
  }
}
