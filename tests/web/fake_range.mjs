// A made-up range map, as src/range/range_file.h has it. Its random numbers are seeded.

export const kTopics = [
  "python",
  "sql",
  "proofs",
  "poetry",
  "contracts",
  "clinical",
  "chinese",
  "japanese",
  "russian",
  "json",
  "chat",
  "history",
];

export function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

// Of a model of `layers` × `experts`: a part of its credits can be tested, most of those repeat.
export function fakeRange(layers, experts) {
  const draw = random(11);
  const normal = () => Math.sqrt(-2 * Math.log(1 - draw())) * Math.cos(2 * Math.PI * draw());
  const within = (value, bound) => Math.max(-bound, Math.min(bound, value));
  const centres = kTopics.map((_, i) => {
    const y = 1 - (2 * (i + 0.5)) / kTopics.length;
    const r = Math.sqrt(1 - y * y);
    return [r * Math.cos(2.4 * i), y, r * Math.sin(2.4 * i)];
  });
  const list = [];
  for (let layer = 0; layer < layers; layer++) {
    for (let expert = 0; expert < experts; expert++) {
      const liking = Math.floor(draw() * kTopics.length);
      const specialisation = Math.min(0.97, Math.max(0.02, 0.3 + 0.22 * normal()));
      const activations = Math.floor(-60 * Math.log(1 - draw()));
      const topic = activations > 24 && specialisation > 0.35 ? liking : null;
      list.push({
        layer,
        expert,
        activations,
        specialisation,
        topic,
        position: centres[liking].map((x) => within(x * specialisation * 1.1 + 0.09 * normal(), 2)),
        repeats: topic === null || draw() < 0.1 ? null : draw() < 0.8,
      });
    }
  }
  const credited = list.filter(({ topic }) => topic !== null).length;
  const tested = list.filter(({ repeats }) => repeats !== null).length;
  const repeated = list.filter(({ repeats }) => repeats === true).length;
  return {
    version: 1,
    model: "00c0ffee00c0ffee",
    topics: kTopics,
    tokens: kTopics.map(() => 900),
    held_out_tokens: kTopics.map(() => 880),
    activations_over: 24,
    specialisation_over: 0.35,
    variance_explained: [0.31, 0.19, 0.13],
    credited,
    tested,
    repeated,
    repeat_rate: tested > 0 ? repeated / tested : null,
    by_chance: {
      credited: credited * 0.004,
      repeated: credited * 0.0004,
      repeat_rate: tested > 0 ? 0.0871 : null,
    },
    experts: list,
  };
}
