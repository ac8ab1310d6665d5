// The chat: a conversation and its input field. Answers continue while another conversation is
// open.

import { streamAnswer } from "./answer.js";
import { Attachments } from "./attachments.js";
import { Bar } from "./bar.js";
import { byId, count, h, seconds } from "./dom.js";
import { loads } from "./library.js";
import { AnswerView, UserView } from "./message.js";
import { lossOf, missing } from "./ranks.js";
import { editSettings } from "./settings.js";
import { anySet } from "./settings_form.js";
import { Sidebar } from "./sidebar.js";
import { add, endOf, included, newerHalf, path, siblings } from "./tree.js";

const OPEN = "weft.open";
const SAVE_MS = 1000;
const TITLE_LETTERS = 48;
const NEAR_END_PX = 80;
const QUIET_MS = 1500;

function titleOf(text) {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length > TITLE_LETTERS ? `${line.slice(0, TITLE_LETTERS - 1)}…` : line;
}

// How far the prompt of a silent answer is computed.
function promptText(prompt) {
  if (!prompt) return "";
  const { processed, total, left_ms: left } = prompt;
  const rest = left >= 1000 ? `, about ${seconds(Math.round(left / 1000))} left` : "";
  return `Reading the prompt: ${count(processed)} of ${count(total)} tokens${rest}.`;
}

export class Chat {
  constructor(store, poll) {
    this.store = store;
    this.poll = poll;
    this.running = new Map();  // by conversation id: {controller, answer, saved, heard, prompt}
    this.views = [];  // views of the current branch, in order
    this.stick = true;  // keep the end of the conversation in view
    this.frame = 0;
    this.thread = byId("thread");
    this.list = byId("messages");
    this.entry = byId("entry");
    this.sendButton = byId("send");
    this.stopButton = byId("stop");
    this.endButton = byId("to-end");
    this.notice = byId("notice");
    this.sidebar = new Sidebar(store, {
      open: (id) => this.open(this.store.conversations.get(id)),
      fresh: () => {
        this.open(this.store.create());
        this.entry.focus();
      },
      removed: (conversation) => this.removed(conversation),
      restored: (conversation) => this.open(conversation),
    });
    this.attachments = new Attachments(byId("talk"));
    this.bar = new Bar((chosen) => this.choose({ ...this.conversation.settings, ...chosen }));
    this.listen();
    let last = null;
    try {
      last = sessionStorage.getItem(OPEN);
    } catch { /* the newest, then */ }
    this.open(store.conversations.get(last) ?? store.list()[0] ?? store.create());
  }

  listen() {
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.entry.addEventListener("keydown", (event) => {
      if (event.key === "ArrowUp" && this.entry.value === "") return this.editLast(event);
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.send();
    });
    this.entry.addEventListener("input", () => this.fitEntry());
    this.stopButton.addEventListener("click", () => this.halt());
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) this.halt();
    });
    this.thread.addEventListener("scroll", () => this.scrolled());
    new ResizeObserver(() => (this.stick ? this.toEnd() : this.scrolled())).observe(this.thread);
    this.endButton.addEventListener("click", () => this.toEnd());
    byId("open-settings").addEventListener("click", () => this.settings());
    this.store.addEventListener("elsewhere", ({ detail: id }) => {
      if (id !== this.conversation.id) return this.refresh();
      if (!this.store.conversations.has(id)) return this.open(this.store.create());
      this.showNew();
    });
    this.poll.addEventListener("status", () => this.draw());
    loads.addEventListener("loaded", () => {
      for (const view of this.views) view.libraryCame();
      if (this.stick) this.toEnd();
    });
    addEventListener("pagehide", () => {
      for (const id of this.running.keys()) {
        const conversation = this.store.conversations.get(id);
        if (conversation) this.store.save(conversation, false);
      }
    });
  }

  // ---- Conversations ----

  open(conversation) {
    this.conversation = conversation;
    try {
      sessionStorage.setItem(OPEN, conversation.id);
    } catch { /* the newest is opened next time */ }
    this.showAll();
    this.toEnd();
  }

  removed(conversation) {
    this.running.get(conversation.id)?.controller.abort();
    if (conversation === this.conversation) {
      this.open(this.store.list()[0] ?? this.store.create());
    } else {
      this.refresh();
    }
  }

  async settings() {
    const settings = await editSettings(this.conversation.settings);
    if (settings !== null) this.choose(settings);
  }

  choose(settings) {
    const { conversation } = this;
    conversation.settings = settings;
    conversation.edited = Date.now();
    this.store.keepSettings(settings);
    if (conversation.messages.length > 0) this.keep(conversation, false);
    this.refresh();
  }

  keep(conversation, changed = true) {
    const kept = this.store.save(conversation, changed);
    this.notice.hidden = kept;
    if (!kept) {
      this.notice.textContent =
        "The browser's storage is full: this conversation is lost when the page closes. " +
        "Delete others to make room.";
    }
  }

  // ---- Requests ----

  send() {
    const text = this.entry.value;
    const empty = text.trim() === "" && this.attachments.files.length === 0;
    if (empty || this.running.has(this.conversation.id)) return;
    this.entry.value = "";
    this.fitEntry();
    this.say(text, this.attachments.take(), this.conversation.current);
  }

  // parent: index of the previous message.
  say(text, files, parent) {
    const { conversation } = this;
    const message = { role: "user", content: text };
    if (files?.length > 0) message.files = files;
    const at = add(conversation, message, parent);
    if (!conversation.named && at === 0) {
      conversation.title = titleOf(text || files[0].name);
      conversation.edited = Date.now();
    }
    this.answer(conversation, at);
  }

  // Adds another version of a user message, which starts a new branch.
  edit({ files, parent }, text) {
    this.halt();
    this.say(text, files, parent);
  }

  // Requests another answer beside this one.
  again({ parent }) {
    this.halt();
    this.answer(this.conversation, parent);
  }

  // Shows the version `step` places from this one.
  turn(from, step) {
    const { conversation } = this;
    const { messages } = conversation;
    const places = siblings(conversation, messages.indexOf(from));
    const next = places[places.indexOf(messages.indexOf(from)) + step];
    if (next === undefined) return;
    const message = messages[next];
    conversation.current = endOf(conversation, next);
    this.keep(conversation, false);
    this.showAll();
    const view = this.views.find((one) => one.message === message);
    view?.element.scrollIntoView({ block: "nearest" });
    const buttons = [...(view?.element.querySelectorAll(".variants button") ?? [])];
    (buttons[step < 0 ? 0 : 1]?.disabled ? buttons[step < 0 ? 1 : 0]
      : buttons[step < 0 ? 0 : 1])?.focus();
  }

  // The messages of the current branch.
  shown(conversation) {
    return path(conversation).map((i) => conversation.messages[i]);
  }

  // Drops the older half of the model's messages; a failed answer is requested again.
  drop(answer) {
    const { conversation } = this;
    const shown = this.shown(conversation);
    const got = included(conversation, shown.slice(0, shown.indexOf(answer)));
    this.startFrom(newerHalf(got)?.id ?? conversation.from);
    if (answer.content === "") this.again(answer);
    else this.entry.focus();
  }

  // id: the first message that the model gets; "": all messages.
  startFrom(id) {
    const { conversation } = this;
    conversation.from = id;
    conversation.edited = Date.now();
    this.keep(conversation, false);
    this.showAll();
  }

  // If the input field is empty: edits the last user message.
  editLast(event) {
    const view = this.views.findLast(({ message }) => message.role === "user");
    if (!view || this.running.has(this.conversation.id)) return;
    event.preventDefault();
    view.showEditor();
  }

  // Requests an answer to the message at `parent`.
  async answer(conversation, parent) {
    const at = add(conversation,
      { role: "assistant", content: "", reasoning: "", note: "", error: "" }, parent);
    await this.stream(conversation, conversation.messages[at]);
  }

  // Continues the last answer of the open conversation.
  goOn(answer) {
    this.halt();
    this.stream(this.conversation, answer);
  }

  // Receives the last answer of the current branch, or the rest of it.
  async stream(conversation, answer) {
    const before = included(conversation, this.shown(conversation).slice(0, -1));
    const controller = new AbortController();
    const state = { controller, answer, saved: performance.now(), heard: performance.now() };
    this.running.set(conversation.id, state);
    this.store.busy.add(answer);
    this.keep(conversation);
    if (conversation === this.conversation) this.open(conversation);
    const quiet = setInterval(() => this.watch(conversation, state), 500);
    const { settings } = conversation;
    await streamAnswer(settings, before, answer, controller.signal, (prompt) => {
      state.prompt = prompt;
      state.heard = performance.now();
      answer.changed = Date.now();
      if (state.heard - state.saved > SAVE_MS && this.isKept(conversation)) {
        state.saved = state.heard;
        this.store.save(conversation, false);
      }
      if (conversation === this.conversation) this.draw();
    }, this.poll.latest.data?.context);
    clearInterval(quiet);
    // A newer answer may have replaced a stopped one, and a deleted conversation must stay deleted.
    if (this.running.get(conversation.id) === state) this.running.delete(conversation.id);
    this.store.busy.delete(answer);
    if (this.isKept(conversation)) this.keep(conversation);
    this.refresh();
    // together with the buttons, so that the end of an answer and its last text appear together
    this.drawNow();
  }

  isKept(conversation) {
    return this.store.conversations.get(conversation.id) === conversation;
  }

  // If an answer is silent for long, shows the server's state.
  watch(conversation, state) {
    if (performance.now() - state.heard < QUIET_MS) return;
    this.poll.ask();
    if (conversation === this.conversation) this.draw();
  }

  hint(state) {
    if (performance.now() - state.heard < QUIET_MS) return promptText(state.prompt);
    const { data } = this.poll.latest;
    if (data?.state === "recovering") {
      const losses = missing(data).map(lossOf).join(" ") || "A rank was lost.";
      return `${losses} The cluster is recovering; the answer will continue.`;
    }
    if (state.answer.content === "" && data?.waiting > 0) {
      return `Waiting: ${data.running} requests are running, ${data.waiting} are waiting.`;
    }
    return promptText(state.prompt);
  }

  halt() {
    this.running.get(this.conversation.id)?.controller.abort();
  }

  // ---- Display ----

  showAll() {
    const { messages } = this.conversation;
    this.views = path(this.conversation).map((at) => this.viewOf(at));
    const empty = h("p", { class: "empty" },
      "Ask something. Enter sends, Shift+Enter starts a new line, Esc stops an answer. " +
      "Drop files here to attach them.");
    const start = this.views.findIndex(({ message }) => message.id === this.conversation.from);
    const nodes = this.views.map((view) => view.element);
    this.from = this.conversation.from;
    if (start > 0) {
      for (const node of nodes.slice(0, start)) node.classList.add("dropped");
      nodes.splice(start, 0, h("p", { class: "start", role: "note" },
        "The model no longer sees the turns above. ",
        h("button", { type: "button", class: "small", onclick: () => this.startFrom("") },
          "Restore them")));
    }
    this.list.replaceChildren(...(messages.length === 0 ? [empty] : nodes));
    for (const view of this.views) view.update(false);
    this.refresh();
    this.drawNow();
  }

  viewOf(at) {
    const places = siblings(this.conversation, at);
    const message = this.conversation.messages[at];
    const variants = { at: places.indexOf(at), of: places.length,
      go: (step) => this.turn(message, step) };
    return message.role === "user"
      ? new UserView(message, { variants, edit: (text) => this.edit(message, text),
        closed: () => this.showNew() })
      : new AnswerView(message, { variants, again: () => this.again(message),
        goOn: () => this.goOn(message), isLast: () => this.isLast(message),
        drop: () => this.drop(message), canDrop: () => this.canDrop(message) });
  }

  isLast(answer) {
    return this.shown(this.conversation).at(-1) === answer;
  }

  // Whether this is the last answer and there are older turns to drop.
  canDrop(answer) {
    const shown = this.shown(this.conversation);
    return this.isLast(answer) &&
      newerHalf(included(this.conversation, shown.slice(0, -1))) !== null;
  }

  // Shows changes made by another window. A message that is being edited stays.
  showNew() {
    const { conversation } = this;
    const isShown = (at, i) => this.views[i]?.message === conversation.messages[at] &&
      this.views[i].variants === siblings(conversation, at).length;
    const places = path(conversation);
    const same = places.length === this.views.length && places.every(isShown) &&
      this.from === conversation.from;
    if (!same && !this.list.querySelector("textarea")) return this.showAll();
    const answer = this.running.get(conversation.id)?.answer;
    for (const view of this.views) if (view.message !== answer) view.update(false);
    this.refresh();
    this.draw();
  }

  // Updates the list, the bar and the buttons.
  refresh() {
    const streaming = this.running.has(this.conversation.id);
    this.sidebar.show(this.conversation.id, new Set(this.running.keys()));
    this.showButtons(streaming);
    this.list.setAttribute("aria-busy", String(streaming));
    this.bar.show(this.conversation);
    byId("open-settings").classList.toggle("set", anySet(this.conversation.settings));
  }

  showButtons(streaming) {
    const focused = document.activeElement;
    this.sendButton.hidden = streaming;
    this.stopButton.hidden = !streaming;
    if (focused === this.sendButton || focused === this.stopButton) this.entry.focus();
  }

  // Shows new text, once per frame.
  draw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.drawNow();
    });
  }
  drawNow() {
    const state = this.running.get(this.conversation.id);
    for (const view of this.views.slice(-1)) {
      const streaming = state !== undefined && view.message === state.answer;
      view.update(streaming, streaming ? this.hint(state) : "");
    }
    if (this.stick) this.toEnd();
    this.endButton.hidden = this.stick;
  }

  fitEntry() {
    this.entry.style.height = "auto";
    this.entry.style.height = `${this.entry.scrollHeight + 2}px`;
  }
  scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.thread;
    this.stick = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    this.endButton.hidden = this.stick;
  }
  toEnd() {
    this.stick = true;
    this.endButton.hidden = true;
    this.thread.scrollTop = this.thread.scrollHeight;
  }
}
