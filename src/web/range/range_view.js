// The points on a canvas: drag or arrow keys turn, wheel, pinch or + and - zoom, [ and ] go through the points.
import { h } from "../lib/dom.js";
import { colours, css, onTheme } from "../lib/theme.js";
import { topicColour } from "../lib/topics.js";
import { Camera, depthOrder, nearest } from "./projection.js";
import { kNone, visibleExperts } from "./range_map.js";
import { Splats } from "./splats.js";

const kTurnPerPixel = 0.008;
const kReachPixels = 14;
const kDepthSteps = 8; // so that few kinds of dots are made

export class RangeView {
  camera = new Camera();
  #map = null;
  #visible = null;
  #screen;
  #order;
  #pick;
  #picked = -1;
  #frame = 0;
  #pointers = new Map();
  #pinch = 0;
  #moved = 0;

  // pick(index or -1, pressed): a point is pointed at, or was clicked.
  constructor(pick) {
    this.#pick = pick;
    this.canvas = h("canvas", {
      class: "range-canvas",
      tabindex: "0",
      role: "application",
      "aria-roledescription": "3-D map",
      "aria-label": "Experts by what they respond to",
      "aria-describedby": "range-help",
      onkeydown: (event) => this.#key(event),
      onpointerdown: (event) => this.#down(event),
      onpointermove: (event) => this.#move(event),
      onpointerup: (event) => this.#up(event),
      onpointercancel: (event) => this.#up(event),
      onpointerleave: () => this.#hover(-1),
    });
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.camera.scale(Math.exp(-event.deltaY * 0.0015));
        this.draw();
      },
      { passive: false },
    );
    this.context = this.canvas.getContext("2d", { alpha: false });
    new ResizeObserver(() => this.#resize()).observe(this.canvas);
    onTheme(() => this.#resize());
  }

  setMap(map, hidden) {
    this.#map = map;
    this.#screen = new Float32Array(map.points.length);
    this.#order = new Uint32Array(map.experts.length);
    this.#picked = -1;
    this.filter(hidden);
  }

  filter(hidden) {
    this.#visible = visibleExperts(this.#map, hidden);
    this.#resize();
  }

  select(index) {
    this.#picked = index;
    this.#pick(index, false);
    this.draw();
  }

  draw() {
    if (this.#map) this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  #resize() {
    const ratio = Math.min(devicePixelRatio || 1, 2);
    const { clientWidth, clientHeight } = this.canvas;
    if (clientWidth === 0) return;
    this.ratio = ratio;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.colours = colours(["muted", "line-strong", "text", "surface"]);
    this.image = this.context.createImageData(this.canvas.width, this.canvas.height);
    this.splats = new Splats(new Uint32Array(this.image.data.buffer), this.canvas.width, this.canvas.height);
    this.draw();
  }

  #draw() {
    this.#frame = 0;
    const { context } = this;
    const { width, height } = this.canvas;
    const screen = this.#screen;
    const began = performance.now();
    this.camera.project(this.#map.points, width, height, screen);
    this.splats.clear(this.colours.surface);
    depthOrder(screen, this.#order);
    const shown = this.#drawPoints(screen);
    context.putImageData(this.image, 0, 0);
    this.#drawAxes(width, height);
    if (this.#picked >= 0) this.#drawPicked();
    this.canvas.dataset.points = String(shown);
    this.canvas.dataset.drawMs = (performance.now() - began).toFixed(1);
  }

  // Far ones first and smaller; many points are smaller points.
  #drawPoints(screen) {
    const size = Math.sqrt(3000 / (3000 + this.#map.experts.length));
    let shown = 0;
    for (const i of this.#order) {
      if (!this.#visible[i]) continue;
      const topic = this.#map.topicOf[i];
      const near = (Math.floor(screen[3 * i + 2] * kDepthSteps) + 0.5) / kDepthSteps;
      const radius = this.ratio * (1.3 + 4.4 * near * size) * (topic === kNone ? 0.7 : 1);
      const colour = topic === kNone ? this.colours.muted : topicColour(topic);
      const opacity = this.#map.faint[i] ? 0.16 : topic === kNone ? 0.3 : 0.55 + 0.4 * near;
      this.splats.dot(screen[3 * i], screen[3 * i + 1], radius, colour, Math.min(1, opacity));
      shown++;
    }
    return shown;
  }

  // The three components, as lines through the middle.
  #drawAxes(width, height) {
    const ends = new Float32Array([-1, 0, 0, 1, 0, 0, 0, -1, 0, 0, 1, 0, 0, 0, -1, 0, 0, 1]);
    const screen = new Float32Array(ends.length);
    this.camera.project(ends, width, height, screen);
    const { context } = this;
    context.strokeStyle = css(this.colours["line-strong"], 0.6);
    context.fillStyle = css(this.colours.muted);
    context.lineWidth = this.ratio;
    context.font = `${11 * this.ratio}px system-ui, sans-serif`;
    context.textAlign = "center";
    for (let axis = 0; axis < 3; axis++) {
      const [from, to] = [6 * axis, 6 * axis + 3];
      context.beginPath();
      context.moveTo(screen[from], screen[from + 1]);
      context.lineTo(screen[to], screen[to + 1]);
      context.stroke();
      context.fillText(String(axis + 1), screen[to], screen[to + 1] - 4 * this.ratio);
    }
  }

  #drawPicked() {
    const { context, ratio } = this;
    const i = 3 * this.#picked;
    context.strokeStyle = css(this.colours.text);
    context.lineWidth = 2 * ratio;
    context.beginPath();
    context.arc(this.#screen[i], this.#screen[i + 1], 8 * ratio, 0, 2 * Math.PI);
    context.stroke();
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    return { x: (event.clientX - box.left) * this.ratio, y: (event.clientY - box.top) * this.ratio };
  }

  #down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.#pointers.set(event.pointerId, event);
    this.#moved = 0;
    this.#pinch = this.#spread();
  }

  #move(event) {
    if (!this.#map) return;
    const before = this.#pointers.get(event.pointerId);
    if (!before) {
      const { x, y } = this.#at(event);
      return this.#hover(nearest(this.#screen, this.#visible, x, y, kReachPixels * this.ratio));
    }
    const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
    this.#pointers.set(event.pointerId, event);
    this.#moved += Math.abs(dx) + Math.abs(dy);
    if (this.#pointers.size === 2) {
      const spread = this.#spread();
      if (this.#pinch > 0 && spread > 0) this.camera.scale(spread / this.#pinch);
      this.#pinch = spread;
    } else {
      this.camera.turn(dx * kTurnPerPixel, dy * kTurnPerPixel);
    }
    this.draw();
  }

  #up(event) {
    if (
      !this.#pointers.delete(event.pointerId) ||
      !this.#map ||
      event.type === "pointercancel" ||
      this.#moved > 4
    )
      return;
    const { x, y } = this.#at(event);
    const index = nearest(this.#screen, this.#visible, x, y, kReachPixels * this.ratio);
    this.#picked = index;
    this.#pick(index, true);
    this.draw();
  }

  #spread() {
    const [a, b] = [...this.#pointers.values()];
    return a && b ? Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) : 0;
  }

  // Pointing does not take away what was clicked.
  #hover(index) {
    if (index === this.#picked || (index < 0 && document.activeElement === this.canvas)) return;
    this.select(index);
  }

  #key(event) {
    if (!this.#map) return;
    const turns = { ArrowLeft: [-0.12, 0], ArrowRight: [0.12, 0], ArrowUp: [0, -0.12], ArrowDown: [0, 0.12] };
    const zooms = { "+": 1.2, "=": 1.2, "-": 1 / 1.2 };
    const steps = { "]": 1, "[": -1 };
    if (turns[event.key]) this.camera.turn(...turns[event.key]);
    else if (zooms[event.key]) this.camera.scale(zooms[event.key]);
    else if (steps[event.key]) this.#step(steps[event.key]);
    else if (event.key === "Enter" && this.#picked >= 0) this.#pick(this.#picked, true);
    else return;
    event.preventDefault();
    this.draw();
  }

  #step(by) {
    const count = this.#visible.length;
    for (let i = 1; i <= count; i++) {
      const index = (this.#picked + by * i + 2 * count) % count;
      if (this.#visible[index]) return this.select(index);
    }
  }
}
