// The Machine page without a page: models, installs, previews, plans.
import assert from "node:assert/strict";
import { test } from "node:test";
import {
  installFacts,
  modelFacts,
  planFacts,
  previewFacts,
  resumeBody,
  shownInstalls,
  TransferRate,
} from "../../src/web/machine/models.js";

const kGib = 2 ** 30;

test("a rate is that of the last seconds, and begins anew when less is done than before", () => {
  const rate = new TransferRate();
  assert.ok(Number.isNaN(rate.get()));
  rate.push(0, 0);
  rate.push(0.25, 100);
  assert.ok(Number.isNaN(rate.get())); // too short to say
  for (let second = 1; second <= 30; second++)
    rate.push(second, second < 20 ? 1000 * second : 20000 + 50 * second);
  assert.equal(rate.get(), 50);
  rate.push(31, 10);
  rate.push(33, 30);
  assert.equal(rate.get(), 10);
});

const kInstall = {
  name: "a",
  state: "running",
  stage: "experts",
  done_bytes: 3 * kGib,
  total_bytes: 12 * kGib,
};

test("an install says how far it is, how fast and how long still", () => {
  assert.deepEqual(installFacts(kInstall, 100 * 2 ** 20), {
    share: 0.25,
    far: "experts · 3.0 GiB of 12.0 GiB",
    pace: "100 MiB/s · 1 min 30 s left",
    action: "pause",
    error: "",
  });
  const facts = (change, rate = NaN) => installFacts({ ...kInstall, ...change }, rate);
  assert.equal(facts({}).pace, "");
  assert.equal(facts({}, 0).pace, "");
  assert.equal(facts({ done_bytes: 0, total_bytes: 0, stage: "" }).far, "starting");
  assert.equal(facts({ done_bytes: 13 * kGib }).share, 1);
  assert.deepEqual([facts({ state: "pausing" }).action, facts({ state: "paused" }).action], [null, "resume"]);
  assert.equal(facts({ state: "paused" }, 100).pace, ""); // what it did before says nothing
  const failed = facts({ state: "failed", error: "the disk is full" });
  assert.deepEqual([failed.action, failed.error], ["resume", "the disk is full"]);
  assert.match(facts({ state: "failed" }).error, /does not say why/);
});

test("installs are shown while they run, wait, or have failed unseen", () => {
  const installs = ["running", "pausing", "paused", "done", "failed"].map((state) => ({
    name: state,
    state,
  }));
  const names = (models, seen) =>
    shownInstalls(installs, new Set(models), new Set(seen)).map(({ name }) => name);
  assert.deepEqual(names(["paused"], []), ["running", "pausing", "paused", "failed"]);
  assert.deepEqual(names([], ["failed", "running"]), ["running", "pausing"]); // the paused one was removed
});

const kModel = {
  name: "a",
  state: "complete",
  source: "o/a",
  family: "gpt_oss",
  expert_format: "mxfp4",
  trunk_format: "affine8",
  layers: 36,
  experts: 128,
  disk_bytes: 60 * kGib,
  serving: false,
};

test("a model says what can be done with it, and why not", () => {
  const facts = (change, context = {}) => modelFacts({ ...kModel, ...change }, { loading: null, ...context });
  const ready = facts({});
  assert.deepEqual(
    [ready.badge, ready.main, ready.mainWhyNot, ready.planWhyNot, ready.removeWhyNot],
    ["ready", "switch", null, null, null],
  );
  assert.deepEqual([ready.shape, ready.formats, ready.size], ["36 × 128", "mxfp4, affine8", "60.0 GiB"]);

  const served = facts({ serving: true });
  assert.equal(served.badge, "serving");
  assert.match(served.mainWhyNot, /is being served/);
  assert.match(served.removeWhyNot, /switch to another/);
  assert.equal(served.planWhyNot, null);

  assert.equal(facts({}, { loading: "a" }).badge, "loading");
  assert.match(facts({}, { loading: "a" }).removeWhyNot, /being loaded/);
  assert.match(facts({}, { loading: "b" }).mainWhyNot, /b is being loaded/);
  assert.match(facts({}, { loading: "b" }).removeWhyNot, /b is being loaded/);

  const unfinished = facts({ state: "unfinished", problem: "go on" });
  assert.deepEqual([unfinished.main, unfinished.mainWhyNot, unfinished.problem], ["resume", null, "go on"]);
  assert.match(unfinished.planWhyNot, /not complete/);
  assert.match(facts({ state: "unfinished", source: "" }).mainWhyNot, /by its source/);
  const paused = { ...kInstall, state: "paused", source: "o/a" };
  assert.equal(facts({ state: "unfinished", source: "" }, { install: paused }).mainWhyNot, null);

  const install = { ...kInstall };
  const installing = facts({ state: "unfinished", problem: "go on" }, { install });
  assert.deepEqual([installing.badge, installing.problem], ["installing", ""]);
  assert.match(installing.mainWhyNot, /being installed/);
  assert.match(installing.removeWhyNot, /being installed/);
  assert.equal(facts({ state: "unfinished" }, { install: { ...install, state: "paused" } }).mainWhyNot, null);

  const damaged = modelFacts(
    { name: "x", state: "damaged", disk_bytes: 5, problem: "cut off" },
    { loading: null },
  );
  assert.deepEqual([damaged.shape, damaged.formats, damaged.problem], ["–", "–", "cut off"]);
  assert.match(damaged.mainWhyNot, /damaged/);
  assert.equal(damaged.removeWhyNot, null);
});

test("an install goes on in the formats that it was begun with", () => {
  assert.deepEqual(resumeBody(kModel), { source: "o/a", experts: "mxfp4", trunk: "affine8" });
  const mixed = { ...kModel, expert_format: "affine4-g32", trunk_format: "" };
  assert.deepEqual(resumeBody(mixed), { source: "o/a" });
  assert.deepEqual(resumeBody({ source: "" }, { source: "o/b" }), { source: "o/b" });
  const begun = { source: "o/a", experts: "affine8" };
  assert.deepEqual(resumeBody({ ...kModel, expert_format: "" }, undefined, begun), begun);
  // What the server was asked to install names the model; what the list has may be where that was found.
  assert.deepEqual(resumeBody({ source: "/cache/o/a" }, undefined, begun), begun);
  assert.deepEqual(resumeBody({ source: "/cache/o/a" }, { source: "o/a" }), { source: "o/a" });
});

const kPreview = {
  source: "o/a",
  revision: "0123456789abcdef",
  destination: "/m/a",
  source_bytes: 14 * kGib,
  fetch_bytes: 12 * kGib,
  read_bytes: 12 * kGib,
  write_bytes: 12 * kGib,
  peak_bytes: 13 * kGib,
  held_bytes: 0,
  free_bytes: 100 * kGib,
  experts: "MXFP4",
  trunk: "affine8",
};

test("a preview says what would be fetched and written, and whether there is room", () => {
  const facts = (change) => {
    const { rows, problem } = previewFacts({ ...kPreview, ...change });
    return { ...Object.fromEntries(rows), problem };
  };
  const plain = facts({});
  assert.equal(plain.Source, "o/a at 01234567");
  assert.equal(plain.Fetched, "12.0 GiB of 14.0 GiB");
  assert.equal(plain["Disk needed"], "13.0 GiB of 100 GiB free");
  assert.deepEqual([plain.Time, plain["There already"], plain.problem], [undefined, undefined, ""]);
  assert.equal(facts({ weight_files: 3 }).Fetched, "12.0 GiB of 14.0 GiB in 3 files");
  assert.equal(facts({ bytes_per_second: 2 ** 26, seconds: 192 }).Time, "about 3 min 10 s at 64.0 MiB/s");
  assert.match(facts({ free_bytes: 4 * kGib }).problem, /9.0 GiB are missing/);
  assert.equal(facts({ free_bytes: 4 * kGib, held_bytes: 10 * kGib }).problem, "");
  assert.equal(facts({ held_bytes: 10 * kGib })["Disk needed"], "3.0 GiB of 100 GiB free");
  const local = facts({ fetch_bytes: 0, revision: "" });
  assert.deepEqual([local.Fetched, local.Read, local.Source], [undefined, "12.0 GiB of 14.0 GiB", "o/a"]);
});

test("a plan says how many experts stay, and never more than there are", () => {
  const rows = (slots, cells) =>
    Object.fromEntries(planFacts({ plan: { slots, sessions: 2, chunk: 256 }, context: 8192 }, cells));
  assert.equal(rows(1000, 4608)["Experts in memory"], "1,000 of 4,608");
  assert.equal(rows(5000, 4608)["Experts in memory"], "4,608 of 4,608");
  assert.equal(rows(1000, 0)["Experts in memory"], "1,000");
  assert.equal(rows(1, 0).Context, "8,192 tokens");
});
