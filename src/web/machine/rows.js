// Lists that live figures are written into.
import { h, replace, setText } from "../lib/dom.js";

// [name, value] pairs as a <dl>. Writes only what changed, so that a live list neither flickers nor loses what
// someone has selected in it.
export function rows(list, entries) {
  const names = [...list.children].filter((node) => node.tagName === "DT");
  if (names.length !== entries.length || names.some((node, i) => node.textContent !== entries[i][0]))
    replace(
      list,
      entries.map(([name]) => [h("dt", {}, name), h("dd")]),
    );
  entries.forEach(([, value], i) => setText(list.children[2 * i + 1], value));
}

// Makes the children of `parent` those of `wanted`, moving as few as can be: an element that is moved loses the focus.
export function arrange(parent, wanted) {
  const keep = new Set(wanted);
  for (const node of [...parent.children]) if (!keep.has(node)) node.remove();
  wanted.forEach((node, i) => {
    if (parent.children[i] !== node) parent.insertBefore(node, parent.children[i] ?? null);
  });
}

// A button that says why it does nothing, and keeps the focus when its time has passed: `disabled` would lose it.
export function allow(button, whyNot, title = "") {
  if (whyNot === null) button.removeAttribute("aria-disabled");
  else button.setAttribute("aria-disabled", "true");
  if (button.title !== (whyNot ?? title)) button.title = whyNot ?? title;
}
