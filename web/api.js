// Calls of the server. Paths are relative to the page, so that it works behind a proxy's folder.

const KEY = "weft.key";

// What went wrong, in the server's words where it said any. status 0: it could not be reached.
export class ApiError extends Error {
  constructor(message, status = 0, code = "") {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const apiKey = {
  get() {
    try {
      return localStorage.getItem(KEY) ?? "";
    } catch {
      return apiKey.unkept;
    }
  },
  set(value) {
    apiKey.unkept = value;
    try {
      if (value) localStorage.setItem(KEY, value);
      else localStorage.removeItem(KEY);
    } catch { /* without storage it holds until the page is closed */ }
  },
  unkept: "",
};

// Set by the page: shows the server's words and asks for a key; true when there is one to try.
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

// One request; the whole Response of a success. asks: whether a 401 may open the key's dialog.
export async function call(path, { body, signal, asks = false } = {}) {
  for (;;) {
    const headers = {};
    const key = apiKey.get();
    if (key) headers.Authorization = `Bearer ${key}`;
    if (body) headers["Content-Type"] = "application/json";
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
    const { message, code } = await wordsOf(response);
    if (response.status === 401 && asks) {
      // Several requests that fail together ask once.
      asking ??= keyAsker.ask(message).finally(() => (asking = null));
      if (await asking) continue;
    }
    throw new ApiError(message, response.status, code ?? "");
  }
}

// The events of a stream (text/event-stream): what stands after "data:". Ends with "[DONE]"; a
// stream that breaks off before throws.
export async function* events(response, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let piece;
    try {
      piece = await reader.read();
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError("The connection to the server broke off.");
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
