// The two dialogs: settings of a conversation, and the API key that a server asks for.

import { apiKey } from "./api.js";
import { byId } from "./dom.js";

// Shows a dialog; the value of the button that closed it ("" for Esc).
function show(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
}

// Not submit buttons: Enter would press the first of these.
for (const button of document.querySelectorAll("dialog [data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close(""));
}

const numberIn = (field) => (field.value.trim() === "" ? null : field.valueAsNumber);

// The settings as the user leaves them; null: cancelled. Shows the key's field where there is one.
export async function editSettings(settings) {
  const system = byId("system");
  const temperature = byId("temperature");
  const most = byId("max-tokens");
  const key = byId("settings-key");
  system.value = settings.system;
  temperature.value = settings.temperature ?? "";
  most.value = settings.maxTokens ?? "";
  key.value = apiKey.get();
  byId("key-row").hidden = key.value === "";
  if (await show(byId("settings")) !== "save") return null;
  if (!byId("key-row").hidden) apiKey.set(key.value.trim());
  return { system: system.value, temperature: numberIn(temperature), maxTokens: numberIn(most) };
}

// Asks for a key with the server's words; true when there is one to try.
export async function askForKey(words) {
  const field = byId("key");
  byId("key-words").textContent = words;
  field.value = apiKey.get();
  if (await show(byId("key-dialog")) !== "use") return false;
  apiKey.set(field.value.trim());
  return field.value.trim() !== "";
}
