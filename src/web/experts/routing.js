// Reads the live feed's frames. Whatever does not fit the announced model is refused, so that no page indexes
// outside its arrays.

// The shape of all frames: layers with experts in order, experts a layer, experts a token.
export function shapeOf({ moe_layers: layerNumbers, experts, experts_per_token: chosen }) {
  const fits =
    Array.isArray(layerNumbers) &&
    layerNumbers.length > 0 &&
    layerNumbers.length <= 1024 &&
    layerNumbers.every(Number.isInteger) &&
    Number.isInteger(experts) &&
    experts > 0 &&
    experts <= 65536 &&
    Number.isInteger(chosen) &&
    chosen > 0 &&
    chosen <= experts;
  if (!fits) return null;
  return { layerNumbers, layers: layerNumbers.length, experts, chosen, cells: layerNumbers.length * experts };
}

export function sameShape(a, b) {
  return (
    a !== null &&
    b !== null &&
    a.experts === b.experts &&
    a.chosen === b.chosen &&
    String(a.layerNumbers) === String(b.layerNumbers)
  );
}

export function bytesFromBase64(text) {
  try {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  } catch {
    return null;
  }
}

// A pass: {n, ms, request, rows, prefill, ids (layers × chosen) u16, read (layers × chosen) 0 or 1}; or null.
export function passOf(data, shape) {
  const bytes = typeof data.ids === "string" ? bytesFromBase64(data.ids) : null;
  const mask = typeof data.read === "string" ? bytesFromBase64(data.read) : null;
  const count = shape.layers * shape.chosen;
  if (bytes?.length !== 2 * count || mask?.length !== Math.ceil(count / 8)) return null;
  const ids = new Uint16Array(count);
  const read = new Uint8Array(count);
  for (let i = 0; i < count; i++) {
    ids[i] = bytes[2 * i] | (bytes[2 * i + 1] << 8);
    if (ids[i] >= shape.experts) return null;
    read[i] = (mask[i >> 3] >> (i & 7)) & 1;
  }
  const { n, ms, request, rows, prefill } = data;
  return { n, ms, request, rows, prefill: Boolean(prefill), ids, read };
}

// One byte a cell (layer × experts + expert) out of a bit each; or null.
export function residentOf(data, shape) {
  const bits = typeof data.bits === "string" ? bytesFromBase64(data.bits) : null;
  if (bits?.length !== Math.ceil(shape.cells / 8)) return null;
  const resident = new Uint8Array(shape.cells);
  for (let cell = 0; cell < shape.cells; cell++) resident[cell] = (bits[cell >> 3] >> (cell & 7)) & 1;
  return resident;
}
