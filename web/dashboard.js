// The dashboard: shows /api/status. Absent members are not shown.

import { bar, histogram, layoutPicture, legend, lineChart } from "./charts.js";
import { askForKey } from "./settings.js";
import { bytes, count, h, isNumber, rate, seconds } from "./dom.js";
import { departures, lossOf, missing, stateOf, TONES } from "./ranks.js";

const SPAN_MS = 5 * 60_000 - 1000;
const LONGEST_GAP_MS = 12_000;  // between two samples; a longer time is a gap

// Token rates over the last minutes, from counters.
class History {
  constructor() {
    this.samples = [];
    this.points = [];
    this.promptRate = null;
  }
  add(ms, tokens) {
    if (!isNumber(tokens?.generated)) return;
    const last = this.samples.at(-1);
    this.samples.push({ ms, generated: tokens.generated, prompt: tokens.prompt ?? 0 });
    while (this.samples.length > 2 && this.samples[0].ms < ms - SPAN_MS) this.samples.shift();
    while (this.points.length > 0 && this.points[0].at < ms - SPAN_MS) this.points.shift();
    if (!last) return;
    const spent = (ms - last.ms) / 1000;
    const restarted = tokens.generated < last.generated;
    if (restarted || ms - last.ms > LONGEST_GAP_MS) {
      this.points.push({ at: ms, value: null });
    } else if (spent > 0) {
      this.points.push({ at: ms, value: (tokens.generated - last.generated) / spent });
      this.promptRate = (tokens.prompt - last.prompt) / spent;
    }
  }
  gap(ms) {
    if (this.points.at(-1)?.value !== null) this.points.push({ at: ms, value: null });
    this.samples.length = 0;
    this.promptRate = null;
  }
  get rate() {
    return this.points.at(-1)?.value ?? null;
  }
}

function figure(name, value, ...more) {
  return h("div", { class: "figure" }, h("h3", {}, name), h("p", { class: "value" }, value),
    ...more);
}

const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(1)} %` : "–");

function speedPanel(status, history) {
  const now = history.points.at(-1)?.at ?? 0;
  const shown = history.points.filter((point) => point.value !== null);
  const highest = Math.max(1, ...shown.map((point) => point.value));
  const step = 10 ** Math.floor(Math.log10(highest));
  const most = Math.ceil(highest / step) * step;
  const minutes = Math.max(1, Math.ceil((now - (history.points[0]?.at ?? now)) / 60_000));
  const words = [];
  if (isNumber(history.promptRate)) words.push(`${rate(history.promptRate)} prompt tok/s`);
  if (status.steps?.count > 0) {
    words.push(`${seconds(status.seconds?.steps / status.steps.count)} a step`,
      `${(status.steps.rows / status.steps.count).toFixed(1)} rows a step`);
  }
  return [h("h3", {}, "Tokens per second"),
    h("p", { class: "value" }, history.rate === null ? "–" : rate(history.rate)),
    h("p", { class: "dim" }, words.join(" · ")),
    h("div", { class: "plot" }, h("span", { class: "top-label" }, count(most)),
      lineChart(history.points, minutes * 60_000, now, most,
        `Tokens per second over the last ${minutes} min`)),
    h("p", { class: "axis" }, h("span", {}, `${minutes} min ago`), h("span", {}, "now"))];
}

function figures(status) {
  const list = [];
  const { running, waiting, max_seqs: most, kv_pages: pages, prefix_cache: prefix,
    prompts_left: prompts } = status;
  if (isNumber(running)) {
    const parts = [{ value: running, tone: "used", label: `${running} running` }];
    list.push(figure("Requests", `${running} running`,
      isNumber(most) ? bar(parts, most, `${running} of ${most}`) : null,
      h("p", { class: "dim" }, `${count(waiting ?? 0)} waiting` +
        (isNumber(most) ? `, room for ${count(most)}` : "")),
      prompts?.tokens > 0 ? h("p", { class: "dim" }, `${count(prompts.tokens)} prompt tokens left` +
        (isNumber(prompts.seconds) ? `, about ${seconds(prompts.seconds)}` : "")) : null));
  }
  if (isNumber(pages?.all)) {
    const used = pages.all - pages.free - pages.idle;
    const parts = [{ value: used, tone: "used", label: `${count(used)} in use` },
      { value: pages.idle, tone: "idle", label: `${count(pages.idle)} cached` },
      { value: 0, tone: "free", label: `${count(pages.free)} free` }];
    list.push(figure("KV pages", `${percent(used, pages.all)} in use`,
      bar(parts, pages.all, `${used} of ${pages.all} pages in use, ${pages.idle} cached`),
      legend(parts)));
  }
  if (isNumber(prefix?.asked_tokens)) {
    list.push(figure("Prefix cache", `${percent(prefix.hit_tokens, prefix.asked_tokens)} hits`,
      bar([{ value: prefix.hit_tokens, tone: "idle", label: "hits" }], prefix.asked_tokens,
        "Share of prompt tokens found in the cache"),
      h("p", { class: "dim" },
        `${count(prefix.hit_tokens)} of ${count(prefix.asked_tokens)} prompt tokens`)));
  }
  const guesses = status.speculation;
  if (guesses?.drafted > 0) {
    list.push(figure("Accepted draft tokens", percent(guesses.accepted, guesses.drafted),
      h("p", { class: "dim" }, `${count(guesses.accepted)} of ${count(guesses.drafted)} tokens`)));
  }
  if (isNumber(status.requests?.ended)) {
    const { ended, failed, cancelled } = status.requests;
    list.push(figure("Answered", count(ended), h("p", { class: "dim" },
      `${count(failed)} failed, ${count(cancelled)} cancelled` +
      (status.preemptions > 0 ? `, ${count(status.preemptions)} preempted` : "")),
      h("p", { class: "dim" },
        `${count(status.tokens?.prompt)} prompt tokens, ` +
        `${count(status.tokens?.generated)} generated`)));
  }
  return list;
}

// KV cache memory is reserved at the start and becomes resident as it is used.
function rankMemory(rank) {
  if (!isNumber(rank.rss_bytes) && !isNumber(rank.weight_bytes)) return [];
  const weights = rank.weight_bytes ?? 0;
  const kv = rank.kv_bytes ?? 0;
  const resident = Math.max(rank.rss_bytes ?? 0, weights);
  const all = Math.max(resident, weights + kv);
  const parts = [{ value: weights, tone: "used", label: `weights ${bytes(weights)}` }];
  if (resident < weights + kv) {
    parts.push({ value: resident - weights, tone: "idle",
      label: `KV and other ${bytes(resident - weights)}` });
    parts.push({ value: 0, tone: "free", label: `room for KV up to ${bytes(kv)}` });
  } else {
    parts.push({ value: kv, tone: "idle", label: `KV ${bytes(kv)}` });
    parts.push({ value: resident - weights - kv, tone: "other",
      label: `other ${bytes(resident - weights - kv)}` });
  }
  return [h("h4", {}, "Memory ", h("span", {}, bytes(resident))),
    bar(parts, all, `Memory: ${parts.map((part) => part.label).join(", ")}`), legend(parts)];
}

function rankTime(rank) {
  if (!(rank.step_s > 0) || !isNumber(rank.wait_s)) return [];
  const wait = Math.min(rank.wait_s, rank.step_s);
  const parts = [
    { value: rank.step_s - wait, tone: "used",
      label: `computing ${percent(rank.step_s - wait, rank.step_s)}` },
    { value: wait, tone: "wait", label: `waiting ${percent(wait, rank.step_s)}` }];
  return [h("h4", {}, "Time in steps"),
    bar(parts, rank.step_s, parts.map((part) => part.label).join(", ")), legend(parts)];
}

// The transport between ranks; "" for a single rank.
const wireOf = ({ transport }) => (transport && transport !== "none" ? transport : "");

function rankTile(rank, status, history) {
  const state = stateOf(rank);
  const facts = [];
  if (isNumber(rank.tok_s) || (state === "" && history.rate !== null)) {
    facts.push(`${rate(rank.tok_s ?? history.rate)} tok/s`);
  }
  if (isNumber(rank.power_w)) facts.push(`${rate(rank.power_w)} W`);
  if (isNumber(rank.load_s)) facts.push(`loaded in ${seconds(rank.load_s)}`);
  return h("li", { class: state ? `tile ${rank.state}` : "tile" },
    h("h3", {}, h("span", { class: `dot ${TONES[rank.state] ?? ""}` }),
      h("span", { class: "name" }, `Rank ${rank.rank}`),
      h("span", { class: "host" }, rank.host ?? ""),
      h("span", { class: "state" }, state || (rank.transport ?? wireOf(status)))),
    state && rank.why ? h("p", { class: "why" }, rank.why) : null,
    rank.share ? h("p", {}, rank.share) : null, ...rankMemory(rank), ...rankTime(rank),
    facts.length > 0 ? h("p", { class: "dim" }, facts.join(" · ")) : null);
}

function headline(status) {
  const { layout } = status;
  const facts = [["Model", status.model], ["State", status.state]];
  if (layout) {
    const words = [`tp ${layout.tp}`, `pp ${layout.pp}`];
    if (layout.ep > 1) words.push(`ep ${layout.ep}`);
    const split = Array.isArray(layout.split) ? layout.split.join(",") : layout.split;
    if (split) words.push(`split ${split}`);
    facts.push(["Layout", words.join(" · ")]);
  }
  if (wireOf(status)) facts.push(["Between ranks", wireOf(status)]);
  if (isNumber(status.context)) facts.push(["Context", `${count(status.context)} tokens`]);
  if (isNumber(status.uptime_s)) facts.push(["Up for", seconds(Math.floor(status.uptime_s))]);
  if (status.version) facts.push(["Weft", status.version]);
  return h("dl", { class: "facts" }, ...facts.map(([name, value]) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, value ?? "?"))));
}

const timeText = (unix) => h("time", {}, new Date(unix * 1000).toLocaleTimeString());

function eventList(status) {
  const recoveries = (status.recoveries ?? []).map((event) => {
    const lost = (event.lost_ranks ?? []).join(", ");
    const words = event.text || `lost rank ${lost}; ${event.ranks} ranks continue`;
    const pause = isNumber(event.seconds) ? `, after ${seconds(event.seconds)}: ` : ": ";
    const head = h("strong", {}, `Recovery, epoch ${event.epoch}`);
    const back = isNumber(event.back_s) ? [timeText(event.back_s), " "] : [];
    return h("li", { class: "warn" }, ...back, head, pause, words);
  });
  const timeOf = (event) => (isNumber(event.time_s) ? timeText(event.time_s) : null);
  const errors = (status.errors ?? []).map((event) =>
    h("li", { class: "bad" }, timeOf(event), ` ${event.text}`));
  const all = [...errors.reverse(), ...recoveries.reverse()].slice(0, 50);
  return all.length > 0 ? h("ul", { class: "events" }, ...all)
    : h("p", { class: "dim" }, "No lost ranks and no errors.");
}

// A problem that the server reports.
function troubleOf(status) {
  if (status.error) return { message: status.error };
  if (status.state === "draining") {
    return { message: "The server is shutting down; running answers may finish.", passing: true };
  }
  const losses = missing(status).map(lossOf);
  if (losses.length === 0 && status.state !== "recovering") return null;
  if (losses.length === 0) losses.push(status.loss?.text ?? "A rank was lost.");
  return { message: `${losses.join(" ")} The cluster is recovering; answers will continue.`,
    passing: true };
}

export class Dashboard {
  constructor(root, poll) {
    this.root = root;
    this.poll = poll;
    this.history = new History();
    this.panels = new Map();
    this.drawn = new Map();  // data of each panel, to redraw only what has changed
    this.trouble = h("div", { class: "trouble", role: "alert", hidden: true });
    root.append(h("h2", { class: "unseen" }, "Dashboard"), this.trouble);
    for (const name of ["head", "speed", "figures", "layout", "sync", "ranks", "events"]) {
      const panel = h("section", { class: `panel ${name}`, hidden: true });
      this.panels.set(name, panel);
      root.append(panel);
    }
    poll.addEventListener("status", ({ detail }) => this.take(detail));
    addEventListener("hashchange", () => this.draw());
  }

  take({ data, error, ms }) {
    if (data) this.history.add(ms, data.tokens);
    else this.history.gap(ms);
    this.showTrouble(error ?? troubleOf(data));
    this.root.classList.toggle("stale", error !== null);
    if (data) this.status = data;
    this.known = data !== null;
    this.draw();
  }

  showTrouble(error) {
    this.trouble.hidden = error === null;
    this.trouble.classList.toggle("passing", error?.passing === true);
    if (error === null || this.trouble.dataset.words === error.message) return;
    this.trouble.dataset.words = error.message;
    const parts = error.status === 0
      ? [h("strong", {}, "Server not reachable. "), "Retrying every second."]
      : [error.message];
    if (error.status === 401) {
      parts.push(h("button", { type: "button", onclick: async () => {
        if (await askForKey(error.message)) this.poll.soon();
      } }, "Enter a key"));
    }
    this.trouble.replaceChildren(...parts);
  }

  draw() {
    const { status, history } = this;
    if (!status || this.root.hidden) return;
    const said = Array.isArray(status.ranks) ? status.ranks : [];
    const ranks = this.known ? said : said.map((rank) => ({ ...rank, state: "unknown" }));
    const shown = this.known ? status : { ...status, state: "not known" };
    this.panel("head", [shown.model, shown.state, shown.layout, Math.floor(shown.uptime_s)],
      () => [headline(shown)]);
    this.panel("speed", null, () => speedPanel(status, history));
    this.panel("figures", null, () => figures(status));
    this.panel("layout", ranks.length > 0 && ranks.map((r) => [r.rank, r.host, r.stage, r.state]),
      () => [h("h3", {}, "Layout"),
        h("div", { class: "wide", tabindex: "0" },
          layoutPicture(ranks, wireOf(status)))]);
    const gone = departures(status);
    this.panel("ranks", Array.isArray(status.ranks) && [ranks, gone, history.rate], () =>
      [h("h3", {}, "Ranks"), ...gone.map((words) => h("p", { class: "gone" }, words)),
        ranks.length === 0
        ? h("p", { class: "dim" }, "No rank has reported yet; ranks report while they work.")
        : h("ul", { class: "tiles" }, ...ranks.map((rank) => rankTile(rank, status, history)))]);
    const { bounds, counts } = status.sync_us ?? {};
    this.panel("sync", bounds?.length > 0 && (counts?.some((n) => n > 0) ?? false) && counts, () =>
      [h("h3", {}, "Time per synchronization"), histogram(bounds, counts)]);
    this.panel("events", [status.recoveries, status.errors], () =>
      [h("h3", {}, "Errors and recoveries"), eventList(status)]);
  }

  // data: the panel's data; it is redrawn when they change (null: always). false: hidden.
  panel(name, data, build) {
    const panel = this.panels.get(name);
    panel.hidden = data === false;
    const key = data === null ? null : JSON.stringify(data);
    if (data === false || (key !== null && this.drawn.get(name) === key)) return;
    this.drawn.set(name, key);
    panel.replaceChildren(...build());
  }
}
