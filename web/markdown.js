// Renders a model's Markdown as DOM nodes. markdown-it parses it; this file creates nodes from its
// tokens, limited to known elements and text. The text is hostile: it is never parsed as HTML,
// links are restricted to http and https, nesting and time are limited. Without markdown-it the
// text is shown unformatted.
//
// While an answer streams, only its last block is parsed and rendered again, at a rate that limits
// the share of time it takes.

import { codeBlock } from "./code.js";
import { h } from "./dom.js";
import { library } from "./library.js";
import { Formulas, withFormulas } from "./math.js";

const MOST_NESTING = 20;
const MOST_URL = 2000;
const MOST_INLINE = 20_000;  // characters of a paragraph that are parsed for inline markup
const MOST_CELLS = 20_000;   // cells per table
const MOST_SHARE = 0.25;     // of the time, for a streaming answer
const LONGEST_PAUSE_MS = 2000;

const TAGS = {
  paragraph: "p", bullet_list: "ul", ordered_list: "ol", list_item: "li", blockquote: "blockquote",
  table: "table", thead: "thead", tbody: "tbody", tr: "tr", th: "th", td: "td",
  em: "em", strong: "strong", s: "del",
};
const HEADINGS = { h1: "h3", h2: "h4", h3: "h5", h4: "h6", h5: "h6", h6: "h6" };
const SIDES = { "text-align:right": "right", "text-align:center": "middle" };

let parser = null;

// Rejects tables with too many cells. Each row gets as many cells as the header, even if its line
// is short, so a short text could create millions. Such a table is shown as plain text.
function largeTable(state, begin, end, silent) {
  if (begin + 2 > end) return false;
  const under = state.src.slice(state.bMarks[begin + 1], state.eMarks[begin + 1]);
  if (!/^[|:\-\s]+$/.test(under.slice(state.tShift[begin + 1]))) return false;
  const columns = under.split("|").length;
  if (columns < 3) return false;
  let last = begin;
  while (last < end && !state.isEmpty(last) && state.sCount[last] >= state.blkIndent &&
         columns * (last - begin) <= MOST_CELLS) ++last;
  if (columns * (last - begin) <= MOST_CELLS) return false;
  if (silent) return true;
  while (last < end && !state.isEmpty(last) && state.sCount[last] >= state.blkIndent) ++last;
  const token = state.push("code_block", "", 0);
  token.content = `${state.getLines(begin, last, state.blkIndent, false)}\n`;
  token.map = [begin, last];
  state.line = last;
  return true;
}

function makeParser(markdownit) {
  const md = markdownit({ html: false, linkify: true, breaks: true, typographer: false });
  md.set({ maxNesting: MOST_NESTING });
  md.validateLink = (url) => url.length <= MOST_URL && /^https?:\/\/[^\s]/i.test(url);
  md.linkify.set({ fuzzyLink: false, fuzzyEmail: false, fuzzyIP: false });
  md.block.ruler.before("table", "large_table", largeTable, { alt: ["paragraph", "reference"] });
  md.disable(["reference"]);  // a link must mean the same before and after the rest has arrived
  md.core.ruler.at("inline", (state) => {
    for (const token of state.tokens) {
      if (token.type !== "inline") continue;
      if (token.content.length <= MOST_INLINE) {
        state.md.inline.parse(token.content, state.md, state.env, token.children);
      } else {
        const text = new state.Token("text", "", 0);
        text.content = token.content;
        token.children.push(text);
      }
    }
  });
  return withFormulas(md);
}

// ---- From tokens to nodes ----

class Maker {
  // streaming: the last block may still grow.
  constructor(streaming) {
    this.streaming = streaming;
    this.formulas = new Formulas();
  }

  // Nodes of a balanced run of tokens.
  nodes(tokens, last = false) {
    const root = document.createDocumentFragment();
    const open = [root];
    const add = (node) => open.at(-1).append(node);
    tokens.forEach((token, i) => {
      if (token.nesting > 0) {
        const element = this.element(token);
        if (token.type === "table_open") {
          add(h("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "Table" },
            element));
        } else if (element !== open.at(-1) && element) {
          add(element);
        }
        open.push(element ?? open.at(-1));
      } else if (token.nesting < 0) {
        if (open.length > 1) open.pop();
      } else if (token.type === "inline") {
        const begins = tokens[i - 2]?.type === "list_item_open" ? this.task(token, open) : null;
        if (begins) add(begins);
        add(this.nodes(token.children));
      } else {
        add(this.leaf(token, last && i === tokens.length - 1));
      }
    });
    return root;
  }

  // null: the token has no element of its own.
  element(token) {
    const name = token.type.replace(/_open$/, "");
    if (name === "heading") return h(HEADINGS[token.tag] ?? "h6");
    if (name === "link") return this.link(token.attrGet("href"));
    if (token.hidden || !TAGS[name]) return null;
    const element = h(TAGS[name]);
    const start = Number(token.attrGet("start"));
    if (name === "ordered_list" && start > 1) element.setAttribute("start", String(start));
    const side = SIDES[token.attrGet("style")];
    if (side) element.className = side;
    return element;
  }

  link(url) {
    return h("a", { href: url, target: "_blank", rel: "noopener noreferrer" });
  }

  // Renders "[x] done" at the beginning of a list item as a check box.
  task(token, open) {
    const first = token.children[0];
    const found = /^\[([ xX])\]\s/.exec(token.content);
    if (!found || first?.type !== "text" || !first.content.startsWith(found[0].trimEnd())) {
      return null;
    }
    first.content = first.content.slice(found[0].length);
    open.findLast((element) => element.tagName === "LI")?.classList.add("task");
    const done = found[1] !== " ";
    return h("input", { type: "checkbox", disabled: true, checked: done,
      "aria-label": done ? "done" : "not done" });
  }

  leaf(token, grows) {
    switch (token.type) {
      case "text": return document.createTextNode(token.content);
      case "softbreak":
      case "hardbreak": return h("br");
      case "code_inline": return h("code", {}, token.content);
      case "hr": return h("hr");
      case "formula": return this.formulas.node(token);
      case "image": return this.image(token);
      case "fence":
      case "code_block": {
        const language = token.type === "fence" ? token.info.trim().split(/\s+/)[0] : "";
        const code = token.content.replace(/\n$/, "");
        return codeBlock(code, language.slice(0, 40), !(grows && this.streaming));
      }
      default: return document.createTextNode(token.content ?? "");
    }
  }

  // Images are not fetched: the image's host would learn who reads the answer.
  image(token) {
    const link = this.link(token.attrGet("src"));
    link.textContent = token.content || token.attrGet("src");
    return link;
  }
}

// Groups the tokens by top-level block: {begin (line), tokens}.
function blocksOf(tokens) {
  const blocks = [];
  let depth = 0;
  for (const token of tokens) {
    if (depth === 0) blocks.push({ begin: token.map?.[0] ?? 0, tokens: [] });
    blocks.at(-1).tokens.push(token);
    depth += token.nesting;
  }
  return blocks;
}

function lineStart(text, line) {
  let at = 0;
  while (line-- > 0) at = text.indexOf("\n", at) + 1;
  return at;
}

// ---- The view ----

export class MarkdownView {
  constructor() {
    this.element = h("div", { class: "markdown" });
    this.shown = null;     // the text shown
    this.complete = true;  // the text was not streaming when it was shown
    this.tail = 0;         // start of its last block
    this.kept = 0;         // number of nodes before the last block
    this.cost = 0;
    this.next = 0;
    this.timer = 0;
  }

  // streaming: more text may come.
  show(text, streaming = false) {
    const same = text === this.shown && streaming === !this.complete;
    if (same && !this.timer) return;
    this.wanted = text;
    clearTimeout(this.timer);
    this.timer = 0;
    const pause = this.next - performance.now();
    if (streaming && pause > 0) {
      this.timer = setTimeout(() => {
        this.timer = 0;
        this.show(this.wanted, true);
      }, pause);
      return;
    }
    const begin = performance.now();
    this.make(text.replace(/\r\n?|\0/g, "\n"), text, streaming);
    const spent = performance.now() - begin;
    this.next = begin + spent + Math.min(LONGEST_PAUSE_MS, spent * (1 / MOST_SHARE - 1));
  }

  // Redraws after a library has loaded (library.js).
  again() {
    if (this.shown === null || !this.element.isConnected) return;
    const text = this.shown;
    this.shown = null;
    this.make(text.replace(/\r\n?|\0/g, "\n"), text, !this.complete);
  }

  make(text, whole, streaming) {
    const markdownit = library("markdown-it");
    const goesOn = streaming && !this.complete && this.shown !== null &&
      whole.startsWith(this.shown);
    this.shown = whole;
    this.complete = !streaming;
    if (!markdownit) {
      this.element.replaceChildren(h("p", { class: "plain" }, text));
      return;
    }
    parser ??= makeParser(markdownit);
    if (!goesOn) this.tail = this.kept = 0;
    while (this.element.childNodes.length > this.kept) this.element.lastChild.remove();
    const rest = text.slice(this.tail);
    const blocks = blocksOf(parser.parse(rest, { streaming }));
    const maker = new Maker(streaming);
    blocks.forEach((block, i) => {
      const last = i === blocks.length - 1;
      if (last) {
        this.kept = this.element.childNodes.length;
        this.tail += lineStart(rest, block.begin);
      }
      this.element.append(maker.nodes(block.tokens, last));
    });
  }
}
