// Small line charts over time on a canvas. The arithmetic is pure; TimeChart draws.
import { h, setText } from "./dom.js";
import { colours, css, onTheme } from "./theme.js";
import { kSecondsKept } from "./rates.js";

const kLabelHeight = 17; // of a limit's name, which stands on its line where there is room

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
  // what `nice` makes of the data's own; limit: what the dashed line of setLimit() is called.
  constructor({ title, lines, format, max = null, nice = niceMax, limit = "" }) {
    Object.assign(this, { lines, format, max, nice, limitName: limit, limit: null });
    this.canvas = h("canvas", { class: "chart-canvas", role: "img", "aria-label": title });
    this.value = h("span", { class: "chart-value" }, "–");
    this.top = h("span", { class: "chart-top muted", "aria-hidden": "true" });
    this.limitLabel = h("span", { class: "chart-limit muted", "aria-hidden": "true", hidden: true });
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
      h("div", { class: "chart-box" }, this.top, this.limitLabel, this.canvas),
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

  // What the value can be at most, as a dashed line; null for nobody knows.
  setLimit(limit) {
    const known = Number.isFinite(limit) && limit > 0 ? limit : null;
    if (known === this.limit) return;
    this.limit = known;
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
    const max = this.max ?? this.nice(Math.max(0, this.limit ?? 0, ...finite));
    context.fillStyle = css(found.line);
    for (const share of [0, 0.5, 1])
      context.fillRect(0, Math.round((height - ratio) * share), width, Math.round(ratio));
    const now = this.points.at(-1)?.seconds ?? 0;
    this.lines.forEach(({ colour }, i) =>
      drawLines(context, linesOf(series[i], now, max, width, height), found[colour], height, ratio),
    );
    this.#drawLimit(context, max, ratio);
    setText(this.top, this.format(max));
    const last = this.points.at(-1);
    const text = last ? this.lines.map(({ value }) => this.format(value(last))).join(" · ") : "–";
    setText(this.value, text);
    const limit = this.limit === null ? "" : `; ${this.limitName} ${this.format(this.limit)}`;
    this.canvas.setAttribute("aria-label", `${this.title}: now ${text}${limit}`);
  }

  #drawLimit(context, max, ratio) {
    this.limitLabel.hidden = this.limit === null;
    if (this.limit === null) return;
    const { width, height } = this.canvas;
    const y = height * (1 - Math.min(1, this.limit / max));
    context.save();
    context.setLineDash([5 * ratio, 4 * ratio]);
    context.lineWidth = 1.25 * ratio;
    context.strokeStyle = css(colours(["muted"]).muted);
    context.beginPath();
    context.moveTo(0, y);
    context.lineTo(width, y);
    context.stroke();
    context.restore();
    setText(this.limitLabel, `${this.limitName} ${this.format(this.limit)}`);
    this.limitLabel.style.top = `${y / ratio + (y > kLabelHeight * ratio ? -kLabelHeight : 1)}px`;
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
