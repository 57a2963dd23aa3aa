// Numbers as people read them. Byte units are binary, as everywhere in Wader: 1 MiB = 1,048,576 bytes.

const kUnits = ["B", "KiB", "MiB", "GiB", "TiB"];

// Three significant digits at most, so that a live figure keeps its width.
function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(size >= 10 ? 1 : 2);
}

export function bytes(count) {
  if (!Number.isFinite(count)) return "–";
  let unit = 0;
  let value = count;
  while (Math.abs(value) >= 1023.5 && unit < kUnits.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${unit === 0 ? Math.round(value) : value.toFixed(Math.abs(value) >= 100 ? 0 : 1)} ${kUnits[unit]}`;
}

export function bytesPerSecond(rate) {
  return Number.isFinite(rate) ? `${bytes(rate)}/s` : "–";
}

export function count(value) {
  if (!Number.isFinite(value)) return "–";
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}

export function number(value) {
  return Number.isFinite(value) ? digits(value) : "–";
}

export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const value = share * 100;
  return `${value >= 99.95 || value < 0.05 ? value.toFixed(0) : value.toFixed(1)} %`;
}

export function seconds(value) {
  if (!Number.isFinite(value)) return "–";
  if (value < 0.0995) return `${value === 0 ? 0 : Math.max(1, Math.round(value * 1000))} ms`;
  if (value < 60) return `${digits(value)} s`;
  const whole = Math.round(value);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

// A message of the server as a sentence of the page.
export function sentence(text) {
  return /[.…!?]$/.test(text) ? text : `${text}.`;
}

export function tokensPerSecond(rate) {
  return Number.isFinite(rate) ? `${digits(rate)} tok/s` : "–";
}
