// The range map without a page: the file, the camera, the dots.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Camera, depthOrder, nearest, normalise } from "../../src/web/range/projection.js";
import { indexOf, kNone, readMap, visibleExperts } from "../../src/web/range/range_map.js";
import { Splats } from "../../src/web/range/splats.js";

test("a camera turns, and what is near is drawn last and found first", () => {
  const camera = new Camera();
  camera.yaw = camera.pitch = 0;
  const points = Float32Array.of(0, 0, -1, 0, 0, 1, 0.5, 0.5, 0);
  const screen = new Float32Array(9);
  camera.project(points, 200, 100, screen);
  assert.deepEqual([screen[0], screen[1], screen[3], screen[4]], [100, 50, 100, 50]);
  assert.ok(screen[5] > screen[2] && screen[6] > 100 && screen[7] < 50);
  const order = new Uint32Array(3);
  depthOrder(screen, order);
  assert.deepEqual([...order], [0, 2, 1]);
  assert.equal(nearest(screen, Uint8Array.of(1, 1, 1), 101, 50, 10), 1);
  assert.equal(nearest(screen, Uint8Array.of(1, 0, 1), 101, 50, 10), 0);
  assert.equal(nearest(screen, Uint8Array.of(1, 1, 1), 0, 0, 10), -1);
  camera.turn(Math.PI / 2, 9);
  assert.ok(camera.pitch < Math.PI / 2); // never over the top
  camera.scale(1e9);
  assert.equal(camera.zoom, 8);
});

test("positions are centred, scaled, and never not a number", () => {
  const points = normalise([[0, 0, 0], [4, 0, 0], [2, NaN, undefined], null]);
  assert.ok(points.every(Number.isFinite));
  const distances = [0, 3, 6, 9].map((i) => Math.hypot(points[i], points[i + 1], points[i + 2])).sort();
  assert.ok(Math.abs(distances[2] - 1) < 1e-6);
  assert.deepEqual([...normalise([])], []);
});

const kMap = {
  version: 1,
  topics: ["a", "b"],
  variance_explained: [0.5, 0.2, 0.1],
  activations_over: 24,
  credited: 1,
  tested: 0,
  repeated: 0,
  repeat_rate: null,
  by_chance: { credited: 0.25, repeated: 0, repeat_rate: null },
  experts: [
    {
      layer: 1,
      expert: 0,
      activations: 50,
      specialisation: 0.6,
      topic: 1,
      position: [1, 0, 0],
      repeats: true,
    },
    {
      layer: 3,
      expert: 7,
      activations: 3,
      specialisation: 0.1,
      topic: null,
      position: [0, 0, 0],
      repeats: null,
    },
  ],
};

test("a range map is read, filtered and refused", () => {
  const map = readMap(kMap);
  assert.deepEqual(
    [[...map.topicOf], [...map.counts], map.uncredited, [...map.faint]],
    [[1, kNone], [0, 1], 1, [0, 1]],
  );
  assert.deepEqual([map.credited, map.tested, map.repeated, map.byChance.credited], [1, 0, 0, 0.25]);
  assert.ok(Number.isNaN(map.repeatRate) && Number.isNaN(map.byChance.repeatRate)); // nothing was tested
  const tested = readMap({
    ...kMap,
    tested: 4,
    repeated: 3,
    repeat_rate: 0.75,
    by_chance: { repeat_rate: 0.1 },
  });
  assert.deepEqual([tested.repeatRate, tested.byChance.repeatRate], [0.75, 0.1]);
  assert.deepEqual([...readMap({ ...kMap, activations_over: 2 }).faint], [0, 0]);
  assert.deepEqual([...visibleExperts(map, new Set([1]))], [0, 1]);
  assert.deepEqual([indexOf(map, 3, 7), indexOf(map, 3, 6)], [1, -1]);
  for (const change of [
    { version: 2 },
    { topics: null },
    { experts: {} },
    { experts: [{ layer: 0, expert: "x", topic: null }] },
    { experts: [{ layer: 0, expert: 0, topic: 2 }] },
    { experts: [{ layer: 0, expert: 0, topic: -1 }] },
  ])
    assert.throws(() => readMap({ ...kMap, ...change }), /cannot be shown/, JSON.stringify(change));
});

test("dots stay within their radius and within the picture", () => {
  const pixels = new Uint32Array(20 * 10);
  const splats = new Splats(pixels, 20, 10);
  splats.clear([0, 0, 0]);
  splats.dot(10.2, 5.1, 3, [255, 255, 255], 1);
  let sum = 0;
  pixels.forEach((pixel, i) => {
    const distance = Math.hypot((i % 20) + 0.5 - 10.2, Math.floor(i / 20) + 0.5 - 5.1);
    if (distance > 4) assert.equal(pixel, 0xff000000);
    sum += (pixel & 0xff) / 255;
  });
  assert.ok(Math.abs(sum - Math.PI * 9) < 1.5, `covers ${sum} pixels`);
  const before = pixels.slice();
  for (const [x, y] of [
    [-50, 5],
    [100, 5],
    [5, -50],
    [5, 100],
  ])
    splats.dot(x, y, 3, [255, 0, 0], 1);
  assert.deepEqual(pixels, before);
  for (const [x, y] of [
    [-1, 5],
    [20, 5],
    [5, -1],
    [5, 10],
  ])
    splats.dot(x, y, 3, [255, 0, 0], 0.5); // over each edge
  assert.ok(pixels.every((pixel) => pixel >= 0xff000000));
});
