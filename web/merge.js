// Merges two windows' versions of one conversation; keeps every message of both.
//
// Messages are matched by id; of two versions, the later one wins. The result does not depend on
// which window merges, so windows that notify each other stop writing once they agree.

const headOf = ({ title, named, settings, from }) =>
  JSON.stringify([title, named, settings, from]);

function isNewer(theirs, mine) {
  return (theirs.changed - mine.changed || theirs.content.length - mine.content.length) > 0;
}

// Adds to `mine` what `theirs` (a checked conversation with the same id) has more or newer. Message
// objects of `mine` keep their identity. busy: messages that only this window writes. Returns
// whether `mine` changed.
export function merge(mine, theirs, busy = new Set()) {
  let changed = false;
  const parents = new Map();  // by message id: id of the previous message
  for (const { messages } of [mine, theirs]) {
    for (const { id, parent } of messages) parents.set(id, messages[parent]?.id);
  }
  const shown = mine.messages[mine.current];
  const all = new Map(mine.messages.map((message) => [message.id, message]));
  for (const message of theirs.messages) {
    const own = all.get(message.id);
    if (own === undefined) all.set(message.id, { ...message });
    else if (!busy.has(own) && isNewer(message, own)) Object.assign(own, message);
    else continue;
    changed = true;
  }
  mine.messages = [...all.values()].sort((a, b) => a.at - b.at || (a.id < b.id ? -1 : 1));
  const places = new Map(mine.messages.map(({ id }, i) => [id, i]));
  for (const message of mine.messages) message.parent = places.get(parents.get(message.id)) ?? -1;
  const next = places.get(theirs.messages[theirs.current]?.id) ?? -1;
  mine.current = shown === undefined ? next : places.get(shown.id);
  if (shown !== undefined && !busy.has(shown) && follows(mine, next)) mine.current = next;
  const newer = theirs.edited - mine.edited || (headOf(theirs) > headOf(mine) ? 1 : 0);
  if (newer > 0) {
    const { title, named, settings, from, edited } = theirs;
    Object.assign(mine, { title, named, settings, from, edited });
    changed = true;
  }
  mine.changed = Math.max(mine.changed, theirs.changed);
  return changed;
}

// Whether the other window continues from the message shown.
function follows({ messages, current }, i) {
  while (i > current) i = messages[i].parent;
  return i === current;
}
