// Settings of a conversation, by the API's names. null: the server's default.
//
//     {system, model, thinking (true, false), temperature, topP, topK, minP, maxTokens, seed}

import { isNumber } from "./dom.js";

// id: of the form field; name: in a request; also: other names used by servers.
export const PARAMETERS = [
  { key: "temperature", id: "temperature", name: "temperature", least: 0, most: 2 },
  { key: "topP", id: "top-p", name: "top_p", least: 0, most: 1 },
  { key: "topK", id: "top-k", name: "top_k", least: -1, most: 1 << 24, whole: true },
  { key: "minP", id: "min-p", name: "min_p", least: 0, most: 1 },
  { key: "maxTokens", id: "max-tokens", name: "max_tokens", also: ["n_predict"], least: 1,
    most: 2 ** 31, whole: true },
  { key: "seed", id: "seed", name: "seed", least: -(2 ** 53), most: 2 ** 53, whole: true },
];

const MOST_SYSTEM = 1_000_000;

function checkedNumber(value, { least, most, whole }) {
  if (!isNumber(value) || value < least || value > most) return null;
  return whole && !Number.isInteger(value) ? null : value;
}

export function checkedSettings(value) {
  const text = (name, most) =>
    (typeof value?.[name] === "string" ? value[name].slice(0, most) : "");
  const settings = { system: text("system", MOST_SYSTEM), model: text("model", 500),
    thinking: typeof value?.thinking === "boolean" ? value.thinking : null };
  for (const parameter of PARAMETERS) {
    settings[parameter.key] = checkedNumber(value?.[parameter.key], parameter);
  }
  return settings;
}

// Whether anything except the model and its thinking is set.
export function anySet(settings) {
  return settings.system !== "" || PARAMETERS.some(({ key }) => settings[key] !== null);
}

// Defaults reported by /props, by key; {}: none reported.
export function defaultsOf(props) {
  const said = props?.default_generation_settings;
  const values = { ...said, ...said?.params };
  const defaults = {};
  for (const { key, name, also = [] } of PARAMETERS) {
    const value = [name, ...also].map((word) => values[word]).find(isNumber);
    if (value !== undefined) defaults[key] = value;
  }
  return defaults;
}
