// Small line charts over time on a canvas. The arithmetic is pure; TimeChart draws.
import { h } from "./dom.js";
import { colours, css, onTheme } from "./theme.js";
import { kSecondsKept } from "./rates.js";

// The smallest of 1, 2, 5, 10, … that is not below `value`; a chart's top.
export function niceMax(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((top) => top >= value * (1 - 1e-9));
}

// The same in steps of binary units.
export function niceMaxBytes(value) {
  if (!(value > 1 << 20)) return 1 << 20;
  const unit = 1024 ** Math.floor(Math.log2(value) / 10);
  return niceMax(value / unit) * unit;
}

// Points {seconds, value} → runs of [x, y] in a box of width × height; a value that is no number parts two runs.
export function linesOf(points, now, max, width, height) {
  const runs = [];
  let run = null;
  for (const { seconds, value } of points) {
    if (!Number.isFinite(value)) {
      run = null;
      continue;
    }
    if (!run) runs.push((run = []));
    const x = width * (1 - (now - seconds) / kSecondsKept);
    run.push([x, height * (1 - Math.max(0, Math.min(1, value / max)))]);
  }
  return runs;
}

export class TimeChart {
  // lines: [{name, colour (custom property), value: (point) => number}]; max: a number, or null for
  // what `nice` makes of the data's own.
  constructor({ title, lines, format, max = null, nice = niceMax }) {
    Object.assign(this, { lines, format, max, nice });
    this.canvas = h("canvas", { class: "chart-canvas", role: "img", "aria-label": title });
    this.value = h("span", { class: "chart-value" }, "–");
    this.top = h("span", { class: "chart-top muted", "aria-hidden": "true" });
    const legend =
      lines.length < 2
        ? null
        : h(
            "ul",
            { class: "legend-line" },
            lines.map(({ name, colour }) => {
              const swatch = h("i", { class: "swatch" });
              swatch.style.background = `var(--${colour})`;
              return h("li", {}, swatch, name);
            }),
          );
    this.element = h(
      "section",
      { class: "panel chart" },
      h("div", { class: "chart-head" }, h("h3", {}, title), this.value),
      h("div", { class: "chart-box" }, this.top, this.canvas),
      legend,
    );
    this.title = title;
    this.points = [];
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    onTheme(() => this.draw());
  }

  set(points) {
    this.points = points;
    this.draw();
  }

  draw() {
    const { clientWidth, clientHeight } = this.canvas;
    if (clientWidth === 0) return;
    const ratio = Math.min(devicePixelRatio || 1, 3);
    const [width, height] = [Math.round(clientWidth * ratio), Math.round(clientHeight * ratio)];
    if (this.canvas.width !== width) this.canvas.width = width;
    if (this.canvas.height !== height) this.canvas.height = height;
    const context = this.canvas.getContext("2d");
    context.clearRect(0, 0, width, height);
    const found = colours(["line", ...this.lines.map(({ colour }) => colour)]);
    const series = this.lines.map(({ value }) =>
      this.points.map((point) => ({ seconds: point.seconds, value: value(point) })),
    );
    const finite = series
      .flat()
      .map(({ value }) => value)
      .filter(Number.isFinite);
    const max = this.max ?? this.nice(Math.max(0, ...finite));
    context.fillStyle = css(found.line);
    for (const share of [0, 0.5, 1])
      context.fillRect(0, Math.round((height - ratio) * share), width, Math.round(ratio));
    const now = this.points.at(-1)?.seconds ?? 0;
    this.lines.forEach(({ colour }, i) =>
      drawLines(context, linesOf(series[i], now, max, width, height), found[colour], height, ratio),
    );
    this.top.textContent = this.format(max);
    const last = this.points.at(-1);
    const text = last ? this.lines.map(({ value }) => this.format(value(last))).join(" · ") : "–";
    this.value.textContent = text;
    this.canvas.setAttribute("aria-label", `${this.title}: now ${text}`);
  }
}

function drawLines(context, runs, colour, height, ratio) {
  context.lineWidth = 1.75 * ratio;
  context.lineJoin = "round";
  for (const run of runs) {
    context.strokeStyle = css(colour);
    context.fillStyle = css(colour, 0.12);
    context.beginPath();
    run.forEach(([x, y], i) => (i === 0 ? context.moveTo(x, y) : context.lineTo(x, y)));
    context.stroke();
    // A value between two gaps has no length; it is a dot.
    if (run.length === 1) context.fillRect(run[0][0] - 2 * ratio, run[0][1] - ratio, 2 * ratio, 2 * ratio);
    context.lineTo(run.at(-1)[0], height);
    context.lineTo(run[0][0], height);
    context.fill();
  }
}
