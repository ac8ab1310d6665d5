// Third-party libraries (web/libraries.txt): markdown-it, KaTeX, highlight.js. Each is loaded when
// first needed; a page built without one shows plain text instead.

import { libraries } from "./libraries.js";
import { h } from "./dom.js";

// By name: the file, the global variable of its script, its style sheet.
const KNOWN = {
  "markdown-it": { global: "markdownit" },
  highlight: { global: "hljs" },
  katex: { global: "katex", style: "lib/katex.css" },
};

const asked = new Map();
// "loaded": a library is ready; content shown without it can be redrawn.
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

// Whether the program was built with the library.
export function isThere(name) {
  return libraries.includes(`lib/${name}.js`);
}

// The library, or null if it is absent or not loaded yet.
export function library(name) {
  if (!isThere(name)) return null;
  if (!asked.has(name)) asked.set(name, load(name));
  return window[KNOWN[name].global] ?? null;
}

// Resolves when it is loaded or has failed to load.
export async function untilLoaded(name) {
  library(name);
  await asked.get(name);
}
