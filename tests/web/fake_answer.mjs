// Made-up answers of /v1/chat/completions: one with all that Markdown has, and one that attacks the page.

const kMarkdown = `## Two ways to merge

A *sorted* merge walks both lists **once**; the other way sorts again. In short:

1. Compare the two heads.
2. Take the smaller one.
   - Ties go to the left, so that the order stays stable.
   - \`heapq.merge\` does the same, lazily.
3. Copy what is left.

\`\`\`python
def merge(a: list[int], b: list[int]) -> list[int]:
    """Merge two sorted lists in O(len(a) + len(b))."""
    out, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if a[i] <= b[j]:
            out.append(a[i]); i += 1
        else:
            out.append(b[j]); j += 1
    return out + a[i:] + b[j:]
\`\`\`

| Way | Time | Extra memory |
|:--|--:|--:|
| merge | O(n) | O(n) |
| \`sorted(a + b)\` | O(n log n) | O(n) |

> Timsort finds the two runs by itself, so the second is nearly as fast.

See [the heapq module](https://docs.python.org/3/library/heapq.html) for more.
`;

export const kHostile = `<script>document.title = 'owned'</script>

<img src=x onerror="document.title='owned'"> and <b onclick=alert(1)>bold?</b>

[a link](javascript:document.title='owned') and [data](data:text/html,<script>1</script>) and
[spaced]( java\tscript:alert(1) ) and <javascript:alert(1)>

![tracker](https://tracker.invalid/pixel.png)

\u001b[31mred\u001b[0m and \u202eright to left

\`\`\`"><img src=x onerror=alert(1)>
</code></pre><script>document.title = 'owned'</script>
\`\`\`

| <img src=x onerror=alert(1)> | b |
|---|---|
| [x](vbscript:1) | <iframe src="https://tracker.invalid"></iframe> |
`;

const kReasoning =
  "The user wants two sorted lists merged. A table would help to compare the ways, and a short " +
  "piece of code. Keep it *brief*.";

// Cuts as a tokeniser might: a word with the space before it.
const pieces = (text) => text.match(/\s*\S{1,7}|\s+/g) ?? [];

export async function fakeAnswer(body, outgoing, model) {
  outgoing.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
  let open = true;
  outgoing.on("close", () => (open = false));
  const send = (choice, more = {}) =>
    outgoing.write(
      `data: ${JSON.stringify({
        id: "chatcmpl-mock",
        object: "chat.completion.chunk",
        model: body.model,
        choices: choice ? [{ index: 0, finish_reason: null, ...choice }] : [],
        ...more,
      })}\n\n`,
    );
  const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
  const question = body.messages.at(-1).content;

  if (/slow/.test(question)) {
    for (const comment of [
      "queued, 2 before this",
      "queued, 1 before this",
      "prompt 20 % (200 of 1000 tokens), about 4 s left",
      "prompt 60 % (600 of 1000 tokens), about 2 s left",
      "prompt 90 % (900 of 1000 tokens), about 1 s left",
    ]) {
      outgoing.write(`: ${comment}\n\n`);
      await sleep(700);
    }
  }
  const stop = model.answer();
  send({ delta: { role: "assistant", content: "" } });
  const reasoning = body.reasoning_effort === "none" ? [] : pieces(kReasoning);
  const limit = body.max_tokens ?? Infinity;
  const answer = pieces(/hostile/.test(question) ? kHostile : kMarkdown);
  const pause = 1000 / model.rate;
  const began = performance.now();
  let tokens = 0;
  for (const [key, list] of [
    ["reasoning_content", reasoning],
    ["content", answer],
  ]) {
    for (const piece of list) {
      if (!open || model.stopped || tokens >= limit) break;
      tokens++;
      send({ delta: { [key]: piece } });
      await sleep(pause);
    }
  }
  stop();
  if (!open) return;
  if (model.stopped)
    return outgoing.end(
      `data: ${JSON.stringify({ error: { message: "another model is being loaded" } })}\n\n`,
    );
  send({ delta: {}, finish_reason: tokens >= limit ? "length" : "stop" });
  send(null, {
    usage: {
      prompt_tokens: 74,
      completion_tokens: tokens,
      total_tokens: 74 + tokens,
      prompt_tokens_details: { cached_tokens: 12 },
      completion_tokens_details: { reasoning_tokens: reasoning.length },
    },
    timings: {
      queue_seconds: 0.02,
      prefill_seconds: 0.41,
      decode_seconds: (performance.now() - began) / 1000,
      bytes_read: 1.74e9,
      hit_rate: 0.861,
    },
  });
  outgoing.end("data: [DONE]\n\n");
}
