// The chat: a conversation and its composer. Answers go on while another conversation is open.

import { streamAnswer } from "./answer.js";
import { byId, h } from "./dom.js";
import { AnswerView, UserView } from "./message.js";
import { editSettings } from "./settings.js";
import { Sidebar } from "./sidebar.js";

const OPEN = "weft.open";
const SAVE_MS = 1000;
const TITLE_LETTERS = 48;
const NEAR_END_PX = 80;
const QUIET_MS = 1500;

function titleOf(text) {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length > TITLE_LETTERS ? `${line.slice(0, TITLE_LETTERS - 1)}…` : line;
}

export class Chat {
  constructor(store, poll) {
    this.store = store;
    this.poll = poll;
    this.running = new Map();  // id of a conversation: {controller, answer, saved, heard}
    this.views = [];
    this.stick = true;  // the end of the conversation is kept in view
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
      this.open(this.store.conversations.get(id) ?? this.store.create());
    });
    this.poll.addEventListener("status", () => this.draw());
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
    const conversation = this.conversation;
    const settings = await editSettings(conversation.settings);
    if (settings === null) return;
    conversation.settings = settings;
    this.store.keepSettings(settings);
    if (conversation.messages.length > 0) this.keep(conversation, false);
    this.refresh();
  }

  keep(conversation, changed = true) {
    const kept = this.store.save(conversation, changed);
    this.notice.hidden = kept;
    if (!kept) {
      this.notice.textContent =
        "This browser has no room left for this conversation: it is gone with this page. " +
        "Delete others to make room.";
    }
  }

  // ---- Talking ----

  send() {
    const text = this.entry.value;
    if (text.trim() === "" || this.running.has(this.conversation.id)) return;
    this.entry.value = "";
    this.fitEntry();
    this.say(text);
  }

  say(text) {
    const { conversation } = this;
    conversation.messages.push({ role: "user", content: text });
    if (!conversation.named && conversation.messages.length === 1) {
      conversation.title = titleOf(text);
    }
    this.answer(conversation);
  }

  // Another text in place of a message of the user; what followed it goes.
  edit(message, text) {
    const { conversation } = this;
    this.halt();
    conversation.messages.length = conversation.messages.indexOf(message);
    this.say(text);
  }

  again(message) {
    const { conversation } = this;
    this.halt();
    conversation.messages.length = conversation.messages.indexOf(message);
    this.answer(conversation);
  }

  async answer(conversation) {
    const answer = { role: "assistant", content: "", reasoning: "", note: "", error: "" };
    const controller = new AbortController();
    const state = { controller, answer, saved: performance.now(), heard: performance.now() };
    conversation.messages.push(answer);
    this.running.set(conversation.id, state);
    this.store.busy.add(conversation.id);
    this.keep(conversation);
    if (conversation === this.conversation) this.open(conversation);
    const quiet = setInterval(() => this.watch(conversation, state), 500);
    await streamAnswer(conversation, answer, controller.signal, () => {
      state.heard = performance.now();
      if (state.heard - state.saved > SAVE_MS && this.isKept(conversation)) {
        state.saved = state.heard;
        this.store.save(conversation, false);
      }
      if (conversation === this.conversation) this.draw();
    });
    clearInterval(quiet);
    // A new answer may have taken the place of one that was stopped; and who deletes a conversation
    // doesn't want it back.
    if (this.running.get(conversation.id) === state) {
      this.running.delete(conversation.id);
      this.store.busy.delete(conversation.id);
    }
    if (this.isKept(conversation)) this.keep(conversation);
    this.refresh();
    this.drawNow();  // With the buttons: who sees that it is over sees the last words, too.
  }

  isKept(conversation) {
    return this.store.conversations.get(conversation.id) === conversation;
  }

  // An answer that is quiet for long: perhaps the server's state says why.
  watch(conversation, state) {
    if (performance.now() - state.heard < QUIET_MS) return;
    this.poll.ask();
    if (conversation === this.conversation) this.draw();
  }

  hint(state) {
    if (performance.now() - state.heard < QUIET_MS) return "";
    const { data } = this.poll.latest;
    if (data?.state === "recovering") {
      return "A rank was lost. The cluster is coming back; the answer will go on.";
    }
    if (state.answer.content === "" && data?.waiting > 0) {
      return `Waiting: ${data.running} requests run, ${data.waiting} wait.`;
    }
    return "";
  }

  halt() {
    this.running.get(this.conversation.id)?.controller.abort();
  }

  // ---- Showing ----

  showAll() {
    const { messages } = this.conversation;
    this.views = messages.map((message) => message.role === "user"
      ? new UserView(message, (text) => this.edit(message, text))
      : new AnswerView(message, () => this.again(message)));
    const empty = h("p", { class: "empty" },
      "Ask something. Enter sends, Shift+Enter makes a new line, Esc stops an answer.");
    this.list.replaceChildren(...(messages.length === 0
      ? [empty] : this.views.map((view) => view.element)));
    for (const view of this.views) view.update(false);
    this.refresh();
    this.drawNow();
  }

  // The list and the buttons.
  refresh() {
    const streaming = this.running.has(this.conversation.id);
    this.sidebar.show(this.conversation.id, new Set(this.running.keys()));
    this.showButtons(streaming);
    this.list.setAttribute("aria-busy", String(streaming));
    byId("open-settings").classList.toggle("set",
      this.conversation.settings.system !== "" || this.conversation.settings.temperature !== null ||
      this.conversation.settings.maxTokens !== null);
  }

  showButtons(streaming) {
    const focused = document.activeElement;
    this.sendButton.hidden = streaming;
    this.stopButton.hidden = !streaming;
    if (focused === this.sendButton || focused === this.stopButton) this.entry.focus();
  }

  // Shows what has come, once a frame.
  draw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.drawNow();
    });
  }
  drawNow() {
    const state = this.running.get(this.conversation.id);
    const view = this.views.at(-1);
    if (view) view.update(state !== undefined, state ? this.hint(state) : "");
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
