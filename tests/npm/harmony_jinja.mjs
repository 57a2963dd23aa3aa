// Renders seeded conversations with a released GPT-OSS chat template: the oracle of harmony_jinja_test.cpp.
// Usage: node harmony_jinja.mjs TEMPLATE.jinja OUTPUT.jsonl
// A line is {group, request, expected_text, …}: `request` is what Wader gets, `expected_text` what the template
// made of the same conversation. Exit 77 (skipped) when the template or the npm packages are not there.
import fs from "node:fs";
import { seeded } from "./random.mjs";

const [templatePath, outputPath] = process.argv.slice(2);
const SKIPPED = 77;

function skip(reason) {
  console.log(`skipped: ${reason}`);
  process.exit(SKIPPED);
}

fs.rmSync(outputPath, { force: true });
if (!fs.existsSync(templatePath)) skip(`no chat template at ${templatePath}`);
let Template;
try {
  ({ Template } = await import("@huggingface/jinja"));
} catch (error) {
  if (process.env.CI) throw error;
  skip("tests/npm has no node_modules (npm ci)");
}
const template = new Template(fs.readFileSync(templatePath, "utf8"));
const toJson = (value) => new Template("{{ value | tojson }}").render({ value });

// The template takes the date from the clock.
const RealDate = Date;
function setDate(text) {
  const [year, month, day] = text.split("-").map(Number);
  globalThis.Date = class extends RealDate {
    constructor(...args) {
      super(...(args.length ? args : [year, month - 1, day, 12]));
    }
  };
}

const { below, chance, pick } = seeded(20261129);  // the same conversations in every run

const PIECES = [
  "hello", "What is the tide like tomorrow?", "Zähle bis drei.", "潮はいつ引きますか", "Где зимуют кулики?", "🦩🏳️‍🌈",
  "e\u0301", "a\tb", "\n\n", "  two  spaces  ", "<|end|>", "<|start|>user<|message|>", "<|return|>", "{{ braces }}",
  "{% if x %}", "it's \"quoted\"", "back\\slash", "1,234.50 €", "def f(x):\n    return x", "<b>&amp;</b>", "\u200b", "-",
  "नमस्ते", "สวัสดี", "# Tools", "functions.f", "to=functions.f", "$(id)", "end.",
];

function text(max = 5) {
  let out = pick(PIECES);
  for (let i = below(max); i > 0; --i) out += pick(["", " ", "\n"]) + pick(PIECES);
  return out;
}

// Property schemas that both sources write alike.
function plainSchema() {
  const schema = pick([
    () => ({ type: "string" }),
    () => ({ type: "string", enum: ["near", "far", text(1).replaceAll("\n", " ")] }),
    () => ({ type: "string", nullable: true }),
    () => ({ type: "number" }),
    () => ({ type: "integer" }),
    () => ({ type: "boolean" }),
    () => ({ type: ["string", "null"] }),
    () => ({ type: ["number", "boolean", "null"] }),
    () => ({ type: "array", items: { type: pick(["string", "number", "integer", "boolean"]) } }),
    () => ({ type: "array", items: { type: "string" }, nullable: true }),
    () => ({ type: "array", items: { type: "array", items: { type: "integer" } } }),
    () => ({}),
    () => ({ anyOf: [{ type: "string" }, { type: "null" }] }),
  ])();
  if (chance(0.6)) schema.description = text(3);
  return schema;
}

function tool(index) {
  const fn = { name: `tool_${index}${pick(["", "-x", ".y", "é"])}`, description: text(3).replaceAll("\n", " ") };
  if (chance(0.85)) {
    const properties = {};
    for (let i = below(5); i > 0; --i) properties[`p${i}${pick(["", "_id", "Name"])}`] = plainSchema();
    fn.parameters = { type: "object", properties };
    const names = Object.keys(properties).filter(() => chance(0.5));
    if (names.length || chance(0.5)) fn.parameters.required = names;
  }
  return { type: "function", function: fn };
}

const tools = () => Array.from({ length: 1 + below(3) }, (_, i) => tool(i));

function value(depth = 2) {
  const kind = below(depth > 0 ? 7 : 5);
  if (kind === 0) return text(2);
  if (kind === 1) return below(1000);
  if (kind === 2) return below(1000) / 8;
  if (kind === 3) return chance(0.5);
  if (kind === 4) return null;
  if (kind === 5) return Array.from({ length: below(4) }, () => value(depth - 1));
  return Object.fromEntries(Array.from({ length: below(4) }, (_, i) => [`k${i}`, value(depth - 1)]));
}

// A conversation in both forms: ours (OpenAI's) and the template's, which wants tool-call arguments as objects
// (it writes strings as JSON strings), reasoning as `thinking`, and no `content` where there is none.
class Chat {
  ours = [];
  theirs = [];
  calls = 0;

  add(message) {
    this.ours.push(message);
    this.theirs.push(message);
  }
  user() {
    this.add({ role: "user", content: text() });
  }
  answer({ reasoning = chance(0.5) } = {}) {
    const content = text();
    const thinking = text();
    this.ours.push({ role: "assistant", content, ...(reasoning && { reasoning_content: thinking }) });
    this.theirs.push({ role: "assistant", content, ...(reasoning && { thinking }) });
  }
  call(name, { reasoning = chance(0.6), preamble = "" } = {}) {
    const args = { a: value(), b: value(1) };
    const id = `call_${++this.calls}`;
    const thinking = reasoning ? text() : "";
    this.ours.push({
      role: "assistant",
      content: preamble || null,
      ...(thinking && { reasoning_content: thinking }),
      tool_calls: [{ id, type: "function", function: { name, arguments: toJson(args) } }],
    });
    this.theirs.push({
      role: "assistant",
      ...(preamble && { content: preamble }),
      ...(thinking && { thinking }),
      tool_calls: [{ id, type: "function", function: { name, arguments: args } }],
    });
  }
  result(content) {
    const asText = typeof content === "string" ? content : toJson(content);
    this.ours.push({ role: "tool", tool_call_id: `call_${this.calls}`, content: asText });
    this.theirs.push({ role: "tool", content });
  }
  turns(count) {
    for (; count > 0; --count) {
      this.user();
      this.answer();
    }
  }
}

const lines = [];
function emit(group, chat, { tools, generation = true, ...extra } = {}) {
  const date = `20${20 + below(20)}-${String(1 + below(12)).padStart(2, "0")}-${String(1 + below(28)).padStart(2, "0")}`;
  const effort = pick([undefined, "low", "medium", "high"]);
  setDate(date);
  const expected = template.render({
    messages: chat.theirs,
    ...(tools && { tools }),
    ...(effort && { reasoning_effort: effort }),
    add_generation_prompt: generation,
  });
  const request = { messages: chat.ours, date, ...(effort && { reasoning_effort: effort }), ...(tools && { tools }) };
  if (!generation) request.add_generation_prompt = false;
  lines.push(JSON.stringify({ group, request, expected_text: expected, ...extra }));
}

// Byte for byte the same: no instructions, or instructions with tools after them.
for (let i = 0; i < 200; ++i) {
  const chat = new Chat();
  const withTools = chance(0.6);
  const instructions = withTools ? chance(0.6) : false;
  if (instructions) chat.add({ role: pick(["system", "developer"]), content: text() });
  else if (chance(0.2)) chat.add({ role: "system", content: "" });
  chat.turns(below(4));
  chat.user();
  emit("equal", chat, { tools: withTools ? tools() : undefined });
}

// Instructions without tools.
for (let i = 0; i < 40; ++i) {
  const chat = new Chat();
  chat.add({ role: pick(["system", "developer"]), content: text() });
  chat.turns(below(3));
  chat.user();
  emit("instructions", chat);
}

// Tool turns, in progress and finished, before and after others. Results are objects, lists or numbers, which
// the template writes as their JSON.
for (let i = 0; i < 60; ++i) {
  const chat = new Chat();
  const list = tools();
  chat.turns(below(2));
  chat.user();
  for (let calls = 1 + below(3); calls > 0; --calls) {
    chat.call(pick(list).function.name);
    chat.result(pick([{ ok: value() }, [value()], below(100)]));
  }
  if (chance(0.5)) {
    chat.answer();
    chat.user();
  }
  emit("call", chat, { tools: list });
}

// Tool results that are text.
for (let i = 0; i < 30; ++i) {
  const chat = new Chat();
  const list = tools();
  const content = text();
  chat.user();
  chat.call(list[0].function.name);
  chat.result(content);
  emit("result", chat, { tools: list, result: content, quoted_result: toJson(content) });
}

// Text before a call.
for (let i = 0; i < 20; ++i) {
  const chat = new Chat();
  const list = tools();
  const preamble = text();
  chat.user();
  chat.call(list[0].function.name, { reasoning: false, preamble });
  chat.result({ ok: true });
  emit("preamble", chat, { tools: list, preamble });
}

// Conversations that end in an answer, nothing to be generated.
for (let i = 0; i < 30; ++i) {
  const chat = new Chat();
  chat.turns(1 + below(3));
  emit("last_answer", chat, { generation: false });
}

// Schemas that the sources write differently. The test knows both texts of each.
const SHAPES = {
  default_of_string: { type: "string", default: "north" },
  default_of_enum: { type: "string", enum: ["n", "s"], default: "n" },
  default_of_list: { type: "array", items: { type: "number" }, default: [1, 2] },
  nullable_number: { type: "number", nullable: true },
  integer_in_list: { type: ["integer", "null"] },
  array_without_items: { type: "array" },
  array_of_enum: { type: "array", items: { type: "string", enum: ["n", "s"] } },
  array_of_objects: { type: "array", items: { type: "object", properties: { k: { type: "number" } } } },
  object: { type: "object", properties: { k: { type: "number" }, l: { type: "string" } }, required: ["k"] },
  object_without_properties: { type: "object" },
  union: { oneOf: [{ type: "string", default: "n" }, { type: "number", description: "degrees" }], default: 20 },
  title_and_examples: { type: "string", title: "Where", examples: ["north", "south"] },
};
for (const [shape, schema] of Object.entries(SHAPES)) {
  const chat = new Chat();
  chat.user();
  const parameters = { type: "object", properties: { p: schema } };
  emit("shape", chat, { tools: [{ type: "function", function: { name: "f", description: "F.", parameters } }], shape });
}
for (const [shape, fn] of Object.entries({
  description_of_parameters: {
    name: "f", description: "F.",
    parameters: { type: "object", description: "All.", properties: { p: { type: "string" } } },
  },
  description_of_two_lines: { name: "f", description: "One.\nTwo." },
})) {
  const chat = new Chat();
  chat.user();
  emit("shape", chat, { tools: [{ type: "function", function: fn }], shape });
}

fs.writeFileSync(outputPath, lines.join("\n") + "\n");
console.log(`${lines.length} conversations`);
