// The grid on its canvas: sizes it, paints what changed once a frame, and tells which cell is pointed at.
// The canvas carries its own measurement: data-fps, data-paint-ms, data-frames.
import { h } from "../lib/dom.js";
import { colours, css, onTheme, reducedMotion } from "../lib/theme.js";
import { FrameMeter } from "./frame_meter.js";
import { cellAt, cellCorner, layoutGrid, Raster } from "./grid_geometry.js";
import { paletteOf } from "./heat.js";

const kStripHeight = 44; // the hit rates above the grid, with the layers' numbers
const kStagePadding = 3; // as in experts.css: room for the cursor's frame
const kStripMs = 200; // its bars move slowly, and its numbers are text
const kStripRestMs = 1000; // where frames are few
const kCalmSeconds = 0.25; // steps of those who asked for less motion
const kFrameSecondsMax = 0.5; // after a pause time does not jump by more

export class GridView {
  meter = new FrameMeter();
  #shape = null;
  #heat = null;
  #figures = null;
  #tick;
  #pick;
  #pace;
  #frame = 0; // that the screen was asked for
  #rest = 0; // timer, until it is
  #before = 0;
  #calm = 0;
  #cursor = null;
  #visible = false;
  #stripText = "";
  #stripAt = 0;

  // tick(seconds) → true while there is something to animate; pick(cell or null, byKeyboard); pace: lib/pace.js.
  constructor({ tick, pick, pace }) {
    this.#pace = pace;
    pace.onWake(() => this.#wake());
    this.#tick = tick;
    this.#pick = pick;
    this.canvas = h("canvas", {
      class: "grid-canvas",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "grid of experts",
      "aria-describedby": "grid-help",
      "aria-label": "Experts: layers across, experts down",
      onkeydown: (event) => this.#key(event),
      onpointermove: (event) => this.#point(event),
      onpointerdown: (event) => this.#point(event),
      onpointerleave: () => this.#leave(),
      onblur: () => this.#leave(),
    });
    this.strip = h("canvas", { class: "grid-strip", role: "img", "aria-label": "Hit rate of each layer" });
    this.mark = h("div", { class: "grid-mark", hidden: true });
    this.tip = h("div", { class: "grid-tip", hidden: true });
    this.stage = h(
      "div",
      { class: "grid-stage" },
      this.strip,
      h("div", { class: "grid-cells" }, this.canvas, this.mark, this.tip),
    );
    // Only written to pixel by pixel: kept in memory, it is not sent through the GPU and back each frame.
    this.context = this.canvas.getContext("2d", { alpha: false, willReadFrequently: true });
    new ResizeObserver(() => this.layout()).observe(this.stage);
    onTheme(() => this.layout(true));
  }

  setModel(shape, heat, figures) {
    this.#shape = shape;
    this.#heat = heat;
    this.#figures = figures;
    this.#cursor = null;
    this.mark.hidden = this.tip.hidden = true;
    this.canvas.dataset.shape = `${shape.layers}x${shape.experts}`;
    for (const name of ["token", "pass", "chosen"]) delete this.canvas.dataset[name];
    this.grid = null; // of a page that is not shown it is made with the next show()
    this.layout(true);
  }

  show(visible) {
    this.#visible = visible;
    if (!visible) return this.#stop();
    this.layout();
    this.kick(); // what changed meanwhile
  }

  // Something changed: paint with the next frame.
  kick() {
    if (this.#frame || this.#rest || !this.#visible || !this.grid) return;
    this.#before = performance.now();
    this.#next();
  }

  // One frame at a time is asked for, whoever asks: a tick may have.
  #next() {
    if (this.#frame || this.#rest) return;
    const { restMs } = this.#pace;
    if (restMs > 0) this.#rest = setTimeout(() => this.#ask(), restMs);
    else this.#ask();
  }

  #ask() {
    this.#rest = 0;
    this.#frame = requestAnimationFrame((now) => this.#draw(now));
  }

  #wake() {
    if (!this.#rest) return;
    clearTimeout(this.#rest);
    this.#ask();
  }

  layout(always = false) {
    if (!this.#shape || !this.#visible) return;
    const width = this.stage.clientWidth - 2 * kStagePadding;
    if (width <= 0) return;
    const ratio = Math.min(devicePixelRatio || 1, 3);
    // From the stage's top to the window's end, less what stands below it.
    const height = Math.max(320, innerHeight - 52 - 250);
    const grid = layoutGrid(this.#shape, width, height, ratio);
    if (!always && this.grid && grid.width === this.grid.width && grid.height === this.grid.height) return;
    this.grid = grid;
    this.canvas.width = grid.width;
    this.canvas.height = grid.height;
    this.canvas.style.width = `${grid.width / ratio}px`;
    this.canvas.style.height = `${grid.height / ratio}px`;
    this.colours = colours([
      "absent",
      "resident",
      "heat",
      "disk",
      "grid-bg",
      "muted",
      "line",
      "accent",
      "danger",
    ]);
    this.palette = paletteOf(this.colours);
    this.image = this.context.createImageData(grid.width, grid.height);
    const [red, green, blue] = this.colours["grid-bg"];
    const ground = (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
    this.raster = new Raster(grid, new Uint32Array(this.image.data.buffer), ground);
    this.#heat.touchAll();
    this.#stripText = "";
    this.#drawStrip();
    if (this.#cursor) this.#showCursor();
    this.kick();
  }

  #draw(now) {
    this.#frame = 0;
    const began = performance.now();
    let seconds = Math.min(kFrameSecondsMax, Math.max(0, (now - this.#before) / 1000));
    this.#before = now;
    if (reducedMotion()) {
      this.#calm += seconds;
      seconds = this.#calm >= kCalmSeconds ? this.#calm : 0;
      if (seconds > 0) this.#calm = 0;
    }
    const going = this.#tick(seconds);
    const painted = this.#heat.flush((cell, shade) => this.raster.fill(cell, this.palette[shade]));
    if (painted > 0) this.context.putImageData(this.image, 0, 0);
    if (now - this.#stripAt > (this.#pace.restMs > 0 ? kStripRestMs : kStripMs)) {
      this.#stripAt = now;
      this.#drawStrip();
    }
    this.meter.frame(now, performance.now() - began);
    this.#measure();
    if (going && this.#visible) this.#next();
    else this.meter.pause();
  }

  #stop() {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#rest);
    this.#frame = this.#rest = 0;
    this.meter.pause();
  }

  #measure() {
    const { fps, paintMs, frames } = this.meter;
    if (frames % 15 !== 0) return;
    this.canvas.dataset.frames = frames;
    if (Number.isNaN(fps)) return;
    this.canvas.dataset.fps = fps.toFixed(1);
    this.canvas.dataset.paintMs = paintMs.toFixed(2);
  }

  // A bar a layer, and below it the layer's number where there is room for it.
  #drawStrip() {
    const { grid } = this;
    const text = [...this.#figures.hits].map((share) => Math.round(share * 100)).join();
    if (text === this.#stripText) return;
    this.#stripText = text;
    const { ratio } = grid;
    const height = Math.round(kStripHeight * ratio);
    if (this.strip.width !== grid.width) this.strip.width = grid.width;
    if (this.strip.height !== height) this.strip.height = height;
    this.strip.style.width = `${grid.width / ratio}px`;
    this.strip.style.height = `${kStripHeight}px`;
    const context = this.strip.getContext("2d");
    context.clearRect(0, 0, grid.width, height);
    const barHeight = height - Math.round(16 * ratio);
    const inner = grid.bands * grid.cellWidth;
    for (let layer = 0; layer < grid.layers; layer++) {
      const x = Math.round(layer * grid.pitch);
      const share = this.#figures.hits[layer];
      context.fillStyle = css(this.colours.line);
      context.fillRect(x, 0, inner, barHeight);
      if (Number.isNaN(share)) continue;
      context.fillStyle = css(this.colours.accent);
      const filled = Math.round(barHeight * share);
      context.fillRect(x, barHeight - filled, inner, filled);
    }
    this.#drawNumbers(context, height, inner);
  }

  #drawNumbers(context, height, inner) {
    const { grid } = this;
    const names = this.#shape.layerNumbers;
    context.font = `${Math.round(10.5 * grid.ratio)}px system-ui, sans-serif`;
    context.fillStyle = css(this.colours.muted);
    context.textAlign = "center";
    context.textBaseline = "alphabetic";
    const room = context.measureText(String(names.at(-1))).width + 8 * grid.ratio;
    const every = [1, 2, 4, 8, 16, 32, 64].find((step) => step * grid.pitch >= room) ?? 128;
    for (let layer = 0; layer < grid.layers; layer += every) {
      const half = context.measureText(String(names[layer])).width / 2;
      const x = Math.min(Math.max(layer * grid.pitch + inner / 2, half), grid.width - half);
      context.fillText(String(names[layer]), x, height - Math.round(4 * grid.ratio));
    }
  }

  // The cell that keyboard or pointer is at; null for none.
  select(cell, byKeyboard = true) {
    this.#cursor = cell;
    this.mark.hidden = !cell;
    this.tip.hidden = !cell;
    if (cell) this.#showCursor();
    this.#pick(cell, byKeyboard);
  }

  #showCursor() {
    const { grid, raster } = this;
    const { layer, expert } = this.#cursor;
    const { x, y } = cellCorner(grid, layer, expert);
    const place = (node, left, top) => {
      node.style.left = `${left}px`;
      node.style.top = `${top}px`;
    };
    const css = (pixels) => pixels / grid.ratio;
    place(this.mark, css(x) - 2, css(y) - 2);
    this.mark.style.width = `${css(raster.inkWidth) + 4}px`;
    this.mark.style.height = `${css(raster.inkHeight) + 4}px`;
    this.tip.textContent = `Layer ${this.#shape.layerNumbers[layer]} · expert ${expert}`;
    const right = css(x) > css(grid.width) / 2;
    place(this.tip, css(x) + (right ? -8 : css(raster.inkWidth) + 8), css(y));
    this.tip.classList.toggle("to-left", right);
  }

  #point(event) {
    if (!this.grid) return;
    const box = this.canvas.getBoundingClientRect();
    const cell = cellAt(
      this.grid,
      (event.clientX - box.left) * this.grid.ratio,
      (event.clientY - box.top) * this.grid.ratio,
    );
    if (cell && (cell.layer !== this.#cursor?.layer || cell.expert !== this.#cursor?.expert))
      this.select(cell, false);
  }

  #leave() {
    if (document.activeElement !== this.canvas) this.select(null, false);
  }

  #key(event) {
    if (!this.grid) return;
    const { layers, experts } = this.#shape;
    const { layer, expert } = this.#cursor ?? { layer: 0, expert: 0 };
    const moves = {
      ArrowLeft: [layer - 1, expert],
      ArrowRight: [layer + 1, expert],
      ArrowUp: [layer, expert - 1],
      ArrowDown: [layer, expert + 1],
      PageUp: [layer, expert - 16],
      PageDown: [layer, expert + 16],
      Home: [0, expert],
      End: [layers - 1, expert],
    };
    if (event.key === "Escape") return this.select(null);
    if (!moves[event.key]) return;
    event.preventDefault();
    const clamp = (value, count) => Math.max(0, Math.min(value, count - 1));
    const [toLayer, toExpert] = this.#cursor ? moves[event.key] : [0, 0];
    this.select({ layer: clamp(toLayer, layers), expert: clamp(toExpert, experts) });
  }
}
