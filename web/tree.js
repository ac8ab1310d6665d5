// A conversation's messages as a tree: an answer that was made again stands beside the former one,
// and a message that was edited begins a branch of its own. What is shown is the path to `current`.
//
// messages[i].parent is the index of what came before, always less than i; -1: nothing did. Nothing
// is ever taken out. What another window adds may stand between them: an index holds until the next
// merge (merge.js), an id for good.

export function newId() {
  return `${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
}

// Indices from the first message to the current one.
export function path(conversation) {
  const found = [];
  for (let i = conversation.current; i >= 0; i = conversation.messages[i].parent) found.push(i);
  return found.reverse();
}

// Indices of the messages in whose place message i stands, itself among them.
export function siblings(conversation, i) {
  const { parent } = conversation.messages[i];
  const found = [];
  conversation.messages.forEach((message, at) => {
    if (message.parent === parent) found.push(at);
  });
  return found;
}

// The last message that followed message i: where a branch was left.
export function endOf(conversation, i) {
  const { messages } = conversation;
  for (let at = messages.length - 1; at > i; --at) {
    let up = at;
    while (up > i) up = messages[up].parent;
    if (up === i) return at;
  }
  return i;
}

// Of messages in their order those that the model gets: from the one with the id conversation.from
// on, where that is among them.
export function included(conversation, messages) {
  return messages.slice(Math.max(0, messages.findIndex(({ id }) => id === conversation.from)));
}

const sizeOf = ({ content, files = [] }) =>
  files.reduce((sum, { text }) => sum + text.length, content.length);

// Where the newer half of these messages begins, by size: a message of the user behind the first;
// null: there is one turn alone.
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

// Appends a message behind `parent` and makes it the current one; its index.
export function add(conversation, message, parent) {
  const at = Math.max(Date.now(), (conversation.messages.at(-1)?.at ?? 0) + 1);
  conversation.messages.push({ id: newId(), at, changed: at, ...message, parent });
  conversation.current = conversation.messages.length - 1;
  return conversation.current;
}
