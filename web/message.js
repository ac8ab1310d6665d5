// One message of a conversation on the page, with what can be done to it.

import { copy, count, h, isNumber, rate, seconds } from "./dom.js";
import { MarkdownView } from "./markdown.js";

function statsText({ tokens, first, perSecond }) {
  const parts = [`${count(tokens)} token${tokens === 1 ? "" : "s"}`];
  if (isNumber(perSecond)) parts.push(`${rate(perSecond)} tok/s`);
  if (isNumber(first)) parts.push(`first after ${seconds(first)}`);
  return parts.join(" · ");
}

// What the user said. onedit(text) sends another text from here on.
export class UserView {
  constructor(message, onedit) {
    this.message = message;
    this.onedit = onedit;
    this.element = h("article", { class: "message user", "aria-label": "You" });
    this.showText();
  }
  showText() {
    const edit = h("button", { type: "button", class: "small", onclick: () => this.showEditor() },
      "Edit");
    this.element.replaceChildren(h("div", { class: "bubble" }, this.message.content),
      h("div", { class: "tools" }, edit));
  }
  showEditor() {
    const area = h("textarea", { rows: Math.min(12, this.message.content.split("\n").length + 1),
      "aria-label": "Edit your message" });
    area.value = this.message.content;
    const close = () => {
      this.showText();
      this.element.querySelector("button").focus();
    };
    const send = () => {
      if (area.value.trim() !== "") this.onedit(area.value);
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
}

// What the model says. onagain() asks for another answer in its place.
export class AnswerView {
  constructor(message, onagain) {
    this.message = message;
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
    this.again = h("button", { type: "button", class: "small", onclick: onagain }, "Again");
    this.tools = h("div", { class: "tools" }, this.stats, this.copyButton, this.again);
    this.element = h("article", { class: "message answer", "aria-label": "Answer" }, this.details,
      this.markdown.element, this.waiting, this.note, this.error, this.tools);
  }
  // hint: why nothing comes just now, while it streams.
  update(streaming, hint = "") {
    const { content, reasoning, stats, note, error } = this.message;
    this.element.classList.toggle("streaming", streaming);
    this.details.hidden = !reasoning;
    if (this.reasoning.textContent !== reasoning) this.reasoning.textContent = reasoning;
    this.summary.textContent = streaming && !content ? "Reasoning …" : "Reasoning";
    this.markdown.show(content);
    this.waiting.hidden = !streaming || content !== "";
    this.note.textContent = streaming ? hint : note;
    this.note.hidden = this.note.textContent === "";
    if (this.error.textContent !== error) this.error.textContent = error;
    this.error.hidden = streaming || !error;
    this.stats.textContent = stats ? statsText(stats) : "";
    this.again.textContent = error ? "Try again" : "Again";
    this.again.hidden = streaming;
    this.copyButton.hidden = streaming || content === "";
  }
}
