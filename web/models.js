// The models that the server has (/v1/models): one, and its adapters.

import { call } from "./api.js";

// "change" when the list is another one.
export const models = new EventTarget();
models.list = [];

// Asks for the list. Errors: as call().
export async function loadModels(options = {}) {
  const said = await (await call("v1/models", options)).json();
  const list = (Array.isArray(said?.data) ? said.data : [])
    .filter((model) => typeof model?.id === "string")
    .map(({ id, parent }) => ({ id, parent: typeof parent === "string" ? parent : "" }));
  if (JSON.stringify(list) === JSON.stringify(models.list)) return;
  models.list = list;
  models.dispatchEvent(new Event("change"));
}

// The id to ask for: the one that is wanted, if it is still there, else the first.
export function modelFor(wanted) {
  return (models.list.find(({ id }) => id === wanted) ?? models.list[0])?.id ?? "";
}
