// Installing a model: where it comes from, in which format, and what that would cost before it is begun.
import { postJson } from "../lib/api.js";
import { h, setText } from "../lib/dom.js";
import { kExpertFormats, kReleased, previewFacts } from "./models.js";
import { allow, rows } from "./rows.js";

export class InstallForm {
  #install;
  #asked = 0; // looks so far; an older one's answer is of no use
  #busy = false;

  // install(body): begins one; throws what is wrong.
  constructor(install) {
    this.#install = install;
    this.source = h("input", {
      type: "text",
      list: "released-models",
      placeholder: "openai/gpt-oss-20b",
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      maxlength: "400",
      "aria-describedby": "install-problem",
      oninput: () => this.#changed(),
    });
    this.format = h(
      "select",
      { onchange: () => this.#changed() },
      kExpertFormats.map(([value, label]) => h("option", { value }, label)),
    );
    this.look = h("button", { type: "submit", class: "button" }, "Look first");
    this.go = h(
      "button",
      { type: "button", class: "button primary", onclick: () => this.#begin() },
      "Install",
    );
    this.problem = h("p", { class: "form-error", id: "install-problem", role: "alert" });
    this.status = h("p", { class: "visually-hidden", role: "status" });
    this.figures = h("dl", { class: "figures preview" });
    this.room = h("p", { class: "form-error preview-room" });
    this.preview = h("div", { class: "preview-box", hidden: true }, this.figures, this.room);
    // Enter looks; only the button itself begins what may fetch a hundred gigabytes.
    this.element = h(
      "form",
      { class: "install-form", "aria-label": "Install a model", onsubmit: (event) => this.#look(event) },
      h("h3", {}, "Install a model"),
      h(
        "p",
        { class: "muted install-help" },
        "By its name on the Hugging Face hub, or the whole path of a checkpoint on this machine.",
      ),
      h(
        "div",
        { class: "install-fields" },
        h("label", { class: "field" }, "Source", this.source),
        h("label", { class: "field" }, "Experts", this.format),
        h("div", { class: "install-buttons" }, this.look, this.go),
      ),
      h(
        "datalist",
        { id: "released-models" },
        kReleased.map((value) => h("option", { value })),
      ),
      this.problem,
      this.preview,
      this.status,
    );
  }

  // What was seen is of another source, or format.
  #changed() {
    this.#asked++;
    this.preview.hidden = true;
    this.#fail("");
  }

  #fail(text) {
    setText(this.problem, text);
    if (text) this.source.setAttribute("aria-invalid", "true");
    else this.source.removeAttribute("aria-invalid");
  }

  // The request's body; null, and the reason on the page, where there is no source.
  #body() {
    const source = this.source.value.trim();
    this.#fail(source ? "" : "Say which model: its name on the hub, or the whole path of a checkpoint.");
    if (!source) this.source.focus();
    if (!source) return null;
    return this.format.value === "auto" ? { source } : { source, experts: this.format.value };
  }

  async #look(event) {
    event.preventDefault();
    const body = this.#body();
    if (!body) return;
    const asked = ++this.#asked;
    setText(this.look, "Looking…");
    setText(this.status, `Looking at ${body.source}…`);
    try {
      const answer = await postJson("wader/models/preview", body);
      if (asked === this.#asked) this.#show(answer);
    } catch (error) {
      if (asked === this.#asked) this.#fail(error.message);
    } finally {
      setText(this.look, "Look first");
    }
  }

  #show(answer) {
    const { rows: entries, problem } = previewFacts(answer);
    rows(this.figures, entries);
    setText(this.room, problem);
    this.preview.hidden = false;
    setText(this.status, `${entries.map(([name, value]) => `${name}: ${value}`).join("; ")}. ${problem}`);
  }

  async #begin() {
    const body = this.#busy ? null : this.#body();
    if (!body) return;
    this.#busy = true;
    allow(this.go, "It is being asked for");
    try {
      await this.#install(body);
      this.source.value = "";
      this.#changed();
    } catch (error) {
      this.#fail(error.message);
    } finally {
      this.#busy = false;
      allow(this.go, null);
    }
  }
}
