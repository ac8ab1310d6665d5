// Text files attached to a message: picked, dropped, or pasted.

const MOST_BYTES = 256 * 1024;
const MOST_FILES = 8;

export const FILE_LIMITS = `Text files of up to ${MOST_BYTES / 1024} KiB, ${MOST_FILES} at most.`;

// The text of a file: UTF-8, or UTF-16 with a byte order mark. null: not text.
function textOf(bytes) {
  const wide = bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le"
    : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : null;
  try {
    const text = new TextDecoder(wide ?? "utf-8", { fatal: true }).decode(bytes);
    return /[\0-\x08\x0e-\x1a\x1c-\x1f]/.test(text) ? null : text.replace(/\r\n?/g, "\n");
  } catch {
    return null;
  }
}

// Adds acceptable files of `chosen` (File objects) to `files`; returns a message about the others,
// or "".
export async function addFiles(chosen, files) {
  const words = [];
  for (const file of chosen) {
    if (files.length >= MOST_FILES) {
      words.push(`${file.name}: a message can have at most ${MOST_FILES} files.`);
    } else if (file.size > MOST_BYTES) {
      words.push(`${file.name} has ${Math.ceil(file.size / 1024)} KiB; a file may have ` +
        `${MOST_BYTES / 1024} KiB.`);
    } else {
      const text = await file.arrayBuffer().then((data) => textOf(new Uint8Array(data)))
        .catch(() => null);
      if (text === null) words.push(`${file.name} is not a text file.`);
      else if (text === "") words.push(`${file.name} is empty.`);
      else files.push({ name: file.name, text });
    }
  }
  return words.join(" ");
}

// The message as the model gets it: each file in a fence longer than any in its text.
export function withFiles({ content, files = [] }) {
  const parts = files.map(({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
    const fence = "`".repeat(longest + 1);
    return `File ${name}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  return [...parts, content].filter((part) => part !== "").join("\n\n");
}
