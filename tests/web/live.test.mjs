// The live pages without a page: frames, heat, the grid's geometry, replay, rates, charts.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Pace } from "../../src/web/lib/pace.js";
import { FrameMeter } from "../../src/web/experts/frame_meter.js";
import { cellAt, cellCorner, layoutGrid, Raster } from "../../src/web/experts/grid_geometry.js";
import { Heat, kColours, paletteOf, shadeOf } from "../../src/web/experts/heat.js";
import { RoutingFigures } from "../../src/web/experts/overlap.js";
import { Recorder } from "../../src/web/experts/recording.js";
import { chosenText, Replay } from "../../src/web/experts/replay.js";
import { passOf, residentOf, sameShape, shapeOf } from "../../src/web/experts/routing.js";
import { linesOf, niceMax, niceMaxBytes } from "../../src/web/lib/charts.js";
import * as format from "../../src/web/lib/format.js";
import { kSecondsKept, Rates } from "../../src/web/lib/rates.js";
import { planParts } from "../../src/web/machine/plan.js";

const kHello = { moe_layers: [1, 3], experts: 8, experts_per_token: 2 };
const kShape = shapeOf(kHello);
const base64 = (bytes) => Buffer.from(bytes).toString("base64");
const frame = (ids, read = 0, more = {}) => ({
  n: 1,
  ms: 5,
  request: 1,
  rows: 1,
  prefill: false,
  ids: base64(new Uint8Array(Uint16Array.from(ids).buffer)),
  read: base64([read]),
  ...more,
});

test("a model is announced, or refused", () => {
  assert.deepEqual(kShape, { layerNumbers: [1, 3], layers: 2, experts: 8, chosen: 2, cells: 16 });
  for (const change of [
    { moe_layers: [] },
    { moe_layers: "x" },
    { moe_layers: [0.5] },
    { experts: 0 },
    { experts: 1e6 },
    { experts_per_token: 9 },
  ])
    assert.equal(shapeOf({ ...kHello, ...change }), null, JSON.stringify(change));
  assert.ok(sameShape(kShape, shapeOf(kHello)));
  assert.ok(!sameShape(kShape, shapeOf({ ...kHello, moe_layers: [0, 1] })));
});

test("a pass is read, and one of another shape is not", () => {
  const pass = passOf(frame([7, 0, 3, 4], 0b0110), kShape);
  assert.deepEqual([...pass.ids], [7, 0, 3, 4]);
  assert.deepEqual([...pass.read], [0, 1, 1, 0]);
  assert.equal(passOf(frame([7, 0, 3]), kShape), null);
  assert.equal(passOf(frame([8, 0, 3, 4]), kShape), null);
  assert.equal(passOf(frame([7, 0, 3, 4], 0, { read: base64([0, 0]) }), kShape), null);
  assert.equal(passOf(frame([7, 0, 3, 4], 0, { ids: "%" }), kShape), null);
  assert.deepEqual(
    [...residentOf({ bits: base64([0b101, 0x80]) }, kShape)],
    [1, 0, 1, ...Array(12).fill(0), 1],
  );
  assert.equal(residentOf({ bits: base64([1]) }, kShape), null);
});

test("an answer is recorded from the end of its prompt", () => {
  const recorder = new Recorder();
  recorder.take(frame([1, 2, 3, 4])); // no model yet
  assert.ok(recorder.begin(kHello));
  const seen = [];
  recorder.onPass((pass) => seen.push(pass.n));
  const take = (n, request, prefill) => recorder.take(frame([1, 2, 3, 4], 0, { n, request, prefill }));
  take(1, 0, false);
  take(2, 1, true);
  take(3, 1, true);
  take(4, 1, false);
  take(5, 2, true);
  take(6, 1, false);
  assert.deepEqual(seen, [1, 2, 3, 4, 5, 6]);
  assert.equal(recorder.last().request, 2);
  for (let request = 3; request < 9; request++) take(request + 10, request, true);
  assert.equal(recorder.last().request, 8);
  take(30, 1, false); // long forgotten: begins anew
  assert.deepEqual(
    recorder.last().passes.map(({ n }) => n),
    [30],
  );
});

test("another model forgets the answers, the same one does not", () => {
  const recorder = new Recorder();
  recorder.begin(kHello);
  recorder.take(frame([1, 2, 3, 4]));
  recorder.begin({ ...kHello });
  assert.ok(recorder.last());
  recorder.begin({ ...kHello, experts: 16 });
  assert.equal(recorder.last(), null);
  recorder.begin({ ...kHello, model: "a" });
  const { shape } = recorder;
  recorder.take(frame([1, 2, 3, 4]));
  recorder.begin({ ...kHello, model: "a" });
  assert.ok(recorder.last() && recorder.shape === shape);
  recorder.begin({ ...kHello, model: "b" }); // of the same shape
  assert.ok(recorder.last() === null && recorder.shape !== shape);
});

test("the same request's number after the model was loaded again is another answer", () => {
  const recorder = new Recorder();
  recorder.begin(kHello);
  for (const n of [1, 2, 3]) recorder.take(frame([1, 2, 3, 4], 0, { n }));
  recorder.begin({ ...kHello });
  for (const n of [1, 2]) recorder.take(frame([5, 6, 3, 4], 0, { n }));
  assert.deepEqual(
    recorder.last().passes.map(({ n, ids }) => [n, ids[0]]),
    [
      [1, 5],
      [2, 5],
    ],
  );
});

test("heat rises, halves and goes out, and only changes are painted", () => {
  const heat = new Heat(8);
  heat.touchAll();
  assert.equal(
    heat.flush(() => {}),
    8,
  );
  heat.choose(3, true);
  heat.choose(5, false);
  const painted = new Map();
  assert.equal(
    heat.flush((cell, shade) => painted.set(cell, shade)),
    2,
  );
  assert.equal(painted.get(3), shadeOf(0, 1, 1));
  assert.equal(painted.get(5), shadeOf(0, 1, 0));
  assert.equal(
    heat.flush(() => assert.fail("nothing changed")),
    0,
  );
  heat.advance(0.6); // the frame that shows the choice
  assert.equal(heat.heat[3], 1);
  heat.advance(0.6);
  assert.ok(Math.abs(heat.heat[3] - 0.5) < 1e-6);
  heat.advance(60);
  assert.deepEqual([heat.warmCount, heat.heat[3], heat.read[3]], [0, 0, 0]);
  assert.equal(
    heat.flush(() => {}),
    2,
  );
  heat.setResident(Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 1));
  assert.equal(
    heat.flush((cell, shade) => assert.equal(shade, shadeOf(1, 0, 0))),
    2,
  );
});

test("every shade has a colour, from the ground to the hottest", () => {
  const palette = paletteOf({ absent: [1, 2, 3], resident: [4, 5, 6], heat: [255, 0, 0], disk: [0, 0, 255] });
  assert.equal(palette.length, kColours);
  assert.equal(palette[shadeOf(0, 0, 0)], 0xff030201);
  assert.equal(palette[shadeOf(1, 0, 1)], 0xff060504);
  assert.equal(palette[shadeOf(0, 1, 0)], 0xff0000ff);
  assert.equal(palette[shadeOf(1, 1, 1)], 0xffff0000);
});

for (const [layers, experts, width, height, ratio] of [
  [8, 32, 1000, 600, 1],
  [36, 128, 1030, 600, 1],
  [48, 512, 1030, 600, 2],
  [48, 512, 300, 500, 1],
  [94, 128, 300, 320, 3],
  [1, 7, 300, 320, 1.25],
  [400, 256, 320, 320, 1],
]) {
  test(`a grid of ${layers} × ${experts} in ${width} × ${height} at ${ratio}: each cell is where it is found`, () => {
    const grid = layoutGrid({ layers, experts }, width, height, ratio);
    if (layers < 400) assert.ok(grid.width <= width * ratio, `${grid.width}`);
    for (let layer = 0; layer < layers; layer++) {
      for (let expert = 0; expert < experts; expert++) {
        const { x, y } = cellCorner(grid, layer, expert);
        assert.ok(x >= 0 && y >= 0 && x + grid.cellWidth <= grid.width && y + grid.cellHeight <= grid.height);
        assert.deepEqual(cellAt(grid, x, y), { layer, expert });
        assert.deepEqual(cellAt(grid, x + grid.cellWidth - 1, y + grid.cellHeight - 1), { layer, expert });
      }
    }
    assert.equal(cellAt(grid, -1, 0), null);
    assert.equal(cellAt(grid, 0, grid.height), null);
  });
}

test("a cell is filled within its corners and nowhere else", () => {
  const grid = layoutGrid({ layers: 3, experts: 4 }, 300, 320, 1);
  const pixels = new Uint32Array(grid.width * grid.height);
  const raster = new Raster(grid, pixels, 1);
  raster.fill(1 * 4 + 2, 9);
  const inked = pixels.filter((pixel) => pixel === 9).length;
  assert.equal(inked, raster.inkWidth * raster.inkHeight);
  const { x, y } = cellCorner(grid, 1, 2);
  assert.equal(pixels[y * grid.width + x], 9);
  assert.equal(pixels.filter((pixel) => pixel === 1).length, pixels.length - inked);
});

test("overlaps and hit rates are those of the passes", () => {
  const figures = new RoutingFigures(kShape);
  figures.take(passOf(frame([0, 1, 1, 2], 0b0001), kShape));
  assert.equal(figures.layer, 0.5); // 1 of {0, 1} is in {1, 2}
  assert.deepEqual([...figures.hits], [0.5, 1]);
  assert.ok(Number.isNaN(figures.token)); // nothing before it
  figures.take(passOf(frame([0, 1, 5, 6]), kShape));
  assert.equal(figures.token, 0.5); // all of layer 1, none of layer 3
  figures.take(passOf(frame([6, 7, 5, 6], 0, { request: 2 }), kShape));
  assert.equal(figures.token, 0.5); // another text says nothing
  assert.equal(figures.chance, 0.25);
});

test("a replay goes token by token and stops at the end", () => {
  const passes = [1, 2, 3, 4].map((n) => passOf(frame([n, 0, n, 7], 0, { n }), kShape));
  const replay = new Replay({ passes });
  assert.equal(replay.position, 3);
  replay.seek(-4);
  assert.deepEqual(
    replay.lit().map(({ pass, heat }) => [pass.n, heat]),
    [[1, 1]],
  );
  assert.equal(replay.advance(10), false); // paused
  replay.playing = true;
  assert.equal(replay.advance(0.2), false);
  assert.equal(replay.advance(0.1), true);
  assert.equal(replay.position, 1);
  assert.deepEqual(
    replay.lit().map(({ pass }) => pass.n),
    [1, 2],
  );
  replay.advance(100);
  assert.deepEqual([replay.position, replay.playing], [3, false]);
  assert.equal(chosenText(passes[2], kShape), "1: 0,3; 3: 3,7");
});

test("frames a second are counted while there are frames", () => {
  const meter = new FrameMeter();
  for (let i = 0; i <= 60; i++) meter.frame((i * 1000) / 60, 2);
  assert.ok(Math.abs(meter.fps - 60) < 0.1 && meter.paintMs === 2);
  meter.pause();
  meter.frame(100000, 1);
  meter.frame(100020, 1);
  assert.ok(meter.fps > 59); // the pause was no slow frame
});

test("a page left alone draws less often where the model has all CPUs of its machine, until it is touched", () => {
  let now = 0, woken = 0;
  const pace = new Pace(() => now);
  pace.onWake(() => woken++);
  const left = (facts, hostname) => {
    pace.touch();
    pace.take(facts, hostname);
    assert.equal(pace.restMs, 0); // just touched
    now += 21_000;
    assert.equal(pace.restMs, 0); // nothing is computed
    pace.pass();
    return pace.restMs;
  };
  const crowded = { engine: { spare_cpus: 0 } };
  assert.equal(left({ engine: { spare_cpus: 1 } }, "127.0.0.1"), 0);
  assert.equal(left({}, "localhost"), 0); // a server that does not say
  for (const elsewhere of ["192.168.0.2", "127.example.org", "localhost.example.org"])
    assert.equal(left(crowded, elsewhere), 0, elsewhere);
  assert.equal(woken, 0); // nobody was at rest
  for (const here of ["127.0.0.1", "localhost", "[::1]"]) assert.equal(left(crowded, here), 250, here);
  pace.touch();
  assert.deepEqual([pace.restMs, woken], [0, 3]);
  assert.equal(left(crowded, "localhost"), 250);
  now += 2000; // no further pass
  assert.equal(pace.restMs, 0);
});

const stats = (counters) => ({
  now: { running: 1, queued: 0, resident_bytes: 5 },
  counters: {
    hits: 0,
    misses: 0,
    bytes_read: 0,
    predicted: 0,
    predicted_right: 0,
    hidden_seconds: 0,
    wait_seconds: 0,
    decode_tokens: 0,
    prefill_tokens: 0,
    ...counters,
  },
});

test("counters become rates", () => {
  const rates = new Rates();
  rates.push(10, stats({}));
  assert.equal(rates.last(), null);
  rates.push(12, stats({ hits: 3, misses: 1, bytes_read: 200, decode_tokens: 30 }));
  const { diskRate, hitRate, decodeRate, lookaheadRight } = rates.last();
  assert.deepEqual([diskRate, hitRate, decodeRate, lookaheadRight], [100, 0.75, 15, NaN]);
  rates.push(12.1, stats({ hits: 4, misses: 1, bytes_read: 200, decode_tokens: 30 })); // too soon after
  assert.equal(rates.points.length, 1);
  for (let i = 13; i < 200; i++)
    rates.push(i, stats({ hits: i, misses: 1, bytes_read: 200, decode_tokens: 30 }));
  assert.ok(rates.points.length <= kSecondsKept + 1);
  rates.push(200, stats({})); // another server
  assert.equal(rates.points.length, 0);
  rates.push(202, stats({ decode_tokens: 5 }));
  rates.clear(); // another model, which counts from the start
  rates.push(203, stats({ decode_tokens: 900 }));
  assert.equal(rates.last(), null);
});

test("charts", () => {
  assert.deepEqual([0, 0.3, 1, 1.1, 7, 10, 230].map(niceMax), [1, 0.5, 1, 2, 10, 10, 500]);
  assert.deepEqual([0, 3 * 2 ** 20, 2 ** 30, 900 * 2 ** 20].map(niceMaxBytes), [
    2 ** 20,
    5 * 2 ** 20,
    2 ** 30,
    1000 * 2 ** 20,
  ]);
  const points = [
    [0, 1],
    [60, 2],
    [90, NaN],
    [120, 4],
  ].map(([seconds, value]) => ({ seconds, value }));
  assert.deepEqual(linesOf(points, 120, 4, 120, 100), [
    [
      [0, 75],
      [60, 50],
    ],
    [[120, 0]],
  ]);
});

test("the plan fills its bar and no more", () => {
  const { parts, used, free } = planParts({
    budget_bytes: 100,
    trunk_bytes: 30,
    slots_bytes: 50,
    io_bytes: 0,
  });
  assert.deepEqual([parts.map(({ share }) => share), used, free], [[0.3, 0.5], 80, 20]);
  assert.ok(planParts({ budget_bytes: 10, trunk_bytes: 30 }).parts[0].share <= 1);
});

test("figures read well", () => {
  assert.deepEqual([0, 1023, 1024, 1536, 13271040, 2 ** 40].map(format.bytes), [
    "0 B",
    "1023 B",
    "1.0 KiB",
    "1.5 KiB",
    "12.7 MiB",
    "1.0 TiB",
  ]);
  assert.deepEqual([0, 0.0004, 0.042, 0.5, 9.87, 75, 3720].map(format.seconds), [
    "0 ms",
    "1 ms",
    "42 ms",
    "0.50 s",
    "9.87 s",
    "1 min 15 s",
    "1 h 2 min",
  ]);
  assert.deepEqual([0, 0.8613, 1, NaN].map(format.percent), ["0 %", "86.1 %", "100 %", "–"]);
  assert.equal(format.count(1234567), "1,234,567");
});
