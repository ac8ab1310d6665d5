// Conversations, kept in the browser: each under a key of its own, so that two windows that talk
// don't overwrite each other's.
//
//     {id, title, named, created, changed, settings (settings_form.js), current,
//      messages: [{role: "user", content, parent, files: [{name, text}]},
//                 {role: "assistant", content, parent, reasoning, stats, note, error, model}]}
//
// `named`: the user gave the title. `parent` and `current`: tree.js. Everything that is read is
// checked: what another version of this page, or anybody, has left there must not break it.

import { isNumber } from "./dom.js";
import { checkedSettings } from "./settings_form.js";

const PREFIX = "weft.conversation.";
const SETTINGS = "weft.settings";
const MOST_MESSAGES = 20_000;
const MOST_TITLE = 200;

const text = (value) => (typeof value === "string" ? value : "");

function checkedFile(value) {
  if (typeof value?.name !== "string" || typeof value?.text !== "string") return null;
  return { name: value.name.slice(0, 200), text: value.text };
}

function checkedMessage(value, i) {
  const role = value?.role === "user" ? "user" : "assistant";
  const { parent: said } = value ?? {};
  const parent = Number.isInteger(said) && said >= -1 && said < i ? said : i - 1;
  const message = { role, content: text(value?.content), parent };
  if (role === "user") {
    const files = Array.isArray(value.files) ? value.files.map(checkedFile).filter(Boolean) : [];
    if (files.length > 0) message.files = files;
    return message;
  }
  message.reasoning = text(value?.reasoning);
  message.note = text(value?.note);
  message.error = text(value?.error);
  if (text(value?.model)) message.model = value.model.slice(0, 200);
  const { tokens, first, perSecond } = value?.stats ?? {};
  if (isNumber(tokens)) message.stats = { tokens, first, perSecond };
  return message;
}

export function checkedConversation(id, value) {
  if (!Array.isArray(value?.messages) || value.messages.length > MOST_MESSAGES) return null;
  // Without parents each follows the one before it; what is no message must not be between them.
  const said = value.messages.filter(
    (message) => message?.role === "user" || message?.role === "assistant");
  const whole = said.length === value.messages.length;
  const messages = said.map((message, i) =>
    checkedMessage(whole ? message : { ...message, parent: i - 1 }, i));
  const { current } = value;
  const isPlace = Number.isInteger(current) && current >= 0 && current < messages.length;
  return {
    id,
    title: text(value.title).slice(0, MOST_TITLE) || "Conversation",
    named: value.named === true,
    created: isNumber(value.created) ? value.created : 0,
    changed: isNumber(value.changed) ? value.changed : 0,
    settings: checkedSettings(value.settings),
    current: isPlace ? current : messages.length - 1,
    messages,
  };
}

export function newId() {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
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
    return { id: newId(), title: "New conversation", named: false, created: now, changed: now,
      settings: checkedSettings(settings), current: -1, messages: [] };
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
