// Export and import of conversations: JSON (export and import) and Markdown (export).

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

// Exports the current branch.
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

// Reads a file: {conversations, refused}, with the number of invalid ones. Throws an Error with a
// message for the user.
export function read(text) {
  if (text.length > MOST_BYTES) throw new Error("The file is too large: 50 MiB at most.");
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    throw new Error("The file is not JSON. Choose a file exported by this page.");
  }
  if (data?.format !== FORMAT || !Array.isArray(data.conversations)) {
    throw new Error("The file contains no conversations.");
  }
  if (data.version !== VERSION) {
    throw new Error("The file was written by an incompatible version of this page.");
  }
  if (data.conversations.length > MOST_CONVERSATIONS) {
    throw new Error(`The file has more than ${MOST_CONVERSATIONS} conversations.`);
  }
  const found = data.conversations.map((value) => checkedConversation(newId(), value));
  const conversations = found.filter((one) => one !== null && one.messages.length > 0);
  return { conversations, refused: found.length - conversations.length };
}

// Stores conversations that are not known yet; returns a message about the result.
export function take(store, { conversations, refused }) {
  // normalized as if read from a file
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
  if (known > 0) words.push(`${known} already present`);
  if (refused > 0) words.push(`${refused} not readable`);
  if (lost > 0) words.push(`no room in this browser for ${lost}`);
  return `${words.join(", ")}.`;
}
