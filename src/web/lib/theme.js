// Light, dark, or as the system has it; and the theme's colours for what is drawn on a canvas.

const kKey = "wader.theme";
const kOrder = ["auto", "light", "dark"];
const listeners = new Set();

export function theme() {
  return document.documentElement.dataset.theme ?? "auto";
}

export function nextTheme() {
  const next = kOrder[(kOrder.indexOf(theme()) + 1) % kOrder.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "auto") localStorage.removeItem(kKey);
    else localStorage.setItem(kKey, next);
  } catch {
    // Not kept then; it still holds for this document.
  }
  for (const callback of listeners) callback();
  return next;
}

export function onTheme(callback) {
  listeners.add(callback);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", callback);
}

let motion; // asked in every frame: made once

export function reducedMotion() {
  motion ??= matchMedia("(prefers-reduced-motion: reduce)");
  return motion.matches;
}

// The colours of the custom properties as [r, g, b]. A custom property computes to its own text, light-dark()
// and all; `color` computes to the colour that is used.
export function colours(names) {
  const probe = document.createElement("span");
  document.body.append(probe);
  const found = {};
  for (const name of names) {
    probe.style.color = `var(--${name})`;
    found[name] = (getComputedStyle(probe).color.match(/[\d.]+/g) ?? [0, 0, 0]).slice(0, 3).map(Number);
  }
  probe.remove();
  return found;
}

export function css([r, g, b], alpha = 1) {
  return alpha === 1 ? `rgb(${r} ${g} ${b})` : `rgb(${r} ${g} ${b} / ${alpha})`;
}
