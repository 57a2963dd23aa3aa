// How warm every expert is. Heat goes up when an expert is chosen and halves with time; only warm cells are
// visited, so that the cost of a frame follows what happened and not the size of the model. Pure.

export const kHeatSteps = 48;
export const kSources = 2; // what a chosen expert's weights came from: memory, disk
export const kColours = 2 * kHeatSteps * kSources;
const kHalfLifeSeconds = 0.6;
const kWarm = 1;
const kFresh = 2; // chosen since the last frame
const kCold = 0.5 / kHeatSteps;

export class Heat {
  constructor(cells) {
    this.heat = new Float32Array(cells); // 0 … 1
    this.read = new Uint8Array(cells); // whether it was read from the disk when last chosen
    this.counts = new Uint32Array(cells); // times chosen since the page looks
    this.resident = new Uint8Array(cells);
    this.shade = new Uint16Array(cells); // colour that is on the screen, of kColours
    this.#warm = new Int32Array(cells);
    this.#isWarm = new Uint8Array(cells);
    this.#changed = new Int32Array(cells);
    this.#isChanged = new Uint8Array(cells);
  }

  #warm;
  #warmCount = 0;
  #isWarm;
  #changed;
  #changedCount = 0;
  #isChanged;

  choose(cell, fromDisk, heat = 1) {
    this.read[cell] = fromDisk ? 1 : 0;
    this.heat[cell] = Math.max(heat, this.heat[cell]);
    this.#wake(cell);
  }

  setResident(resident) {
    for (let cell = 0; cell < resident.length; cell++) {
      if (this.resident[cell] === resident[cell]) continue;
      this.resident[cell] = resident[cell];
      this.#touch(cell);
    }
  }

  setResidentCell(cell) {
    if (this.resident[cell]) return;
    this.resident[cell] = 1;
    this.#touch(cell);
  }

  // A cell chosen since the last time is painted as hot as it is, and fades from then on.
  advance(seconds) {
    this.#fade(0.5 ** (seconds / kHalfLifeSeconds), true);
  }

  cool() {
    this.#fade(0, false);
  }

  #fade(factor, sparing) {
    let kept = 0;
    for (let i = 0; i < this.#warmCount; i++) {
      const cell = this.#warm[i];
      if (!sparing || this.#isWarm[cell] !== kFresh) this.heat[cell] *= factor;
      this.#touch(cell);
      if (this.heat[cell] > kCold) {
        this.#warm[kept++] = cell;
        this.#isWarm[cell] = kWarm;
      } else {
        this.heat[cell] = 0;
        this.read[cell] = 0;
        this.#isWarm[cell] = 0;
      }
    }
    this.#warmCount = kept;
  }

  // Every cell must be painted again: another size, another theme.
  touchAll() {
    this.shade.fill(0xffff);
    for (let cell = 0; cell < this.heat.length; cell++) this.#touch(cell);
  }

  get warmCount() {
    return this.#warmCount;
  }

  // Calls paint(cell, colour) for each cell whose colour is another one now; returns how many.
  flush(paint) {
    let painted = 0;
    for (let i = 0; i < this.#changedCount; i++) {
      const cell = this.#changed[i];
      this.#isChanged[cell] = 0;
      const shade = shadeOf(this.resident[cell], this.heat[cell], this.read[cell]);
      if (shade === this.shade[cell]) continue;
      this.shade[cell] = shade;
      paint(cell, shade);
      painted++;
    }
    this.#changedCount = 0;
    return painted;
  }

  #wake(cell) {
    if (!this.#isWarm[cell]) this.#warm[this.#warmCount++] = cell;
    this.#isWarm[cell] = kFresh;
    this.#touch(cell);
  }

  #touch(cell) {
    if (this.#isChanged[cell]) return;
    this.#isChanged[cell] = 1;
    this.#changed[this.#changedCount++] = cell;
  }
}

export function shadeOf(resident, heat, read) {
  const step = Math.min(kHeatSteps - 1, Math.round(heat * (kHeatSteps - 1)));
  return (resident * kHeatSteps + step) * kSources + read;
}

// The colours of all shades as pixels of an ImageData (little-endian: 0xAABBGGRR). `colours`: absent, resident,
// heat, disk as [r, g, b].
export function paletteOf({ absent, resident, heat, disk }) {
  const palette = new Uint32Array(kColours);
  const mix = (a, b, share) => a.map((x, i) => x + (b[i] - x) * share);
  for (let r = 0; r < 2; r++) {
    for (let step = 0; step < kHeatSteps; step++) {
      for (let from = 0; from < kSources; from++) {
        const hot = from ? disk : heat;
        // A root lifts the cooler end, which an eye would otherwise lose in the ground.
        const [red, green, blue] = mix(r ? resident : absent, hot, (step / (kHeatSteps - 1)) ** 0.7).map(
          Math.round,
        );
        palette[(r * kHeatSteps + step) * kSources + from] =
          (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
      }
    }
  }
  return palette;
}
