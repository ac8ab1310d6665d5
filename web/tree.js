// A conversation's messages as a tree: a regenerated answer is a sibling of the previous one, and
// an edited message starts a new branch. The path to `current` is shown.
//
// messages[i].parent is the index of the previous message, always less than i; -1: none. Messages
// are never removed. A merge (merge.js) may insert messages of another window, so an index is valid
// until the next merge, an id forever.

export function newId() {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
}

// Indices from the first message to the current one.
export function path(conversation) {
  const found = [];
  for (let i = conversation.current; i >= 0; i = conversation.messages[i].parent) found.push(i);
  return found.reverse();
}

// Indices of all versions of message i, including i.
export function siblings(conversation, i) {
  const { parent } = conversation.messages[i];
  const found = [];
  conversation.messages.forEach((message, at) => {
    if (message.parent === parent) found.push(at);
  });
  return found;
}

// The last message of the branch that was shown after message i.
export function endOf(conversation, i) {
  const { messages } = conversation;
  for (let at = messages.length - 1; at > i; --at) {
    let up = at;
    while (up > i) up = messages[up].parent;
    if (up === i) return at;
  }
  return i;
}

// The messages that the model gets: from the one with id conversation.from on, if present.
export function included(conversation, messages) {
  return messages.slice(Math.max(0, messages.findIndex(({ id }) => id === conversation.from)));
}

const sizeOf = ({ content, files = [] }) =>
  files.reduce((sum, { text }) => sum + text.length, content.length);

// Start of the newer half of the messages, by size: a user message after the first; null: there is
// only one turn.
export function newerHalf(messages) {
  const all = messages.reduce((sum, message) => sum + sizeOf(message), 0);
  let kept = 0;
  let begin = null;
  for (const message of [...messages].reverse()) {
    kept += sizeOf(message);
    if (message.role !== "user") continue;
    if (begin !== null && kept > all / 2) break;
    begin = message;
  }
  return begin === messages[0] ? null : begin;
}

// Appends a message after `parent`, makes it current and returns its index.
export function add(conversation, message, parent) {
  const at = Math.max(Date.now(), (conversation.messages.at(-1)?.at ?? 0) + 1);
  conversation.messages.push({ id: newId(), at, changed: at, ...message, parent });
  conversation.current = conversation.messages.length - 1;
  return conversation.current;
}
