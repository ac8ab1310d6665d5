// Requests to the server. Paths are relative, so that the page works behind a proxy with a path
// prefix.

const KEY = "weft.key";

// An error, with the server's message if there is one. status 0: the server was not reached.
export class ApiError extends Error {
  constructor(message, status = 0, code = "") {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const apiKey = {
  get() {
    if (apiKey.unkept !== null) return apiKey.unkept;
    try {
      return localStorage.getItem(KEY) ?? "";
    } catch {
      return "";
    }
  },
  // Leaves out spaces and invisible characters, which a pasted text may contain.
  set(value) {
    const key = value.replace(/[\s\p{Cf}]/gu, "");
    apiKey.unkept = null;
    try {
      localStorage.removeItem(KEY);
      if (key) localStorage.setItem(KEY, key);
    } catch {
      apiKey.unkept = key;
    }
  },
  // A key that could not be stored (there is no storage, or it is full): it holds until the page is
  // closed.
  unkept: null,
};

// Whether a header can carry the key.
const isKey = (key) => /^[\x20-\x7e\x80-\xff]*$/.test(key);
const WRONG_KEY = "The API key contains a character that no key has. Enter it again.";

// Set by the page: shows the server's message and asks for a key. Returns true if there is a key to
// try.
export const keyAsker = { ask: async () => false };
let asking = null;

async function wordsOf(response) {
  const text = (await response.text().catch(() => "")).slice(0, 4000);
  try {
    const error = JSON.parse(text).error;
    if (typeof error === "string") return { message: error };
    if (typeof error?.message === "string") return error;
  } catch { /* not JSON: shown as it is */ }
  return { message: text || `The server answered ${response.status} ${response.statusText}.` };
}

// Sends one request and returns the Response of a success. asks: a 401 opens the key dialog.
export async function call(path, { body, signal, asks = false } = {}) {
  for (;;) {
    const headers = {};
    const key = apiKey.get();
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body) headers["Content-Type"] = "application/json";
    let status = 401, words = { message: WRONG_KEY };
    if (isKey(key)) {
      let response;
      try {
        response = await fetch(path, {
          method: body ? "POST" : "GET",
          headers,
          body: body && JSON.stringify(body),
          signal,
          cache: "no-store",
        });
      } catch (error) {
        if (signal?.aborted) throw error;
        throw new ApiError("The server can't be reached.");
      }
      if (response.ok) return response;
      status = response.status;
      words = await wordsOf(response);
    }
    const { message, code } = words;
    if (status === 401 && asks) {
      // Requests that fail at the same time open one dialog.
      asking ??= keyAsker.ask(message).finally(() => (asking = null));
      if (await asking) continue;
    }
    throw new ApiError(message, status, code ?? "");
  }
}

// Yields the data of each server-sent event. Ends at "[DONE]"; throws if the stream ends earlier.
export async function* events(response, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError("The connection to the server was lost.");
    }
    if (piece.done) throw new ApiError("The server ended the answer before it was complete.");
    const lines = (rest + piece.value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data:")) continue;
      const data = line.slice(5).trim();
      if (data === "[DONE]") return;
      yield data;
    }
  }
}
