// Two minutes of what the server counts, as rates. Counters only grow; a smaller one means that another server
// answers now, and the history begins anew. Pure: the time comes with each sample.

export const kSecondsKept = 120;

export class Rates {
  points = []; // oldest first
  #before = null;

  // `stats`: {now, counters} as /wader/stats and the stats event have them.
  push(seconds, { now, counters }) {
    const before = this.#before;
    this.#before = { seconds, counters };
    if (before && Object.keys(counters).some((name) => counters[name] < before.counters[name])) {
      this.points = [];
      return;
    }
    if (!before || seconds - before.seconds < 0.2) {
      if (before) this.#before = before;
      return;
    }
    const span = seconds - before.seconds;
    const grown = (name) => (counters[name] ?? 0) - (before.counters[name] ?? 0);
    const share = (part, whole) => (whole > 0 ? part / whole : NaN);
    const asked = grown("hits") + grown("misses");
    this.points.push({
      seconds,
      diskRate: grown("bytes_read") / span,
      hitRate: share(grown("hits"), asked),
      lookaheadRight: share(grown("predicted_right"), grown("predicted")),
      // Of the time that reads took, what computing covered.
      hidden: share(grown("hidden_seconds"), grown("hidden_seconds") + grown("wait_seconds")),
      decodeRate: grown("decode_tokens") / span,
      prefillRate: grown("prefill_tokens") / span,
      running: now.running,
      queued: now.queued,
      resident: now.resident_bytes,
    });
    while (this.points.length > 0 && seconds - this.points[0].seconds > kSecondsKept) this.points.shift();
  }

  // Another model counts from the start, and what the former one did says nothing of it.
  clear() {
    this.points = [];
    this.#before = null;
  }

  last() {
    return this.points.at(-1) ?? null;
  }
}
