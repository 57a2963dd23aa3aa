// Server-sent events as text/event-stream defines them (HTML, 9.2.6), from pieces cut anywhere.
// Comments come out as well: the server tells in them how far a prompt is.

// One line may not grow beyond this: a stream that never ends a line would fill the memory.
const kLineMax = 4 << 20;

export class SseParser {
  #rest = "";
  #afterReturn = false;
  #event = "";
  #data = [];
  #started = false;

  // Returns what the piece completed: {comment} or {event, data}, in order.
  push(piece) {
    const out = [];
    let text = piece;
    if (!this.#started && text.length > 0) {
      this.#started = true;
      if (text.charCodeAt(0) === 0xfeff) text = text.slice(1);
    }
    if (this.#afterReturn && text.startsWith("\n")) text = text.slice(1);
    if (piece.length > 0) this.#afterReturn = piece.endsWith("\r");
    const lines = (this.#rest + text).split(/\r\n|\n|\r/);
    this.#rest = lines.pop();
    if (this.#rest.length > kLineMax) throw new Error("the stream sent a line of more than 4 MiB");
    for (const line of lines) this.#line(line, out);
    return out;
  }

  #line(line, out) {
    if (line === "") {
      if (this.#data.length > 0) out.push({ event: this.#event || "message", data: this.#data.join("\n") });
      this.#event = "";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) {
      out.push({ comment: line.slice(1).trim() });
      return;
    }
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#event = value;
  }
}
