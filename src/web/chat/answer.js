// An answer as it grows out of the events of POST /v1/chat/completions. Pure: `nowMs` comes from the caller.

// "prompt 40 % (400 of 1000 tokens), about 3 s left" | "queued, 2 before this" | "working" → what to show.
export function parseProgress(comment) {
  const queued = /^queued, (\d+) before this$/.exec(comment);
  if (queued) return { stage: "queued", before: Number(queued[1]) };
  const prompt = /^prompt (\d+) % \((\d+) of (\d+) tokens\)(?:, about (\d+) s left)?$/.exec(comment);
  if (prompt) {
    const [done, total] = [Number(prompt[2]), Number(prompt[3])];
    return {
      stage: "prompt",
      done,
      total,
      share: total > 0 ? Math.min(1, done / total) : 0,
      secondsLeft: prompt[4] === undefined ? null : Number(prompt[4]),
    };
  }
  return comment === "working" ? { stage: "working" } : null;
}

export class Answer {
  text = "";
  reasoning = "";
  calls = []; // tool calls, shown and not made
  progress = null; // until the first token
  finish = null; // 'stop', 'length', 'tool_calls'; null while it runs or when it broke
  error = null;
  usage = null;
  timings = null;
  firstTokenMs = null; // since it was asked for
  reasoningMs = null; // from its first to the first of the answer's own text
  #askedMs;

  constructor(nowMs) {
    this.#askedMs = nowMs;
  }

  take(event, nowMs) {
    if (event.comment !== undefined) {
      if (this.firstTokenMs === null) this.progress = parseProgress(event.comment) ?? this.progress;
      return;
    }
    if (event.data === "[DONE]") return;
    let chunk;
    try {
      chunk = JSON.parse(event.data);
    } catch {
      this.error = "The server sent something that is not JSON.";
      return;
    }
    if (chunk.error) this.error = chunk.error.message ?? "The server reports an error without saying which.";
    if (chunk.usage) this.usage = chunk.usage;
    if (chunk.timings) this.timings = chunk.timings;
    const choice = chunk.choices?.[0];
    if (choice) this.#takeChoice(choice, nowMs);
  }

  #takeChoice({ delta = {}, finish_reason: finish }, nowMs) {
    const text = delta.content ?? "";
    const reasoning = delta.reasoning_content ?? "";
    if ((text || reasoning || delta.tool_calls) && this.firstTokenMs === null) {
      this.firstTokenMs = nowMs - this.#askedMs;
      this.progress = null;
    }
    if (reasoning) this.reasoning += reasoning;
    if (text) {
      if (this.reasoning && !this.text) this.reasoningMs = nowMs - this.#askedMs - this.firstTokenMs;
      this.text += text;
    }
    for (const part of delta.tool_calls ?? []) {
      const call = (this.calls[part.index ?? 0] ??= { name: "", arguments: "" });
      call.name += part.function?.name ?? "";
      call.arguments += part.function?.arguments ?? "";
    }
    if (finish) this.finish = finish;
  }

  // What is kept beside the message, all of it numbers from the server but the time to the first token.
  figures() {
    if (!this.usage || !this.timings) return null;
    const { queue_seconds: queue, prefill_seconds: prefill, decode_seconds: decode } = this.timings;
    const tokens = this.usage.completion_tokens;
    return {
      queue,
      prefill,
      decode,
      tokens,
      promptTokens: this.usage.prompt_tokens,
      cachedTokens: this.usage.prompt_tokens_details?.cached_tokens ?? 0,
      reasoningTokens: this.usage.completion_tokens_details?.reasoning_tokens ?? 0,
      firstToken: this.firstTokenMs === null ? null : this.firstTokenMs / 1000,
      // The first token comes out of the prompt's own last pass.
      rate: tokens > 1 && decode > 0 ? (tokens - 1) / decode : null,
      bytesRead: this.timings.bytes_read,
      hitRate: this.timings.hit_rate,
    };
  }
}

// The parts of a waterfall: [{name, seconds, from, share}] of the whole.
export function waterfall(figures) {
  const parts = [
    ["Queue", figures.queue],
    ["Prompt", figures.prefill],
    ["Answer", figures.decode],
  ];
  const total = parts.reduce((sum, [, seconds]) => sum + (seconds || 0), 0);
  let from = 0;
  return parts.map(([name, seconds]) => {
    const share = total > 0 ? (seconds || 0) / total : 0;
    const part = { name, seconds, from, share };
    from += share;
    return part;
  });
}
