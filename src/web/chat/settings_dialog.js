// The settings of a conversation: system message, reasoning, sampling.
import { h, setText } from "../lib/dom.js";
import { kEfforts, kFields, parseField } from "./settings.js";

export class SettingsDialog {
  #save;
  #inputs = new Map();

  constructor(save) {
    this.#save = save;
    this.system = h("textarea", { rows: "3", maxlength: "20000", placeholder: "None" });
    this.effort = h(
      "select",
      {},
      kEfforts.map(([value, label]) => h("option", { value }, label)),
    );
    this.error = h("p", { class: "form-error", role: "alert" });
    for (const field of kFields)
      this.#inputs.set(
        field.name,
        h("input", {
          type: "text",
          inputmode: "decimal",
          placeholder: "Model’s default",
          autocomplete: "off",
          maxlength: "20",
        }),
      );
    const fields = kFields.map((field) =>
      h("label", { class: "field" }, field.label, this.#inputs.get(field.name), h("small", {}, field.help)),
    );
    this.element = h(
      "dialog",
      { class: "dialog settings", "aria-labelledby": "settings-title" },
      h(
        "form",
        { method: "dialog", onsubmit: (event) => this.#submit(event) },
        h("h2", { id: "settings-title" }, "Settings of this conversation"),
        h("label", { class: "field" }, "System message", this.system),
        h("label", { class: "field" }, "Reasoning", this.effort),
        h("div", { class: "field-grid" }, fields),
        this.error,
        h(
          "div",
          { class: "dialog-actions" },
          h(
            "button",
            { type: "button", class: "button quiet", onclick: () => this.#fill({}) },
            "Model’s defaults",
          ),
          h("span", { class: "spring" }),
          h("button", { type: "button", class: "button", onclick: () => this.element.close() }, "Cancel"),
          h("button", { type: "submit", class: "button primary" }, "Save"),
        ),
      ),
    );
  }

  open(settings) {
    this.#fill(settings);
    this.element.showModal();
  }

  #fill(settings) {
    this.system.value = settings.system ?? "";
    this.effort.value = settings.reasoning_effort ?? "";
    for (const [name, input] of this.#inputs) {
      input.value = settings[name] ?? "";
      input.removeAttribute("aria-invalid");
    }
    setText(this.error, "");
  }

  #submit(event) {
    const settings = { system: this.system.value, reasoning_effort: this.effort.value };
    let problem = null;
    for (const field of kFields) {
      const input = this.#inputs.get(field.name);
      const { value, error } = parseField(field, input.value);
      if (error) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      problem ??= error ? { error, input } : null;
      if (value !== null && value !== undefined) settings[field.name] = value;
    }
    if (problem) {
      event.preventDefault();
      setText(this.error, problem.error);
      problem.input.focus();
      return;
    }
    this.#save(settings);
  }
}
