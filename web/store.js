// Stores conversations in the browser, each under its own key. Windows with the same conversation
// open merge their changes (merge.js).
//
//     {id, title, named, edited, created, changed, settings (settings_form.js), from, current,
//      messages: [{id, at, changed, role: "user", content, parent, files: [{name, text}]},
//                 {id, at, changed, role: "assistant", content, parent, reasoning, stats, note,
//                  error, model, full, cut}]}
//
// `named`: the user gave the title. `edited`: time of the last change of title, settings or `from`.
// `from`: id of the first message that the model gets (tree.js). `full`: the context was full.
// `cut`: the answer has no end yet, or was cut off.
// `at`: time of creation, later than that of the previous message. `changed`: time of the last
// write. `parent` and `current`: tree.js. All stored data is checked: data of another version of
// the page, or of another page, must not break it.

import { isNumber } from "./dom.js";
import { merge } from "./merge.js";
import { checkedSettings } from "./settings_form.js";
import { newId } from "./tree.js";

const PREFIX = "weft.conversation.";
const SETTINGS = "weft.settings";
const MOST_MESSAGES = 20_000;
const MOST_TITLE = 200;
const MOST_ID = 60;

const text = (value) => (typeof value === "string" ? value : "");

function checkedFile(value) {
  if (typeof value?.name !== "string" || typeof value?.text !== "string") return null;
  return { name: value.name.slice(0, 200), text: value.text };
}

function checkedMessage(value, i) {
  const role = value?.role === "user" ? "user" : "assistant";
  const { parent: said } = value ?? {};
  const parent = Number.isInteger(said) && said >= -1 && said < i ? said : i - 1;
  const id = text(value?.id).slice(0, MOST_ID) || `${i}`;
  const at = isNumber(value?.at) ? value.at : i;
  const changed = isNumber(value?.changed) ? value.changed : at;
  const message = { id, at, changed, role, content: text(value?.content), parent };
  if (role === "user") {
    const files = Array.isArray(value.files) ? value.files.map(checkedFile).filter(Boolean) : [];
    if (files.length > 0) message.files = files;
    return message;
  }
  message.reasoning = text(value?.reasoning);
  message.note = text(value?.note);
  message.error = text(value?.error);
  if (value?.full === true) message.full = true;
  message.cut = value?.cut === true;
  if (text(value?.model)) message.model = value.model.slice(0, 200);
  const { tokens, first, perSecond } = value?.stats ?? {};
  if (isNumber(tokens)) message.stats = { tokens, first, perSecond };
  return message;
}

export function checkedConversation(id, value) {
  if (!Array.isArray(value?.messages) || value.messages.length > MOST_MESSAGES) return null;
  // Without parents, each message follows the previous one; invalid messages are removed first.
  const said = value.messages.filter(
    (message) => message?.role === "user" || message?.role === "assistant");
  const whole = said.length === value.messages.length;
  const messages = said.map((message, i) =>
    checkedMessage(whole ? message : { ...message, parent: i - 1 }, i));
  const ids = new Set();
  messages.forEach((message, i) => {
    if (ids.has(message.id)) message.id = `${message.id}-${i}`;
    ids.add(message.id);
    message.at = Math.max(message.at, (messages[message.parent]?.at ?? -Infinity) + 1);
  });
  const { current } = value;
  const isPlace = Number.isInteger(current) && current >= 0 && current < messages.length;
  return {
    id,
    title: text(value.title).slice(0, MOST_TITLE) || "Conversation",
    named: value.named === true,
    created: isNumber(value.created) ? value.created : 0,
    changed: isNumber(value.changed) ? value.changed : 0,
    edited: isNumber(value.edited) ? value.edited : 0,
    settings: checkedSettings(value.settings),
    from: text(value.from).slice(0, MOST_ID),
    current: isPlace ? current : messages.length - 1,
    messages,
  };
}

export class Store extends EventTarget {
  constructor() {
    super();
    this.conversations = new Map();
    this.busy = new Set();  // messages that this window is writing
    this.kept = new Map();  // by conversation id: the last known stored text
    try {
      for (let i = 0; i < localStorage.length; ++i) this.read(localStorage.key(i));
    } catch { /* no storage: conversations live as long as the page */ }
    addEventListener("storage", (event) => {
      if (!event.key?.startsWith(PREFIX)) return;
      this.cameElsewhere(event.key.slice(PREFIX.length), event.newValue);
    });
  }

  read(key) {
    if (!key?.startsWith(PREFIX)) return;
    const id = key.slice(PREFIX.length);
    const conversation = this.parsed(id, localStorage.getItem(key));
    if (conversation) this.conversations.set(id, conversation);
  }

  parsed(id, json) {
    this.kept.set(id, json);
    try {
      return checkedConversation(id, JSON.parse(json));
    } catch {
      return null;  // not JSON: left unchanged
    }
  }

  // Another window wrote `json`, or deleted the conversation (null).
  cameElsewhere(id, json) {
    const mine = this.conversations.get(id);
    if (json === null) {
      // it will be written again
      if (mine?.messages.some((message) => this.busy.has(message))) return;
      this.conversations.delete(id);
    } else {
      const theirs = this.parsed(id, json);
      if (theirs === null) return;
      if (mine === undefined) this.conversations.set(id, theirs);
      else this.join(mine, theirs);
    }
    this.dispatchEvent(new CustomEvent("elsewhere", { detail: id }));
  }

  // Merges; writes if the other window lacks a finished change of this one.
  join(mine, theirs) {
    merge(mine, theirs, this.busy);
    const done = (message) => !this.busy.has(message);
    const there = new Map(theirs.messages.map((message) => [message.id, message]));
    const lacks = mine.messages.some((message) =>
      done(message) && message.changed !== there.get(message.id)?.changed);
    if (lacks || mine.edited !== theirs.edited) this.save(mine, false);
  }

  // Most recent first.
  list() {
    return [...this.conversations.values()].sort((a, b) => b.changed - a.changed);
  }

  // Creates a conversation; it is stored once it has a message.
  create() {
    const now = Date.now();
    let settings = null;
    try {
      settings = JSON.parse(localStorage.getItem(SETTINGS));
    } catch { /* the defaults, then */ }
    return { id: newId(), title: "New conversation", named: false, edited: 0, created: now,
      changed: now, settings: checkedSettings(settings), from: "", current: -1, messages: [] };
  }

  // Writes a conversation, merged with changes of other windows. False: the browser's storage is
  // full.
  save(conversation, changed = true) {
    const { id } = conversation;
    if (changed) conversation.changed = Date.now();
    this.conversations.set(id, conversation);
    let came = false;
    try {
      const json = localStorage.getItem(PREFIX + id);
      if (json !== null && json !== this.kept.get(id)) {
        const theirs = this.parsed(id, json);
        came = theirs !== null && merge(conversation, theirs, this.busy);
      }
      const text = JSON.stringify(conversation);
      localStorage.setItem(PREFIX + id, text);
      this.kept.set(id, text);
      return true;
    } catch {
      return false;
    } finally {
      if (came) this.dispatchEvent(new CustomEvent("elsewhere", { detail: id }));
    }
  }

  remove(id) {
    this.conversations.delete(id);
    this.kept.delete(id);
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
