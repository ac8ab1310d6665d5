// Conversations, kept in the browser: each under a key of its own, so that two windows that talk
// don't overwrite each other's.
//
//     {id, title, named, created, changed, settings: {system, temperature, maxTokens},
//      messages: [{role: "user", content},
//                 {role: "assistant", content, reasoning, stats, note, error}]}
//
// `named`: the user gave the title. Everything that is read is checked: what another version of
// this page, or anybody, has left there must not break it.

import { isNumber } from "./dom.js";

const PREFIX = "weft.conversation.";
const SETTINGS = "weft.settings";

const text = (value) => (typeof value === "string" ? value : "");

function checkedSettings(value) {
  return {
    system: text(value?.system),
    temperature: isNumber(value?.temperature) ? value.temperature : null,
    maxTokens: Number.isInteger(value?.maxTokens) ? value.maxTokens : null,
  };
}

function checkedMessage(value) {
  if (value?.role !== "user" && value?.role !== "assistant") return null;
  const message = { role: value.role, content: text(value.content) };
  if (value.role === "assistant") {
    message.reasoning = text(value.reasoning);
    message.note = text(value.note);
    message.error = text(value.error);
    const { tokens, first, perSecond } = value.stats ?? {};
    if (isNumber(tokens)) message.stats = { tokens, first, perSecond };
  }
  return message;
}

function checkedConversation(id, value) {
  if (!Array.isArray(value?.messages)) return null;
  return {
    id,
    title: text(value.title) || "Conversation",
    named: value.named === true,
    created: isNumber(value.created) ? value.created : 0,
    changed: isNumber(value.changed) ? value.changed : 0,
    settings: checkedSettings(value.settings),
    messages: value.messages.map(checkedMessage).filter((message) => message !== null),
  };
}

export class Store extends EventTarget {
  constructor() {
    super();
    this.conversations = new Map();
    this.busy = new Set();  // ids that this window writes just now
    try {
      for (let i = 0; i < localStorage.length; ++i) this.read(localStorage.key(i));
    } catch { /* no storage: conversations live as long as the page */ }
    addEventListener("storage", (event) => {
      if (!event.key?.startsWith(PREFIX)) return;
      const id = event.key.slice(PREFIX.length);
      if (this.busy.has(id)) return;
      this.conversations.delete(id);
      this.read(event.key);
      this.dispatchEvent(new CustomEvent("elsewhere", { detail: id }));
    });
  }

  read(key) {
    if (!key?.startsWith(PREFIX)) return;
    try {
      const id = key.slice(PREFIX.length);
      const conversation = checkedConversation(id, JSON.parse(localStorage.getItem(key)));
      if (conversation) this.conversations.set(id, conversation);
    } catch { /* not JSON: left alone */ }
  }

  // Newest first.
  list() {
    return [...this.conversations.values()].sort((a, b) => b.changed - a.changed);
  }

  // A conversation that is kept once it has a message.
  create() {
    const now = Date.now();
    let settings = null;
    try {
      settings = JSON.parse(localStorage.getItem(SETTINGS));
    } catch { /* the defaults, then */ }
    const id = `${now.toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
    const conversation = { id, title: "New conversation", named: false, created: now, changed: now,
      settings: checkedSettings(settings), messages: [] };
    return conversation;
  }

  // False where the browser has no room for it.
  save(conversation, changed = true) {
    if (changed) conversation.changed = Date.now();
    this.conversations.set(conversation.id, conversation);
    try {
      localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
      return true;
    } catch {
      return false;
    }
  }

  remove(id) {
    this.conversations.delete(id);
    try {
      localStorage.removeItem(PREFIX + id);
    } catch { /* it was never kept */ }
  }

  keepSettings(settings) {
    try {
      localStorage.setItem(SETTINGS, JSON.stringify(settings));
    } catch { /* new conversations begin with the defaults */ }
  }
}
