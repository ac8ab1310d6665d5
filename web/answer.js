// One answer of the model: asks for it and fills the message in as it streams in.

import { ApiError, call, events } from "./api.js";

// What the server gets of a conversation: answers that failed before a word are left out, and what
// the user said around them is one message (many templates want the roles to take turns).
function messagesFor(conversation, answer) {
  const list = [];
  if (conversation.settings.system.trim() !== "") {
    list.push({ role: "system", content: conversation.settings.system });
  }
  for (const message of conversation.messages) {
    if (message === answer) break;
    if (message.role === "assistant" && message.content === "") continue;
    if (message.role === "user" && list.at(-1)?.role === "user") {
      list.at(-1).content += `\n\n${message.content}`;
    } else {
      list.push({ role: message.role, content: message.content });
    }
  }
  return list;
}

function requestFor(conversation, answer, model) {
  const { temperature, maxTokens } = conversation.settings;
  const body = { messages: messagesFor(conversation, answer), stream: true,
    stream_options: { include_usage: true } };
  if (model) body.model = model;
  if (temperature !== null) body.temperature = temperature;
  if (maxTokens !== null) body.max_tokens = maxTokens;
  return body;
}

async function modelOf(signal) {
  const list = await (await call("v1/models", { signal, asks: true })).json();
  return list?.data?.[0]?.id;
}

const NOTES = {
  length: "Ended at the limit of tokens.",
  content_filter: "Ended by a filter.",
  tool_calls: "The model asked for a tool; this page has none.",
};

// Time to the first token and tokens a second, as the browser saw them.
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

function take(answer, data, clock) {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    throw new ApiError("The server sent something that is no JSON.");
  }
  if (chunk.error) throw new ApiError(chunk.error.message ?? "The server failed.");
  const choice = chunk.choices?.[0];
  const { content, reasoning_content: reasoning } = choice?.delta ?? {};
  if (content || reasoning) clock.token();
  if (content) answer.content += content;
  if (reasoning) answer.reasoning += reasoning;
  answer.stats = clock.stats(chunk.usage?.completion_tokens);
  if (choice?.finish_reason) answer.note = NOTES[choice.finish_reason] ?? "";
}

// Fills `answer`, the last message, in; calls changed() after each piece. Errors and a stop end up
// in the message; it never throws.
export async function streamAnswer(conversation, answer, signal, changed) {
  try {
    const model = await modelOf(signal);
    const clock = new Clock();
    const body = requestFor(conversation, answer, model);
    const response = await call("v1/chat/completions", { body, signal, asks: true });
    for await (const data of events(response, signal)) {
      take(answer, data, clock);
      changed();
    }
    if (answer.content === "" && !answer.note) answer.note = "The model said nothing.";
  } catch (error) {
    if (signal.aborted) answer.note = "Stopped.";
    else answer.error = error.message;
  }
  changed();
}
