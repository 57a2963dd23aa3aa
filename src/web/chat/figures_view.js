// What an answer cost: a line of figures, and a waterfall of where its time went.
import { h } from "../lib/dom.js";
import { bytes, count, percent, seconds, tokensPerSecond } from "../lib/format.js";
import { waterfall } from "./answer.js";

export function figuresView(figures) {
  const items = [
    [figures.rate && tokensPerSecond(figures.rate), "Tokens of the answer a second, after the first"],
    [
      figures.firstToken !== null && `first token ${seconds(figures.firstToken)}`,
      "From the question to the first token",
    ],
    [`${count(figures.tokens)} tokens`, tokensTitle(figures)],
    [
      Number.isFinite(figures.hitRate) && `${percent(figures.hitRate)} hits`,
      "Experts that were in memory when they were needed",
    ],
    [`${bytes(figures.bytesRead)} read`, "Read from the disk for this answer"],
  ];
  return [
    h(
      "ul",
      { class: "figure-line", "aria-label": "Figures of this answer" },
      items.filter(([text]) => text).map(([text, title]) => h("li", { title }, text)),
    ),
    waterfallView(figures),
  ];
}

function tokensTitle(figures) {
  const cached = figures.cachedTokens ? `, ${count(figures.cachedTokens)} of them kept from before` : "";
  const reasoning = figures.reasoningTokens ? `; ${count(figures.reasoningTokens)} of reasoning` : "";
  return `A prompt of ${count(figures.promptTokens)} tokens${cached}${reasoning}`;
}

function waterfallView(figures) {
  const parts = waterfall(figures);
  const text = parts.map(({ name, seconds: time }) => `${name} ${seconds(time)}`).join(", ");
  return h(
    "div",
    { class: "waterfall" },
    h(
      "div",
      { class: "waterfall-bars", role: "img", "aria-label": `Time: ${text}` },
      parts.map(({ name, from, share }) => {
        const bar = h("span", { class: `part ${name.toLowerCase()}` });
        bar.style.left = `${from * 100}%`;
        // A part of no visible length still says that it was.
        bar.style.width = `max(2px, ${share * 100}%)`;
        return h("span", { class: "row" }, bar);
      }),
    ),
    h(
      "div",
      { class: "waterfall-legend", "aria-hidden": "true" },
      parts.map(({ name, seconds: time }) =>
        h("span", {}, h("i", { class: `swatch ${name.toLowerCase()}` }), `${name} ${seconds(time)}`),
      ),
    ),
  );
}
