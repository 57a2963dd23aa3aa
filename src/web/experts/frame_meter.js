// How many frames a second are really drawn, and what one costs. Frames are counted while there is something to
// draw; a pause is no slow frame.

const kWindowMs = 1000;

export class FrameMeter {
  fps = NaN;
  paintMs = NaN; // mean of the last window
  frames = 0;
  #windowFrom = NaN;
  #windowFrames = 0;
  #windowPaint = 0;

  // After a frame that began at `nowMs` and took `paintMs` to draw.
  frame(nowMs, paintMs) {
    this.frames++;
    if (Number.isNaN(this.#windowFrom)) {
      this.#windowFrom = nowMs;
      return;
    }
    this.#windowFrames++;
    this.#windowPaint += paintMs;
    const span = nowMs - this.#windowFrom;
    if (span < kWindowMs) return;
    this.fps = (1000 * this.#windowFrames) / span;
    this.paintMs = this.#windowPaint / this.#windowFrames;
    this.#windowFrom = nowMs;
    this.#windowFrames = 0;
    this.#windowPaint = 0;
  }

  pause() {
    this.#windowFrom = NaN;
    this.#windowFrames = 0;
    this.#windowPaint = 0;
  }
}
