// Bodies as the type definitions of the npm package openai 6.49.0 have them (resources/chat/completions, resources/completions,
// resources/responses), and what Wader adds. Strict: a field that no client knows is an error here.
import { z } from "./client.mjs";

const count = z.number().int().nonnegative();
const timings = z.strictObject({
  queue_seconds: z.number().nonnegative(), prefill_seconds: z.number().nonnegative(),
  decode_seconds: z.number().nonnegative(), bytes_read: count, hit_rate: z.number().min(0).max(1),
});
export const usage = z.strictObject({
  prompt_tokens: count.min(1), completion_tokens: count, total_tokens: count,
  prompt_tokens_details: z.strictObject({ cached_tokens: count }),
  completion_tokens_details: z.strictObject({ reasoning_tokens: count }),
}).refine((u) => u.total_tokens === u.prompt_tokens + u.completion_tokens)
  .refine((u) => u.prompt_tokens_details.cached_tokens <= u.prompt_tokens)
  .refine((u) => u.completion_tokens_details.reasoning_tokens <= u.completion_tokens);

const token = { token: z.string(), logprob: z.number().max(0), bytes: z.array(count.max(255)).min(1) };
export const tokenLogprob = z.strictObject({ ...token, top_logprobs: z.array(z.strictObject(token)) });
const chatLogprobs = z.strictObject({ content: z.array(tokenLogprob), refusal: z.null() }).nullable();
const finish = z.enum(["stop", "length", "tool_calls"]);
const call = z.strictObject({
  id: z.string().min(1), type: z.literal("function"),
  function: z.strictObject({ name: z.string(), arguments: z.string() }),
});
const head = { id: z.string().regex(/^(chatcmpl|cmpl)-/), created: count, model: z.string() };

export const chatCompletion = z.strictObject({
  ...head, object: z.literal("chat.completion"), usage, timings,
  choices: z.array(z.strictObject({
    index: count, finish_reason: finish, logprobs: chatLogprobs,
    message: z.strictObject({
      role: z.literal("assistant"), content: z.string().nullable(), refusal: z.null(),
      reasoning_content: z.string().optional(), tool_calls: z.array(call).min(1).optional(),
    }),
  })).min(1),
});

const chunkHead = { ...head, object: z.literal("chat.completion.chunk") };
const chunkChoice = z.strictObject({
  index: count, finish_reason: finish.nullable(), logprobs: chatLogprobs,
  delta: z.strictObject({
    role: z.literal("assistant").optional(), content: z.string().optional(),
    reasoning_content: z.string().optional(),
    tool_calls: z.array(z.strictObject({
      index: count, id: z.string().min(1).optional(), type: z.literal("function").optional(),
      function: z.strictObject({ name: z.string().optional(), arguments: z.string() }),
    })).optional(),
  }),
});
export const chatChunk = z.strictObject({ ...chunkHead, choices: z.tuple([chunkChoice]) });
export const chatChunkWithUsage = z.union([
  z.strictObject({ ...chunkHead, choices: z.tuple([chunkChoice]), usage: z.null() }),
  z.strictObject({ ...chunkHead, choices: z.tuple([]), usage, timings }),
]);

const completionChoice = z.strictObject({
  index: count, text: z.string(), finish_reason: z.enum(["stop", "length"]).nullable(),
  logprobs: z.strictObject({
    tokens: z.array(z.string()), token_logprobs: z.array(z.number().max(0)),
    top_logprobs: z.array(z.record(z.string(), z.number().max(0))), text_offset: z.array(count),
  }).nullable(),
});
export const completion = z.strictObject({
  ...head, object: z.literal("text_completion"), usage, timings, choices: z.array(completionChoice).min(1),
});
export const completionChunk = z.strictObject({
  ...head, object: z.literal("text_completion"), choices: z.tuple([completionChoice]),
});

export const error = z.strictObject({
  error: z.strictObject({
    message: z.string().min(1), type: z.string().min(1), param: z.string().nullable(), code: z.string().nullable(),
  }),
});

const status = z.enum(["in_progress", "completed", "incomplete"]);
const textPart = z.strictObject({
  type: z.literal("output_text"), text: z.string(), annotations: z.tuple([]), logprobs: z.array(tokenLogprob),
});
const summaryPart = z.strictObject({ type: z.literal("summary_text"), text: z.string() });
export const item = z.discriminatedUnion("type", [
  z.strictObject({ type: z.literal("message"), id: z.string(), status, role: z.literal("assistant"), content: z.array(textPart) }),
  z.strictObject({
    type: z.literal("reasoning"), id: z.string(), status, summary: z.array(summaryPart),
    encrypted_content: z.string().optional(),
  }),
  z.strictObject({
    type: z.literal("function_call"), id: z.string(), status, call_id: z.string(), name: z.string(), arguments: z.string(),
  }),
]);
const responseUsage = z.strictObject({
  input_tokens: count.min(1), input_tokens_details: z.strictObject({ cached_tokens: count }),
  output_tokens: count, output_tokens_details: z.strictObject({ reasoning_tokens: count }), total_tokens: count,
});
export const response = z.strictObject({
  id: z.string().regex(/^resp_/), object: z.literal("response"), created_at: count,
  status: z.enum(["in_progress", "completed", "incomplete", "failed"]), model: z.string(), output: z.array(item),
  error: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
  incomplete_details: z.strictObject({ reason: z.enum(["max_output_tokens", "content_filter"]) }).nullable(),
  instructions: z.string().nullable(), max_output_tokens: count.nullable(), metadata: z.record(z.string(), z.string()),
  parallel_tool_calls: z.boolean(), previous_response_id: z.null(),
  reasoning: z.strictObject({ effort: z.string().nullable(), summary: z.string().nullable() }), store: z.literal(false),
  temperature: z.number(), text: z.strictObject({ format: z.strictObject({ type: z.literal("text") }) }),
  tool_choice: z.string(), tools: z.array(z.looseObject({ type: z.literal("function") })), top_logprobs: count, top_p: z.number(),
  truncation: z.literal("disabled"), usage: responseUsage.nullable(), timings: timings.optional(),
});

const at = { item_id: z.string(), output_index: count };
const event = (type, fields) => z.strictObject({ type: z.literal(type), sequence_number: count, ...fields });
export const responseEvent = z.discriminatedUnion("type", [
  ...["created", "in_progress", "completed", "incomplete", "failed"].map((name) => event(`response.${name}`, { response })),
  event("response.output_item.added", { output_index: count, item }),
  event("response.output_item.done", { output_index: count, item }),
  event("response.content_part.added", { ...at, content_index: count, part: textPart }),
  event("response.content_part.done", { ...at, content_index: count, part: textPart }),
  event("response.output_text.delta", { ...at, content_index: count, delta: z.string(), logprobs: z.array(tokenLogprob) }),
  event("response.output_text.done", { ...at, content_index: count, text: z.string(), logprobs: z.array(tokenLogprob) }),
  event("response.reasoning_summary_part.added", { ...at, summary_index: count, part: summaryPart }),
  event("response.reasoning_summary_part.done", { ...at, summary_index: count, part: summaryPart }),
  event("response.reasoning_summary_text.delta", { ...at, summary_index: count, delta: z.string() }),
  event("response.reasoning_summary_text.done", { ...at, summary_index: count, text: z.string() }),
  event("response.function_call_arguments.delta", { ...at, delta: z.string() }),
  event("response.function_call_arguments.done", { ...at, arguments: z.string(), name: z.string() }),
]);
