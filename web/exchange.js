// Conversations as files: JSON, which this page reads again, and Markdown, which people read.

import { h } from "./dom.js";
import { checkedConversation } from "./store.js";
import { newId, path } from "./tree.js";

const FORMAT = "weft-conversations";
const VERSION = 1;
const MOST_BYTES = 50 * 1024 * 1024;
const MOST_CONVERSATIONS = 5000;

export function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export function nameFor(title, extension) {
  const plain = title.normalize("NFKD").replace(/[^\w]+/g, "-").replace(/^-+|-+$/g, "");
  return `${plain.slice(0, 60) || "conversation"}.${extension}`;
}

export function asJson(conversations) {
  return `${JSON.stringify({ format: FORMAT, version: VERSION, conversations }, null, 1)}\n`;
}

// The branch that is shown.
export function asMarkdown(conversation) {
  const parts = [`# ${conversation.title}`];
  if (conversation.settings.system) parts.push(`**System:** ${conversation.settings.system}`);
  for (const i of path(conversation)) {
    const message = conversation.messages[i];
    parts.push(message.role === "user" ? "## You" : "## Answer");
    for (const { name, text } of message.files ?? []) {
      const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
      const fence = "`".repeat(longest + 1);
      parts.push(`File ${name}:\n\n${fence}\n${text}\n${fence}`);
    }
    if (message.content) parts.push(message.content);
    if (message.error) parts.push(`*${message.error}*`);
  }
  return `${parts.join("\n\n")}\n`;
}

// What is in a file: {conversations, refused}: those that can be read, and how many can't.
// Throws an Error with words for the user.
export function read(text) {
  if (text.length > MOST_BYTES) throw new Error("The file is too large: 50 MiB at most.");
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON. Choose one that this page has exported.");
  }
  if (data?.format !== FORMAT || !Array.isArray(data.conversations)) {
    throw new Error("The file holds no conversations of this page.");
  }
  if (data.version !== VERSION) {
    throw new Error("The file was written by another version of this page, which this one does " +
      "not read.");
  }
  if (data.conversations.length > MOST_CONVERSATIONS) {
    throw new Error(`The file has more than ${MOST_CONVERSATIONS} conversations.`);
  }
  const found = data.conversations.map((value) => checkedConversation(newId(), value));
  const conversations = found.filter((one) => one !== null && one.messages.length > 0);
  return { conversations, refused: found.length - conversations.length };
}

// Keeps those that are not here yet; words on what was done.
export function take(store, { conversations, refused }) {
  // As it would be read out of a file, too.
  const key = (conversation) => {
    const { created, messages } = checkedConversation("", JSON.parse(JSON.stringify(conversation)));
    return JSON.stringify([created, messages]);
  };
  const here = new Set(store.list().map(key));
  let kept = 0, known = 0, lost = 0;
  for (const conversation of conversations) {
    if (here.has(key(conversation))) ++known;
    else if (store.save(conversation, false)) ++kept;
    else {
      store.remove(conversation.id);
      ++lost;
    }
  }
  const words = [`${kept} imported`];
  if (known > 0) words.push(`${known} here already`);
  if (refused > 0) words.push(`${refused} not readable`);
  if (lost > 0) words.push(`no room in this browser for ${lost}`);
  return `${words.join(", ")}.`;
}
