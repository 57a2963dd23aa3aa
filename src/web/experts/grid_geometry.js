// Where the cells of the grid lie, in device pixels: layers across, experts down. A layer of very many experts
// is folded into bands side by side, so that a cell stays large enough to see and to point at. Pure.

const kCellMin = 5; // below this a layer is folded, if that helps
const kPitchMax = 180; // of a layer, in CSS pixels
const kBands = [1, 2, 4, 8, 16];

// `ratio`: device pixels a CSS pixel. Returns {layers, experts, bands, rows, cellWidth, cellHeight, gap, pitch,
// left, width, height}, all in device pixels.
export function layoutGrid({ layers, experts }, cssWidth, cssHeight, ratio) {
  const width = Math.floor(cssWidth * ratio);
  const height = Math.floor(cssHeight * ratio);
  const gap = (pitch) =>
    pitch >= 12 * ratio ? Math.max(2, Math.round(3 * ratio)) : pitch >= 4 * ratio ? Math.round(ratio) : 0;
  let best = null;
  for (const bands of kBands) {
    if (bands > experts) break;
    const rows = Math.ceil(experts / bands);
    const pitch = Math.min(Math.floor(width / layers), Math.round(kPitchMax * ratio));
    const cellWidth = Math.max(1, Math.floor((pitch - gap(pitch)) / bands));
    const cellHeight = Math.max(
      Math.round(2 * ratio),
      Math.min(Math.floor(height / rows), Math.round(26 * ratio)),
    );
    const size = Math.min(cellWidth, cellHeight) / ratio;
    const candidate = { bands, rows, cellWidth, cellHeight, gap: gap(pitch), size };
    if (!best || candidate.size > best.size * 1.15) best = candidate;
    if (best === candidate && size >= kCellMin) break;
  }
  const { bands, rows, cellWidth, cellHeight } = best;
  // Where there are gaps, they take up what is left of the width.
  const pitch =
    best.gap > 0
      ? Math.min((width + best.gap) / layers, bands * cellWidth + 2 * best.gap)
      : bands * cellWidth;
  return {
    layers,
    experts,
    bands,
    rows,
    cellWidth,
    cellHeight,
    gap: best.gap,
    pitch,
    ratio,
    width: Math.max(1, Math.round((layers - 1) * pitch) + bands * cellWidth),
    height: Math.max(1, rows * cellHeight),
  };
}

// The upper left corner of a cell.
export function cellCorner(grid, layer, expert) {
  const band = Math.floor(expert / grid.rows);
  return {
    x: Math.round(layer * grid.pitch) + band * grid.cellWidth,
    y: (expert - band * grid.rows) * grid.cellHeight,
  };
}

// The cell under a point in device pixels, or null between cells.
export function cellAt(grid, x, y) {
  const layer = Math.floor((x + 0.5) / grid.pitch);
  const band = Math.floor((x - Math.round(layer * grid.pitch)) / grid.cellWidth);
  const row = Math.floor(y / grid.cellHeight);
  const expert = band * grid.rows + row;
  const inside =
    layer >= 0 &&
    layer < grid.layers &&
    band >= 0 &&
    band < grid.bands &&
    row >= 0 &&
    row < grid.rows &&
    expert < grid.experts;
  return inside ? { layer, expert } : null;
}

// The ImageData's own pixels, and how a cell is filled. Cells of at least four pixels leave a line free.
export class Raster {
  constructor(grid, pixels, ground) {
    this.grid = grid;
    this.pixels = pixels; // Uint32Array(width × height)
    pixels.fill(ground);
    const line = Math.max(1, Math.round(grid.ratio));
    this.inkWidth = grid.cellWidth >= 4 * grid.ratio ? grid.cellWidth - line : grid.cellWidth;
    this.inkHeight = grid.cellHeight >= 4 * grid.ratio ? grid.cellHeight - line : grid.cellHeight;
    this.corners = new Int32Array(grid.layers * grid.experts);
    for (let layer = 0; layer < grid.layers; layer++) {
      for (let expert = 0; expert < grid.experts; expert++) {
        const { x, y } = cellCorner(grid, layer, expert);
        this.corners[layer * grid.experts + expert] = y * grid.width + x;
      }
    }
  }

  fill(cell, colour) {
    let at = this.corners[cell];
    for (let row = 0; row < this.inkHeight; row++, at += this.grid.width) {
      for (let i = at; i < at + this.inkWidth; i++) this.pixels[i] = colour;
    }
  }
}
