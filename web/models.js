// The server's models (/v1/models): the base model and its adapters.

import { call } from "./api.js";

// "change": the list has changed.
export const models = new EventTarget();
models.list = [];

// Loads the list. Errors: as call().
export async function loadModels(options = {}) {
  const said = await (await call("v1/models", options)).json();
  const list = (Array.isArray(said?.data) ? said.data : [])
    .filter((model) => typeof model?.id === "string")
    .map(({ id, parent, meta }) => ({ id, parent: typeof parent === "string" ? parent : "",
      thinks: meta?.thinking === true }));
  if (JSON.stringify(list) === JSON.stringify(models.list)) return;
  models.list = list;
  models.dispatchEvent(new Event("change"));
}

const find = (wanted) => models.list.find(({ id }) => id === wanted) ?? models.list[0];

// The wanted model's id if it still exists, else the first one.
export function modelFor(wanted) {
  return find(wanted)?.id ?? "";
}

// Whether that model's template can switch its reasoning.
export function thinks(wanted) {
  return find(wanted)?.thinks === true;
}
