// Creates elements and formats numbers. Text is always inserted as text; the page never parses
// strings as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

// h("button", {type: "button", onclick: f}, "Stop"): children are nodes or text.
export function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export function byId(id) {
  return document.getElementById(id);
}

export const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

export function bytes(value) {
  if (!isNumber(value)) return "?";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    ++unit;
  }
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

export function count(value) {
  return isNumber(value) ? Math.round(value).toLocaleString("en") : "?";
}

export function rate(value) {
  if (!isNumber(value)) return "?";
  return value >= 100 ? count(value) : value.toFixed(1);
}

export function seconds(value) {
  if (!isNumber(value)) return "?";
  if (value < 0.0995) return `${(value * 1000).toFixed(value < 0.00995 ? 1 : 0)} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  const minutes = Math.floor(value / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(value % 60)} s`;
  if (minutes < 2880) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

// Copies text, also without the clipboard API, which plain HTTP lacks.
export async function copy(text, button) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    button.focus();
  }
  const label = button.textContent;
  if (label !== "Copy") return;
  button.textContent = done ? "Copied" : "Not copied";
  setTimeout(() => (button.textContent = label), 1500);
}
