// The page: switches between two views by the address (#chat, #dashboard) and shows the server's
// state at the top.

import { keyAsker } from "./api.js";
import { Chat } from "./chat.js";
import { Dashboard } from "./dashboard.js";
import { byId, h } from "./dom.js";
import { shortLoss } from "./ranks.js";
import { askForKey } from "./settings.js";
import { StatusPoll } from "./status.js";
import { Store } from "./store.js";
import { listenForTheme } from "./theme.js";

const CHAT_PERIOD_MS = 5000;
const DASHBOARD_PERIOD_MS = 1000;

const STATES = { serving: "", recovering: "recovering", draining: "shutting down", over: "failed" };

function showServer({ data, error }) {
  const loss = shortLoss(data);
  const tone = error || data.state === "over" ? "bad"
    : data.state === "serving" && loss === "" ? "good" : "warn";
  const words = error
    ? (error.status === 0 ? "not reachable" : error.status === 401 ? "needs a key" : error.message)
    : [loss, STATES[data.state] ?? data.state].filter(Boolean).join(", ");
  const name = data?.model ?? "";
  const shown = JSON.stringify([tone, words, name]);
  // otherwise screen readers would repeat it each second
  if (byId("server").dataset.shown === shown) return;
  byId("server").dataset.shown = shown;
  byId("server").replaceChildren(h("span", { class: `dot ${tone}` }),
    h("span", { class: "name", title: name }, name), words ? h("span", {}, words) : "");
  document.title = name ? `${name} · Weft` : "Weft";
}

function showView(poll) {
  const isDashboard = location.hash === "#dashboard";
  byId("chat-view").hidden = isDashboard;
  byId("dashboard-view").hidden = !isDashboard;
  byId("menu").hidden = isDashboard;
  for (const link of document.querySelectorAll("header nav a")) {
    const here = link.hash === (isDashboard ? "#dashboard" : "#chat");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  poll.every(isDashboard ? DASHBOARD_PERIOD_MS : CHAT_PERIOD_MS);
  if (!isDashboard && !matchMedia("(pointer: coarse)").matches) byId("entry").focus();
}

listenForTheme();
keyAsker.ask = askForKey;
const poll = new StatusPoll();
poll.addEventListener("status", ({ detail }) => showServer(detail));
new Dashboard(byId("dashboard-view"), poll);
const chat = new Chat(new Store(), poll);
addEventListener("hashchange", () => showView(poll));
showView(poll);
chat.toEnd();
