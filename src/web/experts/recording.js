// Remembers the routing of the last answers, so that one can be looked at token by token afterwards. An answer
// begins with the last pass of its prompt, which gave its first token; then comes one pass for each further.
import { passOf, sameShape, shapeOf } from "./routing.js";

const kAnswersMax = 4; // several may run at once
const kBytesMax = 32 << 20;

export class Recorder {
  shape = null;
  total = 0; // passes so far
  #answers = new Map(); // request → {request, passes}, oldest first
  #bytes = 0;
  #model; // its name
  #listeners = new Set();

  // Returns false for a model that no frame can be read of.
  begin(hello) {
    const shape = shapeOf(hello);
    // The same model after a broken connection: what is recorded still holds.
    if (sameShape(shape, this.shape) && hello.model === this.#model) return true;
    this.#model = hello.model;
    this.#answers.clear();
    this.#bytes = 0;
    this.shape = shape;
    return shape !== null;
  }

  // Called with each decoded pass, so that pages need not decode it again.
  onPass(callback) {
    this.#listeners.add(callback);
    return () => this.#listeners.delete(callback);
  }

  take(data) {
    const pass = this.shape ? passOf(data, this.shape) : null;
    if (!pass) return;
    this.total++;
    if (pass.request > 0) this.#keep(pass);
    for (const callback of this.#listeners) callback(pass);
  }

  // The answer that began last and has a token; null when there is none.
  last() {
    return [...this.#answers.values()].findLast(({ passes }) => passes.length > 0) ?? null;
  }

  // All that is remembered, in the order it came.
  passes() {
    return [...this.#answers.values()].flatMap(({ passes }) => passes).sort((a, b) => a.n - b.n);
  }

  #keep(pass) {
    // Numbers begin anew when the server loads its model again: this is another answer of the same number.
    if (pass.n <= this.#answers.get(pass.request)?.passes.at(-1)?.n) this.#drop(pass.request);
    let answer = this.#answers.get(pass.request);
    if (!answer) {
      answer = { request: pass.request, passes: [] };
      this.#answers.set(pass.request, answer);
      if (this.#answers.size > kAnswersMax) this.#drop(this.#answers.keys().next().value);
    }
    // Of the prompt only the last pass stays.
    if (pass.prefill && answer.passes.at(-1)?.prefill) this.#bytes -= sizeOf(answer.passes.pop());
    answer.passes.push(pass);
    this.#bytes += sizeOf(pass);
    if (this.#bytes > kBytesMax && this.#answers.size > 1) this.#drop(this.#answers.keys().next().value);
    while (this.#bytes > kBytesMax && answer.passes.length > 1) this.#bytes -= sizeOf(answer.passes.shift());
  }

  #drop(request) {
    for (const pass of this.#answers.get(request).passes) this.#bytes -= sizeOf(pass);
    this.#answers.delete(request);
  }
}

function sizeOf(pass) {
  return pass.ids.byteLength + pass.read.byteLength + 64;
}
