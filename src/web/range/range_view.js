// The points on a canvas: drag or arrow keys turn, wheel, pinch or + and - zoom, [ and ] go through the points.
import {h} from '../lib/dom.js';
import {colours, css, onTheme} from '../lib/theme.js';
import {topicColour} from '../lib/topics.js';
import {Camera, depthOrder, nearest} from './projection.js';
import {kNone, visibleExperts} from './range_map.js';

const kTurnPerPixel = 0.008;
const kReachPixels = 14;
const kDepthSteps = 8;

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
    this.canvas = h('canvas', {
      class: 'range-canvas', tabindex: '0', role: 'application', 'aria-roledescription': '3-D map',
      'aria-label': 'Experts by what they respond to', 'aria-describedby': 'range-help',
      onkeydown: (event) => this.#key(event), onpointerdown: (event) => this.#down(event),
      onpointermove: (event) => this.#move(event), onpointerup: (event) => this.#up(event),
      onpointercancel: (event) => this.#up(event), onpointerleave: () => this.#hover(-1),
    });
    this.canvas.addEventListener('wheel', (event) => {
      event.preventDefault();
      this.camera.scale(Math.exp(-event.deltaY * 0.0015));
      this.draw();
    }, {passive: false});
    this.context = this.canvas.getContext('2d');
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
    const {clientWidth, clientHeight} = this.canvas;
    if (clientWidth === 0) return;
    this.ratio = ratio;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.colours = colours(['muted', 'line-strong', 'text', 'surface']);
    this.#sprites = new Map();
    this.draw();
  }

  #sprites = new Map();

  // A dot, drawn once for each colour, size and faintness: copying one is far cheaper than filling a circle.
  #sprite(topic, faint, step) {
    const key = `${topic}/${faint}/${step}`;
    let sprite = this.#sprites.get(key);
    if (sprite) return sprite;
    const near = (step + 0.5) / kDepthSteps;
    const size = Math.sqrt(3000 / (3000 + this.#map.experts.length));    // many points are smaller points
    const radius = this.ratio * (1.3 + 4.4 * near * size) * (topic === kNone ? 0.7 : 1);
    sprite = document.createElement('canvas');
    sprite.width = sprite.height = Math.ceil(2 * radius + 2);
    const context = sprite.getContext('2d');
    const colour = topic === kNone ? this.colours.muted : topicColour(topic);
    context.fillStyle = css(colour, (faint ? 0.16 : topic === kNone ? 0.3 : 0.55 + 0.4 * near));
    context.beginPath();
    context.arc(sprite.width / 2, sprite.height / 2, radius, 0, 2 * Math.PI);
    context.fill();
    this.#sprites.set(key, sprite);
    return sprite;
  }

  #draw() {
    this.#frame = 0;
    const {context} = this;
    const {width, height} = this.canvas;
    const screen = this.#screen;
    const began = performance.now();
    this.camera.project(this.#map.points, width, height, screen);
    context.clearRect(0, 0, width, height);
    this.#drawAxes(width, height);
    depthOrder(screen, this.#order);
    let shown = 0;
    for (const i of this.#order) {
      if (!this.#visible[i]) continue;
      const step = Math.min(kDepthSteps - 1, Math.floor(screen[3 * i + 2] * kDepthSteps));
      const sprite = this.#sprite(this.#map.topicOf[i], this.#map.faint[i], step);
      context.drawImage(sprite, screen[3 * i] - sprite.width / 2, screen[3 * i + 1] - sprite.height / 2);
      shown++;
    }
    if (this.#picked >= 0) this.#drawPicked();
    this.canvas.dataset.points = String(shown);
    this.canvas.dataset.drawMs = (performance.now() - began).toFixed(1);
  }

  // The three components, as lines through the middle.
  #drawAxes(width, height) {
    const ends = new Float32Array([-1, 0, 0, 1, 0, 0, 0, -1, 0, 0, 1, 0, 0, 0, -1, 0, 0, 1]);
    const screen = new Float32Array(ends.length);
    this.camera.project(ends, width, height, screen);
    const {context} = this;
    context.strokeStyle = css(this.colours['line-strong'], 0.7);
    context.fillStyle = css(this.colours.muted);
    context.lineWidth = this.ratio;
    context.font = `${11 * this.ratio}px system-ui, sans-serif`;
    context.textAlign = 'center';
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
    const {context, ratio} = this;
    const i = 3 * this.#picked;
    context.strokeStyle = css(this.colours.text);
    context.lineWidth = 2 * ratio;
    context.beginPath();
    context.arc(this.#screen[i], this.#screen[i + 1], 8 * ratio, 0, 2 * Math.PI);
    context.stroke();
  }

  #at(event) {
    const box = this.canvas.getBoundingClientRect();
    return {x: (event.clientX - box.left) * this.ratio, y: (event.clientY - box.top) * this.ratio};
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
      const {x, y} = this.#at(event);
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
    if (!this.#pointers.delete(event.pointerId) || !this.#map || event.type === 'pointercancel' || this.#moved > 4) return;
    const {x, y} = this.#at(event);
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
    const turns = {ArrowLeft: [-0.12, 0], ArrowRight: [0.12, 0], ArrowUp: [0, -0.12], ArrowDown: [0, 0.12]};
    const zooms = {'+': 1.2, '=': 1.2, '-': 1 / 1.2};
    const steps = {']': 1, '[': -1};
    if (turns[event.key]) this.camera.turn(...turns[event.key]);
    else if (zooms[event.key]) this.camera.scale(zooms[event.key]);
    else if (steps[event.key]) this.#step(steps[event.key]);
    else if (event.key === 'Enter' && this.#picked >= 0) this.#pick(this.#picked, true);
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
