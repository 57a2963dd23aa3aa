// The controls under the grid: live, pause, token by token.
import { h, icon, replace, setText } from "../lib/dom.js";

const kPlay = "M6 4l10 6-10 6z";
const kPause = "M7 4v12M13 4v12";
const kRates = [1, 2, 4, 8, 16, 32];

export class Player {
  #callbacks;
  #playing = false;
  #replay = false;

  constructor(callbacks) {
    this.#callbacks = callbacks;
    this.live = h(
      "button",
      {
        type: "button",
        class: "button small live-button",
        "aria-pressed": "true",
        onclick: () => callbacks.live(),
      },
      h("span", { class: "live-mark", "aria-hidden": "true" }),
      "Live",
    );
    this.toggle = h(
      "button",
      { type: "button", class: "icon-button", "aria-label": "Pause", onclick: () => this.#toggle() },
      icon(kPause),
    );
    this.back = h(
      "button",
      { type: "button", class: "icon-button", "aria-label": "One token back", onclick: () => this.#step(-1) },
      icon("M12 5l-6 5 6 5z"),
    );
    this.forward = h(
      "button",
      { type: "button", class: "icon-button", "aria-label": "One token on", onclick: () => this.#step(1) },
      icon("M8 5l6 5-6 5z"),
    );
    this.slider = h("input", {
      type: "range",
      min: "0",
      max: "0",
      step: "1",
      value: "0",
      "aria-label": "Token of the last answer",
      oninput: () => callbacks.seek(Number(this.slider.value)),
    });
    this.place = h("span", { class: "player-place" });
    this.speed = h(
      "select",
      { "aria-label": "Tokens a second", onchange: () => callbacks.speed(this.rate()) },
      kRates.map((rate) => h("option", { value: rate, selected: rate === 4 }, `${rate} tok/s`)),
    );
    this.element = h(
      "div",
      { class: "player", role: "group", "aria-label": "Replay of the last answer" },
      this.live,
      this.toggle,
      this.back,
      this.slider,
      this.forward,
      this.place,
      this.speed,
    );
    this.show(null, false);
  }

  rate() {
    return Number(this.speed.value);
  }

  // `replay` null: live. `possible`: there is an answer to look at. `idle`: nothing comes in.
  show(replay, possible, idle = false) {
    const playing = replay === null ? !idle || !possible : replay.playing;
    if (playing !== this.#playing) {
      this.#playing = playing;
      replace(this.toggle, icon(playing ? kPause : kPlay));
      this.toggle.setAttribute("aria-label", playing ? "Pause" : "Play");
    }
    this.#replay = replay !== null;
    this.live.setAttribute("aria-pressed", String(!this.#replay));
    for (const control of [this.toggle, this.back, this.forward, this.slider]) control.disabled = !possible;
    if (replay) {
      this.slider.max = String(replay.length - 1);
      this.slider.value = String(replay.position);
      this.slider.setAttribute("aria-valuetext", `token ${replay.position + 1} of ${replay.length}`);
      setText(this.place, `${replay.position + 1} of ${replay.length}`);
    } else {
      this.slider.max = "1";
      this.slider.value = "1";
      setText(this.place, !possible ? "no answer yet" : idle ? "waiting" : "following");
    }
  }

  #toggle() {
    if (this.#playing) this.#callbacks.pause();
    else this.#callbacks.play();
  }

  #step(by) {
    // From live, the first step shows the newest token.
    if (this.#replay) this.#callbacks.seek(Number(this.slider.value) + by);
    else this.#callbacks.pause();
  }
}
