// Seeded random choices (mulberry32), for generators whose output must be the same in every run.
export function seeded(seed) {
  let state = seed;
  function random() {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  }
  const below = (n) => Math.floor(random() * n);
  return { random, below, chance: (p) => random() < p, pick: (list) => list[below(list.length)] };
}
