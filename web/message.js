// One message of a conversation, with its buttons.

import { bytes, copy, count, h, isNumber, rate, seconds } from "./dom.js";
import { MarkdownView } from "./markdown.js";

function statsText({ tokens, first, perSecond }) {
  const parts = [`${count(tokens)} token${tokens === 1 ? "" : "s"}`];
  if (isNumber(perSecond)) parts.push(`${rate(perSecond)} tok/s`);
  if (isNumber(first)) parts.push(`first after ${seconds(first)}`);
  return parts.join(" · ");
}

// Buttons to switch between versions: {at, of, go(step)}. null: there is only one.
function arrows(variants, what) {
  if (!variants || variants.of < 2) return null;
  const { at, of, go } = variants;
  const arrow = (words, sign, step, possible) => h("button", { type: "button", class: "small",
    "aria-label": words, title: words, disabled: !possible, onclick: () => go(step) }, sign);
  return h("span", { class: "variants", role: "group", "aria-label": `${what}s` },
    arrow(`Former ${what}`, "‹", -1, at > 0),
    h("span", {}, `${at + 1}/${of}`),
    arrow(`Next ${what}`, "›", 1, at + 1 < of));
}

function fileNode({ name, text }) {
  return h("details", { class: "file" },
    h("summary", {}, name, " ", h("span", { class: "dim" }, bytes(new Blob([text]).size))),
    h("pre", { tabindex: "0" }, text));
}

// A user message. actions: {edit(text), closed(), variants}: edit starts a new branch; closed:
// editing has ended.
export class UserView {
  constructor(message, actions) {
    this.message = message;
    this.variants = actions.variants.of;
    this.actions = actions;
    this.element = h("article", { class: "message user", "aria-label": "You" });
    this.showText();
  }
  showText() {
    const { content, files = [] } = this.message;
    this.editButton = h("button", { type: "button", class: "small",
      onclick: () => this.showEditor() }, "Edit");
    this.element.replaceChildren(...files.map(fileNode),
      content ? h("div", { class: "bubble" }, content) : "",
      h("div", { class: "tools" }, arrows(this.actions.variants, "version"), this.editButton));
  }
  showEditor() {
    const area = h("textarea", { rows: Math.min(12, this.message.content.split("\n").length + 1),
      "aria-label": "Edit your message" });
    area.value = this.message.content;
    const close = () => {
      this.showText();
      this.editButton.focus();
      this.actions.closed();
    };
    const send = () => {
      if (area.value.trim() !== "") this.actions.edit(area.value);
    };
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    this.element.replaceChildren(area, h("div", { class: "buttons" },
      h("button", { type: "button", onclick: close }, "Cancel"),
      h("button", { type: "button", class: "main", onclick: send }, "Send")));
    area.focus();
  }
  update() {}
  libraryCame() {}
}

// An answer. actions: {again(), goOn(), isLast(), drop(), canDrop(), variants}: again requests
// another answer beside this one; goOn continues one that was cut off; drop continues without the
// oldest turns.
export class AnswerView {
  constructor(message, actions) {
    this.message = message;
    this.variants = actions.variants.of;
    this.markdown = new MarkdownView();
    this.reasoning = h("p", { class: "reasoning" });
    this.summary = h("summary", {}, "Reasoning");
    this.details = h("details", { hidden: true }, this.summary, this.reasoning);
    this.waiting = h("p", { class: "waiting" }, h("span"), h("span"), h("span"));
    this.note = h("p", { class: "note" });
    this.error = h("p", { class: "error", role: "alert", hidden: true });
    this.stats = h("span", { class: "stats" });
    this.copyButton = h("button", { type: "button", class: "small",
      onclick: () => copy(message.content, this.copyButton) }, "Copy");
    this.again = h("button", { type: "button", class: "small", onclick: actions.again }, "Again");
    this.goOn = h("button", { type: "button", class: "small go-on", hidden: true,
      onclick: actions.goOn }, "Continue");
    this.drop = h("button", { type: "button", class: "drop", hidden: true,
      onclick: actions.drop }, "Continue without the oldest turns");
    this.actions = actions;
    this.tools = h("div", { class: "tools" }, arrows(actions.variants, "answer"), this.stats,
      this.goOn, this.copyButton, this.again);
    this.element = h("article", { class: "message answer", "aria-label": "Answer" }, this.details,
      this.markdown.element, this.waiting, this.note, this.error, this.drop,
      this.tools);
  }
  // hint: reason for a pause while it streams.
  update(streaming, hint = "") {
    const { content, reasoning, stats, note, error, model, full, cut } = this.message;
    this.element.classList.toggle("streaming", streaming);
    this.details.hidden = !reasoning;
    if (this.reasoning.textContent !== reasoning) this.reasoning.textContent = reasoning;
    this.summary.textContent = streaming && !content ? "Reasoning …" : "Reasoning";
    this.markdown.show(content, streaming);
    this.waiting.hidden = !streaming || content !== "";
    this.note.textContent = streaming ? hint : note;
    this.note.hidden = this.note.textContent === "";
    if (this.error.textContent !== error) this.error.textContent = error;
    this.error.hidden = streaming || !error;
    const said = [stats ? statsText(stats) : "", model].filter(Boolean).join(" · ");
    this.stats.textContent = said;
    this.again.textContent = error ? "Try again" : "Again";
    this.again.hidden = streaming;
    this.goOn.hidden = streaming || cut !== true || full === true || !(content || reasoning) ||
      !this.actions.isLast();
    this.drop.hidden = streaming || full !== true || !this.actions.canDrop();
    this.copyButton.hidden = streaming || content === "";
  }
  libraryCame() {
    this.markdown.again();
  }
}
