// Talks to the server that these pages come from, and to nothing else. Addresses are relative, so the
// pages also work behind a proxy that puts them under a path.
import { SseParser } from "./sse.js";

const kKeyName = "wader.key";
let keyWanted = () => {};

export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.name = "ApiError";
    this.status = status; // 0: no answer came
  }
}

let keyHere = "";

export function apiKey() {
  try {
    return localStorage.getItem(kKeyName) ?? keyHere;
  } catch {
    return keyHere;
  }
}

export function setApiKey(key) {
  keyHere = key;
  try {
    if (key) localStorage.setItem(kKeyName, key);
    else localStorage.removeItem(kKeyName);
  } catch {
    // Storage is off: the key is this document's alone.
  }
}

// Called when the server asks for a key or refuses the one it got.
export function onKeyWanted(callback) {
  keyWanted = callback;
}

async function send(path, { method = "GET", body, signal, accept } = {}) {
  const headers = {};
  const key = apiKey();
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (accept) headers.Accept = accept;
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      signal,
      cache: "no-store",
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is it still running?", 0);
  }
  if (response.ok) return response;
  if (response.status === 401) keyWanted();
  throw new ApiError(await errorText(response), response.status);
}

async function errorText(response) {
  const text = await response.text().catch(() => "");
  try {
    const error = JSON.parse(text).error;
    const message = typeof error === "string" ? error : error?.message;
    if (typeof message === "string" && message) return message;
  } catch {
    // Not JSON: an old server, or a proxy between. The status says enough.
  }
  return `The server answered ${response.status} ${response.statusText}`.trim();
}

// null where the server says that there is nothing (204).
export async function getJson(path, options) {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json();
}

export async function postJson(path, body, options) {
  return (await send(path, { ...options, method: "POST", body })).json();
}

// Reads a stream of events to its end; `take` gets each event and comment as SseParser gives them.
export async function readEvents(path, { take, ...options }) {
  const response = await send(path, { ...options, accept: "text/event-stream" });
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new SseParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      for (const event of parser.push(decoder.decode(value, { stream: true }))) take(event);
    }
  } catch (error) {
    if (error.name === "TypeError") throw new ApiError("The connection to the server broke.", 0);
    throw error;
  } finally {
    reader.cancel().catch(() => {});
  }
}
