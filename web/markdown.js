// Markdown of a model's answer as DOM nodes: paragraphs, headings, lists, quotes, tables, code and
// links. The text is hostile: every piece of it becomes a text node, links go to http and https
// alone, nesting is bounded, and the time is linear in the length.

import { copy, h } from "./dom.js";

const MOST_BLOCK_DEPTH = 6;
const MOST_INLINE_DEPTH = 5;
const MOST_URL = 2000;
const MOST_COLUMNS = 50;
const ESCAPABLE = "\\`*_{}[]()#+-.!|~<>\"'$&,/:;=?@^%";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^( {0,8})([-*+]|\d{1,9}[.)])(?:[ \t]+(.*)|[ \t]*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;

// ---- Blocks ----

// Cells of a table's row; null where the line is none.
function cells(line) {
  if (line === undefined || !line.includes("|")) return null;
  let text = line.trim();
  if (text.startsWith("|")) text = text.slice(1);
  if (text.endsWith("|") && !text.endsWith("\\|")) text = text.slice(0, -1);
  const row = [""];
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === "\\" && text[i + 1] === "|") row[row.length - 1] += text[++i];
    else if (text[i] === "|") row.push("");
    else row[row.length - 1] += text[i];
  }
  return row.map((cell) => cell.trim());
}

function alignments(line, columns) {
  const row = cells(line);
  if (row === null || row.length !== columns) return null;
  if (!row.every((cell) => /^:?-+:?$/.test(cell))) return null;
  return row.map((cell) => (!cell.endsWith(":") ? "" : cell.startsWith(":") ? "middle" : "right"));
}

function isTable(lines, i) {
  const head = cells(lines[i]);
  if (head === null || head.length > MOST_COLUMNS) return false;
  return alignments(lines[i + 1], head.length) !== null;
}

const beginsBlock = (lines, i) =>
  FENCE.test(lines[i]) || HEADING.test(lines[i]) || RULE.test(lines[i]) || QUOTE.test(lines[i]) ||
  ITEM.test(lines[i]) || isTable(lines, i);

function readFence(lines, i) {
  const [, fence, language] = FENCE.exec(lines[i]);
  const close = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}\\s*$`);
  const begin = ++i;
  while (i < lines.length && !close.test(lines[i])) ++i;
  const block = { type: "code", language, text: lines.slice(begin, i).join("\n") };
  return [block, Math.min(i + 1, lines.length)];
}

function readTable(lines, i) {
  const head = cells(lines[i]);
  const align = alignments(lines[i + 1], head.length);
  const rows = [];
  for (i += 2; i < lines.length; ++i) {
    const row = lines[i].trim() === "" ? null : cells(lines[i]);
    if (row === null) break;
    rows.push(row.slice(0, head.length));
  }
  return [{ type: "table", head, align, rows }, i];
}

function readQuote(lines, i) {
  const inner = [];
  for (; i < lines.length; ++i) {
    const found = QUOTE.exec(lines[i]);
    if (found) inner.push(found[1]);
    else if (lines[i].trim() === "" || beginsBlock(lines, i)) break;
    else inner.push(lines[i]);
  }
  return [{ type: "quote", lines: inner }, i];
}

// An item goes on as long as lines are indented below its marker, or belong to its paragraph.
function readList(lines, i) {
  const first = ITEM.exec(lines[i]);
  const ordered = first[2].length > 1;
  const base = first[1].length;
  const items = [];
  while (i < lines.length) {
    const found = ITEM.exec(lines[i]);
    if (!found || RULE.test(lines[i])) break;
    if (found[2].length > 1 !== ordered || found[1].length > base + 1 || found[1].length < base) {
      break;
    }
    const indent = base + found[2].length + 1;
    const inner = [found[3] ?? ""];
    for (++i; i < lines.length; ++i) {
      const blank = lines[i].trim() === "";
      const inset = lines[i].length - lines[i].trimStart().length;
      if (blank && (lines[i + 1] ?? "").trim() === "") break;
      if (!blank && inset < Math.min(indent, base + 2)) {
        if (inner.at(-1).trim() === "" || beginsBlock(lines, i)) break;
      }
      inner.push(lines[i].slice(Math.min(inset, indent)));
    }
    items.push(inner);
    while (i < lines.length && lines[i].trim() === "" && ITEM.test(lines[i + 1] ?? "")) ++i;
  }
  return [{ type: "list", ordered, start: parseInt(first[2], 10), items }, i];
}

function readParagraph(lines, i) {
  const begin = i++;
  while (i < lines.length && lines[i].trim() !== "" && !beginsBlock(lines, i)) ++i;
  return [{ type: "text", text: lines.slice(begin, i).join("\n").trim() }, i];
}

function readBlock(lines, i) {
  if (FENCE.test(lines[i])) return readFence(lines, i);
  const heading = HEADING.exec(lines[i]);
  if (heading) {
    const text = heading[2].replace(/[ \t]+#+[ \t]*$/, "");
    return [{ type: "heading", level: heading[1].length, text }, i + 1];
  }
  if (RULE.test(lines[i])) return [{ type: "rule" }, i + 1];
  if (QUOTE.test(lines[i])) return readQuote(lines, i);
  if (ITEM.test(lines[i])) return readList(lines, i);
  if (isTable(lines, i)) return readTable(lines, i);
  return readParagraph(lines, i);
}

// Blocks, each with the lines that it came from.
function readBlocks(lines) {
  const blocks = [];
  for (let i = 0; i < lines.length; ) {
    if (lines[i].trim() === "") {
      ++i;
      continue;
    }
    const [block, next] = readBlock(lines, i);
    block.source = lines.slice(i, next).join("\n");
    blocks.push(block);
    i = next;
  }
  return blocks;
}

// ---- Inline ----

export function safeUrl(text) {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

function link(url, ...children) {
  return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

const isWord = (c) => c !== undefined && /[\p{L}\p{N}_]/u.test(c);
const isBlank = (c) => c === undefined || /\s/.test(c);

// Where the delimiter closes, looking from `from` on; -1: nowhere.
function closing(text, from, mark) {
  const c = mark[0];
  for (let i = text.indexOf(mark, from); i >= 0; i = text.indexOf(mark, i)) {
    let end = i;
    while (text[end] === c) ++end;
    const fits = mark.length === 1 ? end - i !== 2 : end - i >= 2;
    const at = end - mark.length;  // of a longer run its last ones: the others close what is inside
    if (fits && i > from && !isBlank(text[i - 1]) && (c !== "_" || !isWord(text[end]))) return at;
    i = end;
  }
  return -1;
}

// "[label](url)" at i: its parts and its end; null where there is none.
function readLink(text, i) {
  let depth = 0;
  let j = i;
  for (; j < text.length && j - i < 1000; ++j) {
    if (text[j] === "\\") ++j;
    else if (text[j] === "[" && ++depth > 4) return null;
    else if (text[j] === "]" && --depth === 0) break;
  }
  if (text[j] !== "]" || text[j + 1] !== "(") return null;
  const begin = j + 2;
  let parens = 1;
  let end = begin;
  for (; end < text.length && end - begin < MOST_URL; ++end) {
    if (text[end] === "\n") return null;
    if (text[end] === "(") ++parens;
    if (text[end] === ")" && --parens === 0) break;
  }
  if (text[end] !== ")") return null;
  const target = text.slice(begin, end).trim().split(/\s/)[0].replace(/^<|>$/g, "");
  return { label: text.slice(i + 1, j), url: safeUrl(target), end: end + 1 };
}

class Inline {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.nodes = [];
    this.plain = "";
    this.missing = new Set();  // delimiters that don't close any more: looked for once
  }
  push(node) {
    if (this.plain !== "") this.nodes.push(document.createTextNode(this.plain));
    this.plain = "";
    if (node) this.nodes.push(node);
  }
  run() {
    for (let i = 0; i < this.text.length; ) {
      const next = this.special(i);
      if (next > i) {
        i = next;
      } else {
        this.plain += this.text[i++];
      }
    }
    this.push(null);
    return this.nodes;
  }
  // Reads what begins at i, if anything; where it ends.
  special(i) {
    const c = this.text[i];
    switch (c) {
      case "\\": return this.escape(i);
      case "\n": this.push(h("br")); return i + 1;
      case "`": return this.code(i);
      case "*": case "_": case "~": return this.emphasis(i, c);
      case "!": return this.text[i + 1] === "[" ? this.link(i, i + 1) : i;
      case "[": return this.link(i, i);
      case "<": return this.url(i, /<(https?:\/\/[^\s<>]{1,2000})>/y, false);
      case "h": return isWord(this.text[i - 1])
        ? i : this.url(i, /(https?:\/\/[^\s<>"'`|\\*]{1,2000})/y, true);
      default: return i;
    }
  }
  escape(i) {
    const next = this.text[i + 1];
    if (next === undefined || !ESCAPABLE.includes(next)) return i;
    this.plain += next;
    return i + 2;
  }
  code(i) {
    let end = i;
    while (this.text[end] === "`") ++end;
    const mark = this.text.slice(i, end);
    const literal = () => ((this.plain += mark), end);
    if (this.missing.has(mark)) return literal();
    for (let at = this.text.indexOf(mark, end); at >= 0; at = this.text.indexOf(mark, at)) {
      let stop = at;
      while (this.text[stop] === "`") ++stop;
      if (stop - at === mark.length) {
        const inner = this.text.slice(end, at).replace(/\n/g, " ");
        this.push(h("code", {}, /^ .*[^ ].* $/.test(inner) ? inner.slice(1, -1) : inner));
        return stop;
      }
      at = stop;
    }
    this.missing.add(mark);
    return literal();
  }
  emphasis(i, c) {
    let end = i;
    while (this.text[end] === c) ++end;
    const run = end - i;
    const literal = () => ((this.plain += this.text.slice(i, end)), end);
    const size = run >= 2 ? 2 : 1;
    if ((c === "~" && run !== 2) || run > 3 || isBlank(this.text[end])) return literal();
    if (c === "_" && isWord(this.text[i - 1])) return literal();
    if (this.depth >= MOST_INLINE_DEPTH) return literal();
    const mark = c.repeat(size);
    if (this.missing.has(mark)) return literal();
    const at = closing(this.text, i + size, mark);
    if (at < 0) {
      this.missing.add(mark);
      return literal();
    }
    const tag = c === "~" ? "del" : size === 2 ? "strong" : "em";
    this.push(h(tag, {}, ...inline(this.text.slice(i + size, at), this.depth + 1)));
    return at + size;
  }
  link(i, bracket) {
    if (this.missing.has("](")) return i;
    if (this.text.indexOf("](", bracket) < 0) {
      this.missing.add("](");
      return i;
    }
    const found = this.depth < MOST_INLINE_DEPTH ? readLink(this.text, bracket) : null;
    if (found === null || found.url === null) return i;
    this.push(link(found.url, ...inline(found.label || found.url, MOST_INLINE_DEPTH)));
    return found.end;
  }
  url(i, pattern, bare) {
    pattern.lastIndex = i;
    const found = pattern.exec(this.text);
    if (!found) return i;
    let text = found[1];
    if (bare) {
      text = text.replace(/[.,;:!?\]}_~]+$/, "");
      if (text.endsWith(")") && !text.includes("(")) text = text.replace(/\)+$/, "");
    }
    const url = safeUrl(text);
    if (url === null) return i;
    this.push(link(url, text));
    return bare ? i + text.length : pattern.lastIndex;
  }
}

function inline(text, depth = 0) {
  return new Inline(text, depth).run();
}

// ---- Nodes ----

function codeNode(block) {
  const button = h("button", { type: "button", class: "small" }, "Copy");
  button.addEventListener("click", () => copy(block.text, button));
  const head = h("div", { class: "code-head" }, h("span", {}, block.language || "code"), button);
  return h("div", { class: "code" }, head, h("pre", { tabindex: "0" }, h("code", {}, block.text)));
}

function tableNode(block) {
  const row = (tag, texts) => h("tr", {}, ...block.head.map((_, i) =>
    h(tag, { class: block.align[i] || null }, ...inline(texts[i] ?? ""))));
  return h("div", { class: "wide", tabindex: "0" }, h("table", {},
    h("thead", {}, row("th", block.head)), h("tbody", {}, ...block.rows.map((r) => row("td", r)))));
}

function listNode(block, depth) {
  const items = block.items.map((lines) => {
    const [first, ...others] = blockNodes(readBlocks(lines), depth + 1);
    if (first === undefined) return h("li");
    return h("li", {}, ...(first.tagName === "P" ? first.childNodes : [first]), ...others);
  });
  const start = block.ordered && block.start !== 1 ? { start: block.start } : {};
  return h(block.ordered ? "ol" : "ul", start, ...items);
}

function blockNode(block, depth) {
  switch (block.type) {
    case "code": return codeNode(block);
    case "heading": return h(`h${Math.min(block.level + 2, 6)}`, {}, ...inline(block.text));
    case "rule": return h("hr");
    case "table": return tableNode(block);
    case "quote":
      if (depth >= MOST_BLOCK_DEPTH) return h("p", {}, block.source);
      return h("blockquote", {}, ...blockNodes(readBlocks(block.lines), depth + 1));
    case "list":
      return depth >= MOST_BLOCK_DEPTH ? h("p", {}, block.source) : listNode(block, depth);
    default: return h("p", {}, ...inline(block.text));
  }
}

function blockNodes(blocks, depth) {
  return blocks.map((block) => blockNode(block, depth));
}

// An element that shows a text that grows: blocks that have not changed keep their nodes, so that
// what a reader has selected stays selected.
export class MarkdownView {
  constructor() {
    this.element = h("div", { class: "markdown" });
    this.sources = [];
  }
  show(text) {
    const blocks = readBlocks(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"));
    let same = 0;
    while (same < blocks.length && blocks[same].source === this.sources[same]) ++same;
    while (this.element.childNodes.length > same) this.element.lastChild.remove();
    this.element.append(...blockNodes(blocks.slice(same), 0));
    this.sources = blocks.map((block) => block.source);
  }
}
