// What the page uses of others (web/libraries.txt): markdown-it, KaTeX, highlight.js. Each is asked
// for once something needs it; a page that was built without one shows plain text in its place.

import { libraries } from "./libraries.js";
import { h } from "./dom.js";

// By name: its file, the global that its script makes, its style sheet.
const KNOWN = {
  "markdown-it": { global: "markdownit" },
  highlight: { global: "hljs" },
  katex: { global: "katex", style: "lib/katex.css" },
};

const asked = new Map();
// "loaded": one has come; what was shown without it can be shown again.
export const loads = new EventTarget();

const place = (file) => new URL(file, import.meta.url).href;

async function load(name) {
  const { global, style } = KNOWN[name];
  if (style && libraries.includes(style)) {
    document.head.append(h("link", { rel: "stylesheet", href: place(style) }));
  }
  const script = h("script", { src: place(`lib/${name}.js`) });
  const come = await new Promise((resolve) => {
    script.addEventListener("load", () => resolve(true));
    script.addEventListener("error", () => resolve(false));
    document.head.append(script);
  });
  if (come) loads.dispatchEvent(new CustomEvent("loaded", { detail: name }));
  return come ? window[global] : null;
}

// What the program was built with.
export function isThere(name) {
  return libraries.includes(`lib/${name}.js`);
}

// The library, or null: it is not here, or not yet.
export function library(name) {
  if (!isThere(name)) return null;
  if (!asked.has(name)) asked.set(name, load(name));
  return window[KNOWN[name].global] ?? null;
}

// Once it is there, or known not to come.
export async function untilLoaded(name) {
  library(name);
  await asked.get(name);
}
