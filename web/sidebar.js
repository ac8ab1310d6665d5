// The list of conversations: open, rename, delete (with undo), create.

import { byId, h } from "./dom.js";
import { asJson, read, save, take } from "./exchange.js";

const UNDO_MS = 8000;
const SEARCH_MS = 120;
const AROUND = 30;  // characters shown before and after a match

function icon(path) {
  const template = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  template.setAttribute("viewBox", "0 0 20 20");
  template.setAttribute("aria-hidden", "true");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
  line.setAttribute("d", path);
  template.append(line);
  return template;
}

const PENCIL = "M4 16l1-4 8-8 3 3-8 8zM11 6l3 3";
const BIN = "M4 6h12M8 6V4h4v2M6 6l1 10h6l1-10";

// Finds `query` (lower case) in a conversation: {title}, {before, found, behind} or null.
function search(conversation, query) {
  if (conversation.title.toLowerCase().includes(query)) return { title: true };
  for (const { content } of conversation.messages) {
    const at = content.toLowerCase().indexOf(query);
    if (at < 0) continue;
    const text = (begin, end) => content.slice(Math.max(0, begin), end).replace(/\s+/g, " ");
    const end = at + query.length;
    return { before: text(at - AROUND, at), found: text(at, end), behind: text(end, end + AROUND) };
  }
  return null;
}

export class Sidebar {
  // actions: {open(id), fresh(), removed(conversation), restored(conversation)}
  constructor(store, actions) {
    this.store = store;
    this.actions = actions;
    this.list = byId("conversations");
    this.panel = byId("sidebar");
    this.menu = byId("menu");
    this.current = null;
    this.streaming = new Set();
    this.deleted = null;
    this.query = "";
    this.listenForSearch();
    this.listenForFiles();
    byId("new-chat").addEventListener("click", () => {
      this.close();
      actions.fresh();
    });
    this.menu.addEventListener("click", () => this.toggle());
    document.addEventListener("pointerdown", (event) => {
      if (!this.panel.contains(event.target) && !this.menu.contains(event.target)) this.close();
    });
    this.panel.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.panel.classList.contains("open")) return;
      event.stopPropagation();
      this.close();
      this.menu.focus();
    });
  }

  listenForSearch() {
    const field = byId("search");
    let timer = 0;
    field.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => {
        this.query = field.value.trim().toLowerCase();
        this.show(this.current, this.streaming);
      }, SEARCH_MS);
    });
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || field.value === "") return;
      event.stopPropagation();
      field.value = this.query = "";
      this.show(this.current, this.streaming);
    });
    document.addEventListener("keydown", (event) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
      if (document.querySelector("dialog[open]") || byId("chat-view").hidden) return;
      event.preventDefault();
      this.open();
      field.select();
    });
  }

  listenForFiles() {
    const picker = byId("pick-import");
    const words = byId("exchange-words");
    const say = (text, failed) => {
      words.textContent = text;
      words.classList.toggle("failed", failed);
      words.hidden = text === "";
    };
    byId("import").addEventListener("click", () => picker.click());
    byId("export-all").addEventListener("click", () => {
      say("", false);
      save("weft-conversations.json", "application/json", asJson(this.store.list()));
    });
    picker.addEventListener("change", async () => {
      const [file] = picker.files;
      if (!file) return;
      try {
        say(take(this.store, read(await file.text())), false);
      } catch (error) {
        say(`${file.name}: ${error.message}`, true);
      }
      picker.value = "";
      this.show(this.current, this.streaming);
    });
  }

  open() {
    this.panel.classList.add("open");
    this.menu.setAttribute("aria-expanded", "true");
  }
  toggle() {
    const open = this.panel.classList.toggle("open");
    this.menu.setAttribute("aria-expanded", String(open));
    if (open) byId("new-chat").focus();
  }
  close() {
    this.panel.classList.remove("open");
    this.menu.setAttribute("aria-expanded", "false");
  }

  // current: id of the open conversation; streaming: ids with a running answer.
  show(current, streaming) {
    this.current = current;
    this.streaming = streaming;
    if (this.list.querySelector("input")) return;  // a title is being edited
    const all = this.store.list();
    const found = all.map((conversation) =>
      [conversation, this.query === "" ? {} : search(conversation, this.query)]);
    const rows = found.filter(([, hit]) => hit !== null).map(([one, hit]) => this.row(one, hit));
    if (rows.length === 0 && this.query !== "") {
      rows.push(h("li", { class: "none" }, "No matches."));
    }
    byId("export-all").disabled = all.length === 0;
    byId("search").hidden = all.length === 0;
    if (this.deleted) rows.unshift(this.undoRow());
    this.list.replaceChildren(...rows);
  }

  row(conversation, hit) {
    const { id, title } = conversation;
    const open = h("button", { type: "button", class: "open", title,
      "aria-current": id === this.current ? "true" : null,
      onclick: () => {
        this.close();
        this.actions.open(id);
      } }, title);
    if (hit.found) {
      open.append(h("span", { class: "hit" }, hit.before, h("mark", {}, hit.found), hit.behind));
    }
    if (this.streaming.has(id)) open.append(h("span", { class: "dot busy", role: "img",
      "aria-label": "answering" }));
    const rename = h("button", { type: "button", class: "plain", title: "Rename",
      "aria-label": `Rename ${title}`, onclick: () => this.rename(conversation) }, icon(PENCIL));
    const remove = h("button", { type: "button", class: "plain", title: "Delete",
      "aria-label": `Delete ${title}`, onclick: () => this.remove(conversation) }, icon(BIN));
    return h("li", { "data-id": id }, open, rename, remove);
  }

  rename(conversation) {
    const row = this.list.querySelector(`[data-id="${CSS.escape(conversation.id)}"]`);
    const input = h("input", { "aria-label": "Title of the conversation", maxlength: "120" });
    input.value = conversation.title;
    let done = false;
    const end = (keep) => {
      if (done) return;
      done = true;
      const title = input.value.trim();
      if (keep && title !== "") {
        conversation.title = title;
        conversation.named = true;
        conversation.edited = Date.now();
        this.store.save(conversation, false);
      }
      input.remove();
      this.show(this.current, this.streaming);
      this.list.querySelector(`[data-id="${CSS.escape(conversation.id)}"] .open`)?.focus();
    };
    input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") end(true);
      if (event.key === "Escape") end(false);
    });
    input.addEventListener("blur", () => end(true));
    row.replaceChildren(input);
    input.select();
  }

  remove(conversation) {
    this.store.remove(conversation.id);
    this.deleted = conversation;
    clearTimeout(this.undoTimer);
    this.undoTimer = setTimeout(() => {
      this.deleted = null;
      this.show(this.current, this.streaming);
    }, UNDO_MS);
    this.actions.removed(conversation);
    this.list.querySelector(".undo button")?.focus();
  }

  undoRow() {
    const undo = h("button", { type: "button", class: "small", onclick: () => {
      const conversation = this.deleted;
      this.deleted = null;
      this.store.save(conversation, false);
      this.actions.restored(conversation);
    } }, "Undo");
    return h("li", { class: "undo", role: "status" }, h("span", {}, "Deleted."), undo);
  }
}
