// Figures of the routing as it flows by: how much of a token's choice the token before had chosen too, how many
// expert numbers two neighbouring layers share (near chance for most models, since a number means nothing across
// layers), and how often each layer found its experts in memory. Pure.

const kWeight = 1 / 24; // of the newest pass in the moving means

export class RoutingFigures {
  constructor(shape) {
    this.shape = shape;
    this.hits = new Float32Array(shape.layers).fill(NaN); // moving mean share, by layer
    this.token = NaN; // mean shares, moving
    this.layer = NaN;
    this.#before = null;
    this.#mark = new Uint32Array(shape.experts);
  }

  #before;
  #mark;
  #stamp = 0;

  // What an even-handed router would reach by chance.
  get chance() {
    return this.shape.chosen / this.shape.experts;
  }

  take(pass) {
    const { layers, chosen } = this.shape;
    for (let layer = 0; layer < layers; layer++) {
      let misses = 0;
      for (let i = layer * chosen; i < (layer + 1) * chosen; i++) misses += pass.read[i];
      this.hits[layer] = mean(this.hits[layer], 1 - misses / chosen);
    }
    let shared = 0;
    for (let layer = 1; layer < layers; layer++) shared += this.#shared(pass.ids, layer - 1, pass.ids, layer);
    if (layers > 1) this.layer = mean(this.layer, shared / (layers - 1) / chosen);
    // Only tokens of one text that follow each other say something.
    if (this.#before?.request === pass.request && pass.request > 0 && !pass.prefill) {
      let same = 0;
      for (let layer = 0; layer < layers; layer++)
        same += this.#shared(this.#before.ids, layer, pass.ids, layer);
      this.token = mean(this.token, same / layers / chosen);
    }
    this.#before = pass;
  }

  #shared(a, layerA, b, layerB) {
    const { chosen } = this.shape;
    const stamp = ++this.#stamp;
    let count = 0;
    for (let i = layerA * chosen; i < (layerA + 1) * chosen; i++) this.#mark[a[i]] = stamp;
    for (let i = layerB * chosen; i < (layerB + 1) * chosen; i++) count += this.#mark[b[i]] === stamp ? 1 : 0;
    return count;
  }
}

function mean(before, value) {
  return Number.isNaN(before) ? value : before + (value - before) * kWeight;
}
