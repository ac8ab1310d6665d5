// Light or dark theme: the system's setting, or the user's choice.

import { byId } from "./dom.js";

const KEY = "weft.theme";
const MEDIA = { system: "(prefers-color-scheme: dark)", light: "not all", dark: "all" };
const NEXT = { system: "dark", dark: "light", light: "system" };

function kept() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

function use(theme) {
  byId("dark").media = MEDIA[theme];
  document.documentElement.style.colorScheme = theme === "system" ? "light dark" : theme;
  const button = byId("theme");
  button.dataset.theme = theme;
  button.title = `Colors: ${theme === "system" ? "system setting" : theme}`;
  button.setAttribute("aria-label", button.title);
}

export function listenForTheme() {
  use(Object.hasOwn(MEDIA, kept()) ? kept() : "system");
  byId("theme").addEventListener("click", () => {
    const theme = NEXT[byId("theme").dataset.theme];
    use(theme);
    try {
      localStorage.setItem(KEY, theme);
    } catch { /* it holds until the page is closed */ }
  });
}
