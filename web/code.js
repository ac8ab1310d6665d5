// Code blocks with a copy button and, if highlight.js is available, syntax highlighting.

import { copy, h } from "./dom.js";
import { library } from "./library.js";

const MOST_LETTERS = 50_000;  // limit for highlighting, in characters
const MOST_WORDS = 2000;      // limit for words without symbols between them, in characters
const SIGNS = {
  "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#x27;": "'", "&#39;": "'",
};

// highlight.js returns a string of text and spans. The page never parses strings as HTML, so this
// function reads it: spans with a class, and text. null: anything else, or text that differs from
// `code`.
function nodesOf(marked, code) {
  const root = document.createDocumentFragment();
  const open = [root];
  let read = 0;
  for (const piece of marked.matchAll(/<span class="([\w -]*)">|<\/span>|[^<]+/g)) {
    if (piece.index !== read) return null;
    read += piece[0].length;
    if (piece[0] === "</span>") {
      if (open.pop() === root) return null;
    } else if (piece[1] !== undefined) {
      const span = h("span", { class: piece[1] });
      open.at(-1).append(span);
      open.push(span);
    } else {
      open.at(-1).append(piece[0].replace(/&[#\w]+;/g, (sign) => SIGNS[sign] ?? sign));
    }
  }
  return open.length === 1 && root.textContent === code ? root : null;
}

// Whether highlight.js would take too long: its search for functions takes cubic time in long runs
// of words.
function isEndless(code) {
  return code.split(/[^\w\s*&:<>~]/).some((words) => words.length > MOST_WORDS);
}

function coloured(code, language) {
  if (language === "" || code.length > MOST_LETTERS || isEndless(code)) return null;
  const hljs = library("highlight");
  if (!hljs?.getLanguage(language)) return null;
  try {
    return nodesOf(hljs.highlight(language, code, true).value, code);
  } catch {
    return null;
  }
}

// language: from the fence, or "". colours: highlight; off while the block is being written.
export function codeBlock(code, language, colours) {
  const button = h("button", { type: "button", class: "small",
    onclick: () => copy(code, button) }, "Copy");
  return h("div", { class: "code" },
    h("div", { class: "code-head" }, h("span", {}, language), button),
    h("pre", { tabindex: "0", "aria-label": language ? `Code, ${language}` : "Code" },
      h("code", {}, (colours && coloured(code, language.toLowerCase())) || code)));
}
