// What the list of models, the installs that run and the answers about them come to on the page. Pure.
import { bytes, bytesPerSecond, count, seconds } from "../lib/format.js";

// Released models that Wader reads.
export const kReleased = [
  "openai/gpt-oss-20b",
  "openai/gpt-oss-120b",
  "Qwen/Qwen3-30B-A3B-Instruct-2507",
  "Qwen/Qwen3-Coder-30B-A3B-Instruct",
  "Qwen/Qwen3-Next-80B-A3B-Instruct",
  "Qwen/Qwen3.5-35B-A3B",
  "Qwen/Qwen3.6-35B-A3B",
];

export const kExpertFormats = [
  ["auto", "As fits the release"],
  ["mxfp4", "MXFP4, 4.25 bits"],
  ["affine4", "affine4, 4.5 bits"],
  ["affine8", "affine8, 8.5 bits"],
  ["bf16", "BF16, 16 bits"],
];

const kTrunkFormats = ["affine8", "bf16"];

const kRateSeconds = 8; // a rate over less jumps, over more it lags

// Bytes a second over the last seconds of what is done. A figure that falls back begins anew.
export class TransferRate {
  #points = []; // [seconds, done], oldest first

  push(now, done) {
    if (done < (this.#points.at(-1)?.[1] ?? 0)) this.#points = [];
    this.#points.push([now, done]);
    while (this.#points.length > 2 && now - this.#points[0][0] > kRateSeconds) this.#points.shift();
  }

  // NaN while too little is known.
  get() {
    const [[from, before], [to, done]] = [this.#points[0] ?? [0, 0], this.#points.at(-1) ?? [0, 0]];
    return to - from >= 0.5 ? (done - before) / (to - from) : NaN;
  }
}

export const isUnderWay = (install) => install?.state === "running" || install?.state === "pausing";

// The card of an install: {share, far, pace, action: 'pause' | 'resume' | null, error}.
export function installFacts({ state, stage, done_bytes: done, total_bytes: total, error }, rate) {
  const share = total > 0 ? Math.min(1, done / total) : 0;
  const amount = total > 0 ? `${bytes(done)} of ${bytes(total)}` : "";
  const words = {
    running: stage || "starting",
    pausing: "pausing…",
    paused: "paused",
    done: "done",
    failed: "failed",
  };
  const pace = [];
  if (state === "running" && rate > 0) {
    pace.push(bytesPerSecond(rate));
    if (total > done) pace.push(`${seconds(roughly((total - done) / rate))} left`);
  }
  const action = { running: "pause", paused: "resume", failed: "resume" }[state] ?? null;
  const reason = error ?? "the server does not say why";
  return {
    share,
    far: [words[state] ?? state, amount].filter(Boolean).join(" · "),
    pace: pace.join(" · "),
    action,
    error: state === "failed" ? reason : "",
  };
}

// An estimate to the second pretends to know more than it does.
function roughly(value) {
  const step = value > 600 ? 60 : value > 60 ? 5 : 1;
  return Math.max(1, Math.round(value / step) * step);
}

// The installs that have a card: what runs, what waits, and what failed until somebody has seen it. `models`: names.
export function shownInstalls(installs, models, dismissed) {
  return installs.filter(
    ({ name, state }) =>
      state === "running" ||
      state === "pausing" ||
      (state === "paused" && models.has(name)) ||
      (state === "failed" && !dismissed.has(name)),
  );
}

// A line of the table: what stands there, and what can be done with reasons why not (null: it can).
export function modelFacts(model, { loading, install }) {
  const { state, serving } = model;
  const installing = isUnderWay(install);
  const badge =
    model.name === loading
      ? "loading"
      : serving
        ? "serving"
        : installing
          ? "installing"
          : state === "complete"
            ? "ready"
            : state;
  const incomplete = { unfinished: "It is not complete yet", damaged: "It is damaged" }[state] ?? null;
  const busy = installing ? "It is being installed" : model.name === loading ? "It is being loaded" : null;
  const other = loading ? `${loading} is being loaded` : null;
  const resume = state === "unfinished";
  return {
    badge,
    problem: installing ? "" : (model.problem ?? ""),
    main: resume ? "resume" : "switch",
    mainWhyNot: resume
      ? (busy ??
        (model.source || install?.source
          ? null
          : "Nobody knows where it came from: install it again by its source"))
      : (busy ?? incomplete ?? (serving ? "It is being served" : other)),
    planWhyNot: incomplete ?? other,
    removeWhyNot: serving ? "It is being served: switch to another one first" : (busy ?? other),
    shape: model.layers ? `${count(model.layers)} × ${count(model.experts)}` : "–",
    formats: [model.expert_format, model.trunk_format].filter(Boolean).join(", ") || "–",
    size: bytes(model.disk_bytes),
  };
}

// The request that goes on with an unfinished install. Other formats than it was begun with would start it over, so
// they are said: `begun` is the request that began it, where this page did; else what the list knows.
export function resumeBody({ source, expert_format: experts, trunk_format: trunk }, install, begun) {
  if (begun) return begun;
  const body = { source: install?.source || source };
  if (kExpertFormats.some(([name]) => name === experts)) body.experts = experts;
  if (kTrunkFormats.includes(trunk)) body.trunk = trunk;
  return body;
}

// What an install would do, as [name, value] rows, and whether the disk has room.
export function previewFacts(preview) {
  const { fetch_bytes: fetched, source_bytes: source, read_bytes: read, held_bytes: held = 0 } = preview;
  const needed = Math.max(0, preview.peak_bytes - held);
  const missing = Math.max(0, needed - preview.free_bytes);
  const files = preview.weight_files ? ` in ${count(preview.weight_files)} files` : "";
  const rows = [
    ["Source", preview.revision ? `${preview.source} at ${preview.revision.slice(0, 8)}` : preview.source],
    fetched > 0
      ? ["Fetched", `${bytes(fetched)} of ${bytes(source)}${files}`]
      : ["Read", `${bytes(read)} of ${bytes(source)}`],
    ["Written", `${bytes(preview.write_bytes)} to ${preview.destination}`],
    ["Experts", preview.experts],
    ["Trunk", preview.trunk],
    ["Disk needed", `${bytes(needed)} of ${bytes(preview.free_bytes)} free`],
  ];
  if (held > 0) rows.push(["There already", `${bytes(held)} of an unfinished install, which goes on`]);
  if (preview.seconds > 0)
    rows.push([
      "Time",
      `about ${seconds(roughly(preview.seconds))} at ${bytesPerSecond(preview.bytes_per_second)}`,
    ]);
  const problem = missing > 0 ? `The disk has not enough room: ${bytes(missing)} are missing.` : "";
  return { rows: rows.filter(([, value]) => value), problem };
}

// What the planner says of a model that fits, as [name, value] rows. `cells`: all its experts.
export function planFacts({ plan, context }, cells) {
  const share = cells > 0 ? ` of ${count(cells)}` : "";
  return [
    ["Experts in memory", `${count(Math.min(plan.slots, cells || plan.slots))}${share}`],
    ["Context", Number.isFinite(context) ? `${count(context)} tokens` : "–"],
    ["Conversations at once", count(plan.sessions)],
    ["Tokens a pass", `up to ${count(plan.chunk)}`],
  ];
}
