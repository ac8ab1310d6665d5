// Finds formulas in Markdown text and renders them (KaTeX).
//
//     $x$  \(x\)    inline                 $$x$$  \[x\]    display
//
// A dollar sign before a price does not open a formula: no white space may follow an opening or
// precede a closing sign, no digit may follow a closing one, and an amount followed by words is
// text.

import { h } from "./dom.js";
import { library } from "./library.js";

const MOST_LETTERS = 4000;   // per formula
const MOST_LINES = 100;
const MOST_KEPT = 300;       // rendered formulas
const BUDGET_MS = 400;       // for the formulas of one text; the rest are shown unrendered

// Commands that define commands. A few of them can make a formula of any size, despite KaTeX's
// limits (CVE-2024-28243, CVE-2024-28244), which would hang the page.
const DEFINES = /\\(?:[egx]?def|(?:new|renew|provide)command)(?![a-zA-Z])/;

const kept = new Map();

// ---- Finding ----

const isBlank = (letter) => letter === undefined || /\s/.test(letter);
const isLetter = (letter) => letter !== undefined && /[\p{L}\p{N}]/u.test(letter);

// For example "5 and US" in "$5 and US$10".
function isPrice(text) {
  if (!/^[\d.,]/.test(text)) return false;
  return /\p{L}{2,}/u.test(text.replace(/\{[^{}]*\}/g, "").replace(/\\[a-zA-Z]+/g, ""));
}

// Offset of the unescaped `close` from `begin` on; -1: not within the limit.
function find(text, close, begin) {
  const near = text.slice(begin, begin + MOST_LETTERS);
  for (let at = near.indexOf(close); at >= 0; at = near.indexOf(close, at + 1)) {
    let escapes = 0;
    while (near[at - 1 - escapes] === "\\") ++escapes;
    if (escapes % 2 === 0) return begin + at;
  }
  return -1;
}

// The formula at `at`: {text, display, end}; null: none.
function formulaAt(text, at) {
  const two = text.slice(at, at + 2);
  if (two === "\\(" || two === "\\[" || two === "$$") {
    const close = two === "\\(" ? "\\)" : two === "\\[" ? "\\]" : "$$";
    const end = find(text, close, at + 2);
    const inner = text.slice(at + 2, end);
    if (end < 0 || inner.trim() === "" || inner.includes("\n\n")) return null;
    return { text: inner, display: two !== "\\(", end: end + 2 };
  }
  if (text[at] !== "$" || isBlank(text[at + 1]) || isLetter(text[at - 1])) return null;
  const end = find(text, "$", at + 1);
  if (end < 0 || isBlank(text[end - 1]) || /\d/.test(text[end + 1] ?? "")) return null;
  const inner = text.slice(at + 1, end);
  if (inner === "" || /`|\n\s*\n/.test(inner) || isPrice(inner)) return null;
  return { text: inner, display: false, end: end + 1 };
}

function inlineRule(state, silent) {
  const letter = state.src[state.pos];
  if (letter !== "$" && letter !== "\\") return false;
  const found = formulaAt(state.src, state.pos);
  if (found === null || found.end > state.posMax) return false;
  if (!silent) {
    const token = state.push("formula", "", 0);
    token.content = found.text;
    token.meta = { display: found.display, source: state.src.slice(state.pos, found.end) };
  }
  state.pos = found.end;
  return true;
}

// A line that begins with $$ or \[ opens a formula of several lines. While the text streams
// (env.streaming), an unclosed formula ends with the text.
function blockRule(state, begin, end, silent) {
  const line = (number) =>
    state.src.slice(state.bMarks[number] + state.tShift[number], state.eMarks[number]);
  const open = line(begin).slice(0, 2);
  if (open !== "$$" && open !== "\\[") return false;
  const close = open === "$$" ? "$$" : "\\]";
  const from = state.bMarks[begin] + state.tShift[begin] + 2;
  const ahead = state.src.slice(from, from + MOST_LETTERS);
  const grows = state.env.streaming && from + MOST_LETTERS >= state.src.length;
  if (!ahead.includes(close) && !grows) return false;
  const lines = [line(begin).slice(2)];
  let last = begin;
  while (!lines.at(-1).trimEnd().endsWith(close)) {
    if (lines.at(-1).includes(close)) return false;  // text follows on the closing line
    if (++last >= end || lines.length > MOST_LINES) break;
    lines.push(line(last));
  }
  const whole = last < end && lines.length <= MOST_LINES;
  if (!whole && !grows) return false;
  const text = lines.join("\n");
  const inner = whole ? text.trimEnd().slice(0, -2) : text;
  if (inner.trim() === "" && whole) return false;
  if (silent) return true;
  const token = state.push("formula", "", 0);
  token.content = inner;
  token.meta = { display: true, source: `${open}${text}`, open: !whole };
  token.map = [begin, Math.min(last + 1, end)];
  state.line = token.map[1];
  return true;
}

// Adds the formula rules to a markdown-it instance.
export function withFormulas(md) {
  md.inline.ruler.before("escape", "formula", inlineRule);
  md.block.ruler.before("fence", "formula", blockRule,
    { alt: ["paragraph", "reference", "blockquote", "list"] });
  return md;
}

// ---- Drawing ----

function draw(katex, text, display) {
  const element = h("span", { class: display ? "formula wide" : "formula" });
  katex.render(text, element, { displayMode: display, throwOnError: true, trust: false,
    strict: "ignore", maxSize: 40, maxExpand: 300, output: "htmlAndMathml" });
  return element;
}

// Formulas of one text. sources: original texts, shown where rendering fails.
export class Formulas {
  constructor() {
    this.spent = 0;
  }
  node({ content, meta }) {
    const drawable = !meta.open && content.length <= MOST_LETTERS && !DEFINES.test(content);
    const katex = drawable ? library("katex") : null;
    const key = `${meta.display ? "d" : "i"}${content}`;
    if (katex && !kept.has(key) && this.spent < BUDGET_MS) {
      const begin = performance.now();
      let element = null;
      try {
        element = draw(katex, content, meta.display);
      } catch { /* what KaTeX does not know is shown as it was written */ }
      this.spent += performance.now() - begin;
      if (kept.size >= MOST_KEPT) kept.delete(kept.keys().next().value);
      kept.set(key, element);
    }
    const drawn = katex && kept.get(key);
    if (drawn) return drawn.cloneNode(true);
    return h("code", { class: meta.display ? "formula wide" : "formula" }, meta.source);
  }
}
