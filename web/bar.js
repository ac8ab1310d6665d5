// The bar above a conversation: title, thinking, model selection and export.

import { byId, h } from "./dom.js";
import { asJson, asMarkdown, nameFor, save } from "./exchange.js";
import { loadModels, modelFor, models, thinks } from "./models.js";

const THINKING = new Map([["on", true], ["off", false]]);

export class Bar {
  // chosen({model}) or chosen({thinking}): called when the user selects another value.
  constructor(chosen) {
    this.title = byId("talk-title");
    this.select = byId("model");
    this.menu = byId("export-menu");
    this.thinking = byId("thinking");
    this.select.addEventListener("change", () => chosen({ model: this.select.value }));
    this.thinking.addEventListener("change", () => chosen({
      thinking: THINKING.get(this.thinking.value) ?? null }));
    models.addEventListener("change", () => this.showModels());
    byId("export-markdown").addEventListener("click", () => this.save("md", "text/markdown",
      asMarkdown));
    byId("export-json").addEventListener("click", () => this.save("json", "application/json",
      (conversation) => asJson([conversation])));
    document.addEventListener("pointerdown", (event) => {
      if (!this.menu.contains(event.target)) this.menu.open = false;
    });
    this.menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !this.menu.open) return;
      event.stopPropagation();
      this.menu.open = false;
      this.menu.querySelector("summary").focus();
    });
    loadModels().catch(() => { /* the first answer asks again, and says what is wrong */ });
  }

  show(conversation) {
    this.conversation = conversation;
    this.title.textContent = conversation.title;
    this.menu.hidden = conversation.messages.length === 0;
    this.showModels();
  }

  showModels() {
    this.select.hidden = models.list.length < 2;
    this.select.replaceChildren(...models.list.map(({ id, parent }) =>
      h("option", { value: id }, parent ? `${id} (adapter)` : id)));
    const { model, thinking } = this.conversation?.settings ?? {};
    this.select.value = modelFor(model);
    this.thinking.hidden = !thinks(model);
    this.thinking.value =
      [...THINKING].find(([, value]) => value === thinking)?.[0] ?? "default";
  }

  save(extension, type, write) {
    this.menu.open = false;
    save(nameFor(this.conversation.title, extension), type, write(this.conversation));
  }
}
