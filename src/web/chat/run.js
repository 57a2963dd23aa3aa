// One request for an answer, from the click to its last token. It belongs to its conversation, not to the
// screen: it goes on while another one is shown.
import { getJson, readEvents } from "../lib/api.js";
import { Answer } from "./answer.js";
import { requestMessages } from "./conversation.js";
import { requestParameters } from "./settings.js";

export class Run {
  answer;
  #abort = new AbortController();
  #frame = 0;
  #callbacks;

  constructor(conversation, node, callbacks) {
    this.conversation = conversation;
    this.node = node;
    this.answer = new Answer(performance.now());
    this.#callbacks = callbacks;
  }

  stop() {
    this.node.stopped = true;
    this.#abort.abort();
  }

  async start() {
    try {
      await readEvents("v1/chat/completions", {
        method: "POST",
        signal: this.#abort.signal,
        body: await this.#body(),
        take: (event) => {
          this.answer.take(event, performance.now());
          this.#changed();
        },
      });
      if (!this.answer.finish && !this.answer.error) this.answer.error = "The answer broke off.";
    } catch (error) {
      if (error.name !== "AbortError") this.answer.error = error.message;
    }
    cancelAnimationFrame(this.#frame);
    this.#store();
    this.#callbacks.ended();
  }

  async #body() {
    const { conversation, node } = this;
    const model =
      this.#callbacks.model ?? (await getJson("v1/models", { signal: this.#abort.signal })).data[0]?.id;
    return {
      model,
      stream: true,
      stream_options: { include_usage: true },
      messages: requestMessages(conversation, node.parent),
      ...requestParameters(conversation.settings),
    };
  }

  // At most once a frame, however fast tokens come.
  #changed() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#store();
      this.#callbacks.changed();
    });
  }

  #store() {
    const { answer, node } = this;
    node.text = answer.text;
    node.reasoning = answer.reasoning;
    if (answer.reasoningMs !== null) node.reasoningSeconds = answer.reasoningMs / 1000;
    if (answer.calls.length > 0) node.calls = answer.calls;
    if (answer.finish) node.finish = answer.finish;
    if (answer.error) node.error = answer.error;
    const figures = answer.figures();
    if (figures) node.figures = figures;
  }
}
