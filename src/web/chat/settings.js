// How to ask: the fields of the settings' form, what they may hold, and the part of a request they become.
// An empty field leaves the choice to the model's own generation_config.json.

export const kFields = [
  {
    name: "temperature",
    label: "Temperature",
    min: 0,
    max: 2,
    step: 0.05,
    help: "0 always takes the likeliest token",
  },
  { name: "top_p", label: "Top p", min: 0, max: 1, step: 0.01, help: "Likeliest tokens up to this share" },
  { name: "top_k", label: "Top k", min: 0, max: 1000, step: 1, help: "This many tokens; 0 is off" },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: 0.01, help: "Of the likeliest token’s probability" },
  {
    name: "repetition_penalty",
    label: "Repetition penalty",
    min: 0.01,
    max: 100,
    step: 0.01,
    help: "1 is off",
  },
  {
    name: "max_tokens",
    label: "Longest answer",
    min: 1,
    max: 2147483647,
    step: 1,
    help: "In tokens, with reasoning",
  },
  {
    name: "seed",
    label: "Seed",
    min: 0,
    max: Number.MAX_SAFE_INTEGER,
    step: 1,
    help: "Makes an answer repeatable",
  },
];

export const kEfforts = [
  ["", "Model’s default"],
  ["none", "Off"],
  ["low", "Low"],
  ["medium", "Medium"],
  ["high", "High"],
];

export const kDefaults = Object.freeze({ system: "", reasoning_effort: "" });

// null for an empty field; {error} says what is wrong with it.
export function parseField(field, text) {
  const trimmed = String(text ?? "").trim();
  if (!trimmed) return { value: null };
  const value = Number(trimmed);
  if (!Number.isFinite(value)) return { error: `${field.label}: a number is wanted` };
  if (field.step === 1 && !Number.isInteger(value))
    return { error: `${field.label}: a whole number is wanted` };
  if (value < field.min || value > field.max)
    return { error: `${field.label}: ${field.min} to ${field.max} is possible` };
  return { value };
}

export function requestParameters(settings) {
  const out = {};
  for (const field of kFields) {
    const { value } = parseField(field, settings[field.name]);
    if (value !== null && value !== undefined) out[field.name] = value;
  }
  if (kEfforts.some(([effort]) => effort && effort === settings.reasoning_effort))
    out.reasoning_effort = settings.reasoning_effort;
  return out;
}

// How many settings differ from the model's own, for the button that opens them.
export function changedCount(settings) {
  return Object.keys(requestParameters(settings)).length + (settings.system?.trim() ? 1 : 0);
}
