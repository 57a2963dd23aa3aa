// range.json (src/range/range_file.h) as this page uses it. Pure; a map that does not hold together is refused with
// the reason.
import { normalise } from "./projection.js";

const kActivationsOver = 24; // where a map does not say; at most so often: seen too seldom to say anything of it
export const kNone = -1; // the topic of an expert that has none credited

export function readMap(data) {
  const bad = (what) => new Error(`The range map cannot be shown: ${what}.`);
  if (data?.version !== 1) throw bad(`version ${data?.version} is unknown`);
  if (!Array.isArray(data.topics) || !data.topics.every((name) => typeof name === "string"))
    throw bad("it names no topics");
  if (!Array.isArray(data.experts)) throw bad("it has no experts");
  for (const [i, expert] of data.experts.entries()) {
    const { topic } = expert;
    if (!Number.isInteger(expert.layer) || !Number.isInteger(expert.expert))
      throw bad(`expert ${i} has no place`);
    if (topic !== null && !(Number.isInteger(topic) && topic >= 0 && topic < data.topics.length))
      throw bad(`expert ${i} has an unknown topic`);
  }
  const topicOf = Int16Array.from(data.experts, ({ topic }) => topic ?? kNone);
  const counts = new Uint32Array(data.topics.length);
  for (const topic of topicOf) if (topic !== kNone) counts[topic]++;
  const activationsOver = data.activations_over ?? kActivationsOver;
  return {
    topics: data.topics,
    experts: data.experts,
    topicOf,
    counts,
    uncredited: topicOf.length - counts.reduce((sum, n) => sum + n, 0),
    activationsOver,
    faint: Uint8Array.from(data.experts, ({ activations }) => (activations > activationsOver ? 0 : 1)),
    points: normalise(data.experts.map(({ position }) => position)),
    varianceExplained: Array.isArray(data.variance_explained) ? data.variance_explained : [],
    credited: data.credited ?? NaN,
    tested: data.tested ?? NaN,
    repeated: data.repeated ?? NaN,
    repeatRate: data.repeat_rate ?? NaN, // null: nothing could be tested
    byChance: {
      credited: data.by_chance?.credited ?? NaN,
      repeated: data.by_chance?.repeated ?? NaN,
      repeatRate: data.by_chance?.repeat_rate ?? NaN,
    },
  };
}

// 1 for each expert whose topic is shown. `hidden`: topics (and kNone) that the legend switched off.
export function visibleExperts(map, hidden) {
  return Uint8Array.from(map.topicOf, (topic) => (hidden.has(topic) ? 0 : 1));
}

export function indexOf(map, layer, expert) {
  return map.experts.findIndex((entry) => entry.layer === layer && entry.expert === expert);
}
