// Requests one answer of the model and updates its message as it streams in.

import { ApiError, call, events } from "./api.js";
import { count } from "./dom.js";
import { withFiles } from "./files.js";
import { loadModels, modelFor, models } from "./models.js";
import { PARAMETERS } from "./settings_form.js";

// The messages that the server gets. Answers that failed before any text are omitted, and adjacent
// user messages are joined, since many templates require the roles to alternate.
function messagesFor(settings, before) {
  const list = [];
  if (settings.system.trim() !== "") list.push({ role: "system", content: settings.system });
  for (const message of before) {
    if (message.role === "assistant" && message.content === "") continue;
    const content = message.role === "user" ? withFiles(message) : message.content;
    if (message.role === "user" && list.at(-1)?.role === "user") {
      list.at(-1).content += `\n\n${content}`;
    } else {
      list.push({ role: message.role, content });
    }
  }
  return list;
}

// begun: an answer that the model continues; null: a new one.
function requestFor(settings, before, begun, model) {
  const body = { messages: messagesFor(settings, before), stream: true,
    stream_options: { include_usage: true }, return_progress: true };
  if (begun) {
    const { content, reasoning } = begun;
    body.messages.push({ role: "assistant", content,
      ...(reasoning && { reasoning_content: reasoning }) });
    body.continue_final_message = true;
  }
  if (model) body.model = model;
  if (settings.thinking !== null) {
    body.chat_template_kwargs = { enable_thinking: settings.thinking };
  }
  for (const { key, name } of PARAMETERS) {
    if (settings[key] !== null) body[name] = settings[key];
  }
  return body;
}

const NOTES = {
  length: "Stopped at the token limit.",
  content_filter: "Stopped by a filter.",
  tool_calls: "The model called a tool; this page supports none.",
};

// Measures time to first token and tokens per second in the browser.
class Clock {
  constructor() {
    this.begin = performance.now();
    this.deltas = 0;
    this.first = this.last = 0;
  }
  token() {
    this.last = performance.now();
    if (this.deltas++ === 0) this.first = this.last;
  }
  stats(tokens = this.deltas) {
    if (this.deltas === 0) return undefined;
    const spent = (this.last - this.first) / 1000;
    return { tokens, first: (this.first - this.begin) / 1000,
      perSecond: tokens > 1 && spent > 0 ? (tokens - 1) / spent : null };
  }
}

// Adds an event of the stream to the answer. Returns how far the prompt is computed, if the event
// says so.
function take(answer, data, clock, context) {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ApiError("The server sent invalid JSON.");
  }
  if (chunk.error) throw new ApiError(chunk.error.message ?? "The server failed.");
  const choice = chunk.choices?.[0];
  const { content, reasoning_content: reasoning } = choice?.delta ?? {};
  if (content || reasoning) clock.token();
  if (content) answer.content += content;
  if (reasoning) answer.reasoning += reasoning;
  answer.stats = clock.stats(chunk.usage?.completion_tokens);
  if (choice?.finish_reason) {
    answer.note = NOTES[choice.finish_reason] ?? "";
    answer.cut = choice.finish_reason === "length";
  }
  const { prompt_tokens: read, completion_tokens: said } = chunk.usage ?? {};
  if (answer.note === NOTES.length && read + said >= context) {
    answer.full = true;
    answer.cut = false;
    answer.note = `The answer is cut off: the context of ${count(context)} tokens is full.`;
  }
  return chunk.prompt_progress;
}

// Streams the answer to the messages `before` into `answer`, behind the text that it has; calls
// changed(prompt_progress) after each piece. Stores errors and stops in the message; never throws.
// context: size of the model's context in tokens, if known.
export async function streamAnswer(settings, before, answer, signal, changed, context) {
  const begun = answer.content !== "" || answer.reasoning !== "" ? { ...answer } : null;
  Object.assign(answer, { note: "", error: "", cut: true });
  try {
    await loadModels({ signal, asks: true });
    const model = modelFor(settings.model);
    if (models.list.length > 1) answer.model = model;
    const clock = new Clock();
    const body = requestFor(settings, before, begun, model);
    const response = await call("v1/chat/completions", { body, signal, asks: true });
    for await (const data of events(response, signal)) {
      changed(take(answer, data, clock, context));
    }
    if (answer.content === "" && !answer.note) answer.note = "The answer is empty.";
  } catch (error) {
    if (signal.aborted) answer.note = "Stopped.";
    else answer.error = error.message;
    if (error.code === "context_length_exceeded") answer.full = true;
  }
  changed();
}
