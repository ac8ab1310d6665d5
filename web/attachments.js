// Files attached to the message being written: a picker, drag and drop, paste, and the list above
// the input field.

import { byId, bytes, h } from "./dom.js";
import { addFiles, FILE_LIMITS } from "./files.js";

export class Attachments {
  constructor(area) {
    this.files = [];
    this.list = byId("attachments");
    this.words = byId("attachment-words");
    this.picker = byId("pick-files");
    byId("attach").title = `Attach files. ${FILE_LIMITS}`;
    byId("attach").addEventListener("click", () => this.picker.click());
    this.picker.addEventListener("change", async () => {
      await this.add([...this.picker.files]);
      this.picker.value = "";
    });
    byId("entry").addEventListener("paste", (event) => {
      const pasted = [...(event.clipboardData?.files ?? [])];
      if (pasted.length === 0) return;
      event.preventDefault();
      this.add(pasted);
    });
    this.takeDrops(area);
  }

  // Otherwise a file dropped beside the target would replace the page.
  takeDrops(area) {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      area.classList.toggle("dropping", area.contains(event.target));
    });
    addEventListener("dragleave", (event) => {
      if (event.relatedTarget === null) area.classList.remove("dropping");
    });
    addEventListener("drop", (event) => {
      area.classList.remove("dropping");
      if (!hasFiles(event)) return;
      event.preventDefault();
      if (area.contains(event.target)) this.add([...event.dataTransfer.files]);
    });
  }

  async add(chosen) {
    const words = await addFiles(chosen, this.files);
    this.show(words === "" ? "" : `${words} ${FILE_LIMITS}`);
    byId("entry").focus();
  }

  // Returns the attached files and clears the list.
  take() {
    const { files } = this;
    this.files = [];
    this.show("");
    return files;
  }

  show(words) {
    this.words.textContent = words;
    this.words.hidden = words === "";
    this.list.hidden = this.files.length === 0;
    this.list.replaceChildren(...this.files.map((file) => h("li", {}, file.name, " ",
      h("span", { class: "dim" }, bytes(new Blob([file.text]).size)),
      h("button", { type: "button", class: "small", "aria-label": `Remove ${file.name}`,
        onclick: () => {
          this.files.splice(this.files.indexOf(file), 1);
          this.show("");
          byId("entry").focus();
        } }, "×"))));
  }
}
