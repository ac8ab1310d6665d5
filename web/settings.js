// The dialogs for a conversation's settings and for the server's API key.

import { apiKey, call } from "./api.js";
import { byId } from "./dom.js";
import { checkedSettings, defaultsOf, PARAMETERS } from "./settings_form.js";

const MOST_WORDS = 500;

// Shows a dialog; resolves to the value of the button that closed it ("" for Esc).
function show(dialog) {
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue), { once: true });
  });
}

// Not submit buttons, because Enter would press the first one.
for (const button of document.querySelectorAll("dialog [data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close(""));
}

const numberIn = (field) => (field.value.trim() === "" ? null : field.valueAsNumber);

// Shows the server's defaults in empty fields, if the server reports them.
async function showDefaults() {
  let props = null;
  try {
    props = await (await call("props")).json();
  } catch { /* the fields say "default", then */ }
  const defaults = defaultsOf(props);
  const said = typeof props?.sampling === "string" ? props.sampling.slice(0, MOST_WORDS) : "";
  byId("sampling-words").textContent = `The server's default: ${said}.`;
  byId("sampling-words").hidden = said === "";
  for (const { key, id } of PARAMETERS) {
    const value = defaults[key];
    const none = (key === "maxTokens" || key === "topK" || key === "seed") && value <= 0;
    byId(id).placeholder = value === undefined ? byId(id).dataset.none
      : none ? byId(id).dataset.none : `default ${Number(value.toPrecision(6))}`;
  }
}

// The edited settings; null: cancelled. Shows the key field if the server needs a key.
export async function editSettings(settings) {
  const key = byId("settings-key");
  byId("system").value = settings.system;
  for (const parameter of PARAMETERS) byId(parameter.id).value = settings[parameter.key] ?? "";
  key.value = apiKey.get();
  byId("key-row").hidden = key.value === "";
  showDefaults();
  if (await show(byId("settings")) !== "save") return null;
  if (!byId("key-row").hidden) apiKey.set(key.value);
  const chosen = { ...settings, system: byId("system").value };
  for (const parameter of PARAMETERS) chosen[parameter.key] = numberIn(byId(parameter.id));
  return checkedSettings(chosen);
}

// Shows the server's message and asks for a key; true if there is one to try.
export async function askForKey(words) {
  const field = byId("key");
  byId("key-words").textContent = words;
  field.value = apiKey.get();
  if (await show(byId("key-dialog")) !== "use") return false;
  apiKey.set(field.value);
  return apiKey.get() !== "";
}
