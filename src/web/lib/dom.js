// Makes DOM nodes without ever parsing markup: text goes in as text nodes, so that nothing a model or
// a server says can become an element, an attribute or a handler.

// h('button', {class: 'quiet', onclick: f, 'aria-label': 'Stop'}, 'Stop', node, [more]).
// `on…` adds a listener; a value of true sets an empty attribute; false, null and undefined set nothing.
export function h(tag, props, ...children) {
  return fill(document.createElement(tag), props, children);
}

const kSvg = "http://www.w3.org/2000/svg";
export function svg(tag, props, ...children) {
  return fill(document.createElementNS(kSvg, tag), props, children);
}

// A 20 × 20 icon of strokes; decorative, so the button around it carries the name.
export function icon(path) {
  return svg(
    "svg",
    { viewBox: "0 0 20 20", class: "icon", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: path }),
  );
}

export function replace(parent, ...children) {
  parent.replaceChildren(...flat(children));
}

// Writes only what differs: an unchanged text node keeps selections and costs no layout.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...flat(children));
  return element;
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}
