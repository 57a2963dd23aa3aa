// Which token of a recorded answer is shown, and what of those before still glows. Pure.

const kTrail = 6; // tokens before it that still glow
const kTrailFactor = 0.45;

export class Replay {
  position = 0;
  playing = false;
  tokensPerSecond = 4;
  #due = 0;

  constructor(answer) {
    this.answer = answer;
    this.position = Math.max(0, answer.passes.length - 1);
  }

  get length() {
    return this.answer.passes.length;
  }

  seek(position) {
    this.position = Math.max(0, Math.min(position, this.length - 1));
    this.#due = 0;
  }

  // True when another token is shown now. Stops at the end.
  advance(seconds) {
    if (!this.playing) return false;
    this.#due += seconds * this.tokensPerSecond;
    if (this.#due < 1) return false;
    const steps = Math.floor(this.#due);
    this.#due -= steps;
    this.position = Math.min(this.position + steps, this.length - 1);
    if (this.position === this.length - 1) this.playing = false;
    return true;
  }

  // [{pass, heat}], oldest first: what to light.
  lit() {
    const out = [];
    for (let i = Math.max(0, this.position - kTrail); i <= this.position; i++)
      out.push({
        pass: this.answer.passes[i],
        heat: i === this.position ? 1 : 0.6 * kTrailFactor ** (this.position - i - 1),
      });
    return out;
  }
}

// "12: 3,17,20,31" for each layer: what a screen reader, a test or a curious person can read of a token.
export function chosenText(pass, shape) {
  const lines = [];
  for (let layer = 0; layer < shape.layers; layer++) {
    const ids = [...pass.ids.subarray(layer * shape.chosen, (layer + 1) * shape.chosen)].sort(
      (a, b) => a - b,
    );
    lines.push(`${shape.layerNumbers[layer]}: ${ids.join(",")}`);
  }
  return lines.join("; ");
}
