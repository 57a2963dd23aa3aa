// How often the grid of experts is drawn. With each frame of the screen; but while the model computes on all CPUs of
// the machine that the page is shown on, a page that nobody has touched for a while draws four times a second,
// because each frame is taken from the model.

const kAttendedMs = 20_000; // after a key, a pointer's move, or coming into view
export const kRestMs = 250;
const kIdleMs = 1500; // without a pass: nothing is computed
const kSigns = ["pointermove", "pointerdown", "keydown", "wheel", "focus"];

// Whether a page from there has its browser on the server's own machine (or looks through a tunnel).
export function isThisMachine(hostname) {
  return hostname === "localhost" || hostname === "[::1]" || /^127(\.\d+){3}$/.test(hostname);
}

export class Pace {
  #now;
  #attended;
  #passMs = -Infinity; // when the last pass came
  #crowded = false;
  #callbacks = new Set();

  constructor(now = () => performance.now()) {
    this.#now = now;
    this.#attended = now();
  }

  watch(target = window) {
    for (const name of kSigns)
      target.addEventListener(name, () => this.touch(), { passive: true, capture: true });
    target.document.addEventListener("visibilitychange", () => this.touch());
  }

  // Somebody is there.
  touch() {
    const rested = this.restMs > 0;
    this.#attended = this.#now();
    if (rested) for (const callback of this.#callbacks) callback();
  }

  onWake(callback) {
    this.#callbacks.add(callback);
  }

  // What the server says of itself.
  take(facts, hostname) {
    this.#crowded = facts.engine?.spare_cpus === 0 && isThisMachine(hostname);
  }

  // The model computes.
  pass() {
    this.#passMs = this.#now();
  }

  // Nothing has been computed for a while.
  get idle() {
    return this.#now() - this.#passMs > kIdleMs;
  }

  // Milliseconds to wait before the next frame; 0 for none.
  get restMs() {
    return this.#crowded && !this.idle && this.#now() - this.#attended > kAttendedMs ? kRestMs : 0;
  }
}
