// Is the stub a hub? Asked by the official client, npm's @huggingface/hub: what it lists and downloads from the stub must be
// what the directory holds, and what the stub refuses must be refused in a way that this client understands.
//
//   node honest.mjs [--npm DIR]      DIR has node_modules (default: ../npm); exit 0, 1, or 77 when the package is not there
import assert from 'node:assert/strict';
import crypto from 'node:crypto';
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { createRequire } from 'node:module';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { startStub } from './stub_process.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const source = path.join(here, '..', '..');
const npm = process.argv[2] === '--npm' ? process.argv[3] : path.join(here, '..', 'npm');

let client;
try {
  client = await import(pathToFileURL(createRequire(path.join(path.resolve(npm), 'package.json')).resolve('@huggingface/hub')).href);
} catch (error) {
  if (error.code !== 'MODULE_NOT_FOUND') throw error;
  console.log('skipped: npm package @huggingface/hub is not installed: run npm ci in tests/npm');
  process.exit(process.env.CI === 'true' ? 1 : 77);
}
const { listFiles, downloadFile, fileDownloadInfo, modelInfo } = client;

const DIRECTORIES = {
  'wader-tests/demo': path.join(source, 'models', 'demo'),
  ...Object.fromEntries(['tiny-gpt-oss', 'tiny-qwen3-moe', 'tiny-qwen3-next', 'tiny-qwen3.5-moe'].map((name) => {
    return [`wader-tests/${name}`, path.join(source, 'tests', 'data', name)];
  })),
};
const repos = Object.entries(DIRECTORIES).flatMap(([id, dir]) => ['--repo', `${id}=${dir}`]);
const stub = await startStub([...repos, '--page', '3', '--token', 'hf_good', '--token', 'hf_stranger']);
const hubUrl = stub.hub;
let checks = 0;
const check = async (name, body) => {
  try {
    await body();
    checks++;
  } catch (error) {
    console.error(`FAILED ${name}\n${error.stack}`);
    process.exitCode = 1;
  }
};
const sha256 = (bytes) => crypto.createHash('sha256').update(bytes).digest('hex');
const gitOid = (bytes) => crypto.createHash('sha1').update(`blob ${bytes.length}\0`).update(bytes).digest('hex');
const bytesOf = async (blob) => Buffer.from(await blob.arrayBuffer());
const entries = async (params) => {
  const found = [];
  for await (const entry of listFiles({ hubUrl, recursive: true, ...params })) found.push(entry);
  return found;
};

for (const [repo, dir] of Object.entries(DIRECTORIES)) {
  const names = fs.readdirSync(dir).sort();
  await check(`${repo}: list`, async () => {
    const list = await entries({ repo });
    assert.deepEqual(list.map((entry) => entry.path).sort(), names);
    for (const entry of list) {
      const bytes = fs.readFileSync(path.join(dir, entry.path));
      assert.equal(entry.size, bytes.length, entry.path);
      if (!entry.lfs) {
        assert.equal(entry.oid, gitOid(bytes), entry.path);
        continue;
      }
      assert.equal(entry.lfs.oid, sha256(bytes), entry.path);
      const pointer = `version https://git-lfs.github.com/spec/v1\noid sha256:${entry.lfs.oid}\nsize ${entry.size}\n`;
      assert.equal(entry.oid, gitOid(Buffer.from(pointer)), entry.path);
      assert.equal(entry.lfs.pointerSize, pointer.length);
    }
  });
  await check(`${repo}: info`, async () => {
    const info = await modelInfo({ name: repo, hubUrl, additionalFields: ['sha', 'filePaths'] });
    assert.equal(info.name, repo);
    assert.deepEqual(info.filePaths.sort(), names);
    assert.match(info.sha, /^[0-9a-f]{40}$/);
    const again = await modelInfo({ name: repo, hubUrl, revision: info.sha, additionalFields: ['sha'] });
    assert.equal(again.sha, info.sha);
  });
  for (const name of names) {
    await check(`${repo}: ${name}`, async () => {
      const bytes = fs.readFileSync(path.join(dir, name));
      const info = await fileDownloadInfo({ repo, path: name, hubUrl });
      assert.equal(info.size, bytes.length);
      const head = await fetch(`${hubUrl}/${repo}/resolve/main/${name}`, { method: 'HEAD', redirect: 'manual' });
      if (name.endsWith('.safetensors')) {
        assert.equal(head.headers.get('x-linked-etag'), `"${sha256(bytes)}"`);
        assert.equal(head.headers.get('x-linked-size'), String(bytes.length));
        assert.notEqual(info.etag, `"${sha256(bytes)}"`);  // the CDN's own
      } else {
        assert.equal(info.etag, `"${gitOid(bytes)}"`);
      }
      assert.match(head.headers.get('x-repo-commit'), /^[0-9a-f]{40}$/);
      const blob = await downloadFile({ repo, path: name, hubUrl, accessToken: 'hf_good' });
      assert.ok(bytes.equals(await bytesOf(blob)), 'other bytes');
      if (bytes.length < 100) return;
      const middle = await bytesOf(blob.slice(17, 93));
      assert.ok(bytes.subarray(17, 93).equals(middle), 'other bytes in a range');
    });
  }
}

const repo = 'wader-tests/tiny-gpt-oss';
const dir = DIRECTORIES[repo];
const fails = (status, code) => (error) => {
  assert.equal(error.statusCode, status, error.message);
  if (code) assert.match(JSON.stringify([error.message, error.data]), code);
  return true;
};
await check('what is missing', async () => {
  assert.equal(await downloadFile({ repo, path: 'none.json', hubUrl }), null);
  await assert.rejects(entries({ repo: 'wader-tests/none' }), fails(401, /Invalid username/));
  await assert.rejects(entries({ repo: 'wader-tests/none', accessToken: 'hf_good' }), fails(404, /Repository not found/));
  await assert.rejects(entries({ repo, revision: 'v9' }), fails(404, /Invalid rev id: v9/));
  await assert.rejects(entries({ repo, accessToken: 'hf_forged' }), fails(401, /Invalid credentials/));
});
await check('gated, private, moved', async () => {
  await stub.ask('repos', { id: 'wader-tests/gated', dir, gated: 'manual', allowed: ['hf_good'] });
  await stub.ask('repos', { id: 'wader-tests/hidden', dir, private: true, allowed: ['hf_good'] });
  await stub.ask('repos', { id: 'wader-tests/old', dir, moved_to: repo });
  const gated = { repo: 'wader-tests/gated', path: 'model.safetensors', hubUrl };
  assert.equal((await modelInfo({ name: gated.repo, hubUrl })).gated, 'manual');
  await assert.rejects(downloadFile(gated), fails(401, /restricted/));
  await assert.rejects(downloadFile({ ...gated, accessToken: 'hf_stranger' }), fails(403, /not in the authorized list/));
  const want = fs.readFileSync(path.join(dir, 'model.safetensors'));
  assert.ok(want.equals(await bytesOf(await downloadFile({ ...gated, accessToken: 'hf_good' }))));
  await assert.rejects(entries({ repo: 'wader-tests/hidden' }), fails(401));
  assert.equal((await entries({ repo: 'wader-tests/hidden', accessToken: 'hf_good' })).length, fs.readdirSync(dir).length);
  assert.ok(want.equals(await bytesOf(await downloadFile({ ...gated, repo: 'wader-tests/old' }))));
});
await check('a push', async () => {
  const before = (await modelInfo({ name: repo, hubUrl, additionalFields: ['sha'] })).sha;
  await stub.ask('repos', { id: repo, dir: DIRECTORIES['wader-tests/tiny-qwen3-moe'] });
  assert.notEqual((await modelInfo({ name: repo, hubUrl, additionalFields: ['sha'] })).sha, before);
  const old = await bytesOf(await downloadFile({ repo, path: 'model.safetensors', revision: before, hubUrl }));
  assert.ok(old.equals(fs.readFileSync(path.join(dir, 'model.safetensors'))));
});

const tiny = 'wader-tests/tiny-qwen3-next';
const shard = 'model-00001-of-00002.safetensors';
const want = fs.readFileSync(path.join(DIRECTORIES[tiny], shard));
const resolve = `${hubUrl}/${tiny}/resolve/main/${shard}`;
const get = (headers = {}) => fetch(resolve, { headers });
await check('ranges', async () => {
  for (const [range, status, from, to] of [['bytes=0-0', 206, 0, 1], ['bytes=7-', 206, 7], ['bytes=-5', 206, want.length - 5],
    [`bytes=9-${want.length + 99}`, 206, 9], ['bytes=5-4', 200, 0], ['bytes=0-1,4-5', 200, 0]]) {
    const response = await get({ Range: range });
    assert.equal(response.status, status, range);
    assert.ok(want.subarray(from, to).equals(Buffer.from(await response.arrayBuffer())), range);
    const last = (to ?? want.length) - 1;
    assert.equal(response.headers.get('content-range'), status === 206 ? `bytes ${from}-${last}/${want.length}` : null);
  }
  const past = await get({ Range: `bytes=${want.length}-` });
  assert.equal(past.status, 416);
  assert.equal(past.headers.get('content-range'), `bytes */${want.length}`);
  const etag = (await get({ Range: 'bytes=0-0' })).headers.get('etag');
  assert.equal((await get({ Range: 'bytes=5-', 'If-Range': etag })).status, 206);
  assert.equal((await get({ Range: 'bytes=5-', 'If-Range': '"other"' })).status, 200);
});
// Requests that come before the answer to the one before has ended, as any quick client's on one connection.
await check('answers on one connection are whole', async () => {
  const names = ['config.json', shard, 'config.json', 'generation_config.json'].map((name) => `/${tiny}/resolve/main/${name}`);
  const socket = net.connect(Number(new URL(hubUrl).port), '127.0.0.1');
  const requests = names.map((name, n) => `GET ${name} HTTP/1.1\r\nHost: hub\r\n${n === names.length - 1 ? 'Connection: close\r\n' : ''}\r\n`);
  socket.write(requests.join(''));
  socket.setTimeout(5000, () => socket.destroy(new Error('an answer did not end')));
  let text = '';
  for await (const piece of socket) text += piece;
  const answers = text.split(/(?=HTTP\/1\.1 )/);
  assert.equal(answers.length, names.length);
  for (const [n, answer] of answers.entries()) {
    const [head, body] = answer.split('\r\n\r\n');
    assert.match(head, /^HTTP\/1\.1 30[27] /, names[n]);
    assert.equal(body.length, Number(/^content-length: (\d+)$/im.exec(head)[1]), names[n]);
  }
});
await check('a token at the CDN is refused and told', async () => {
  await stub.ask('clear', {});
  const { url } = await get();
  assert.equal((await fetch(url, { headers: { Authorization: 'Bearer hf_good' } })).status, 400);
  assert.equal((await fetch(`${url}&token=hf_good`)).status, 400);
  const log = await stub.log();
  assert.equal(log.violations.length, 2);
  assert.match(log.violations[0].text, /token/);
});
await check('links expire', async () => {
  await stub.ask('options', { link_ttl_ms: 50 });
  const { url } = await get({ Range: 'bytes=0-0' });
  await new Promise((done) => setTimeout(done, 80));
  assert.equal((await fetch(url)).status, 403);
  assert.equal((await get()).status, 200);
  assert.equal((await fetch(url.replace('Signature=', 'Signature=x'))).status, 403);
  await stub.ask('options', { link_ttl_ms: 3_600_000 });
});

// Each fault is what it is said to be.
const once = async (rule, request = () => get({ Range: 'bytes=100-199' })) => {
  await stub.ask('faults', { rules: [{ on: 'cdn', ...rule }] });
  await stub.ask('clear', {});
  const began = performance.now();
  const response = await request();
  const body = await response.arrayBuffer().then((bytes) => Buffer.from(bytes), (error) => error);
  const log = await stub.log();
  assert.equal(log.faults, 1, `${rule.fault} was not done`);
  return { response, body, ms: performance.now() - began, sent: log.files[`${tiny} ${shard}`]?.sent ?? 0 };
};
const right = want.subarray(100, 200);
await check('faults', async () => {
  let got = await once({ fault: 'status', status: 429, retry_after: 7 });
  assert.deepEqual([got.response.status, got.response.headers.get('retry-after')], [429, '7']);
  got = await once({ fault: 'status', status: 429, rate_limit: 2 });
  assert.match(got.response.headers.get('ratelimit'), /r=0;t=2/);
  got = await once({ fault: 'stall', at: 50, stall_ms: 200 });
  assert.ok(got.ms >= 200 && right.equals(got.body), `${got.ms} ms`);
  got = await once({ fault: 'trickle', bytes_per_s: 400, for_bytes: 100 });
  assert.ok(got.ms >= 200 && right.equals(got.body), `${got.ms} ms`);
  for (const reset of [false, true]) {
    got = await once({ fault: 'cut', at: 40, reset });
    assert.ok(got.body instanceof Error, 'the body was whole');
    assert.equal(got.sent, 40);
  }
  await assert.rejects(once({ fault: 'cut', at: -1 }));
  await assert.rejects(once({ fault: 'garbage' }));
  got = await once({ fault: 'short', keep: 30 });
  assert.deepEqual([got.body.length, got.response.headers.get('content-range')], [30, `bytes 100-199/${want.length}`]);
  got = await once({ fault: 'short', keep: 30, honest: true });
  assert.deepEqual([got.body.length, got.response.headers.get('content-range')], [30, `bytes 100-129/${want.length}`]);
  got = await once({ fault: 'ignore_range' });
  assert.ok(got.response.status === 200 && want.equals(got.body));
  got = await once({ fault: 'wrong_range', shift: 10 });
  assert.ok(want.subarray(110, 210).equals(got.body));
  assert.equal(got.response.headers.get('content-range'), `bytes 110-209/${want.length}`);
  got = await once({ fault: 'wrong_bytes', at: 60 });
  const flipped = Buffer.from(right);
  flipped[60] ^= 8;
  assert.ok(flipped.equals(got.body));
  got = await once({ fault: 'html' });
  assert.ok(got.response.status === 200 && /^<!DOCTYPE/.test(got.body.toString()));
  got = await once({ fault: 'etag' });
  assert.match(got.response.headers.get('etag'), /^"e+"$/);
  got = await once({ fault: 'expired' });
  assert.equal(got.response.status, 403);
  await assert.rejects(once({ fault: 'loop', on: 'resolve', times: -1 }));
  got = await once({ fault: 'loop', on: 'resolve' });
  assert.ok(right.equals(got.body));
  got = await once({ fault: 'huge_header', bytes: 10_000 });
  assert.equal(got.response.headers.get('x-long').length, 10_000);
  got = await once({ on: 'tree', fault: 'truncated_json', keep: 99 }, () => {
    return fetch(`${hubUrl}/api/models/${tiny}/tree/main`, { headers: { 'Accept-Encoding': 'identity' } });
  });
  assert.equal(got.body.length, 99);
});
await check('a schedule repeats itself', async () => {
  const statuses = [];
  for (let round = 0; round < 2; round++) {
    await stub.ask('faults', { seed: 5, rate: 0.9, in_a_row: 2, kinds: ['500', '502', '503', '429', 'html'] });
    const seen = [];
    for (let n = 0; n < 30; n++) seen.push((await fetch(`${hubUrl}/api/models/${tiny}`)).status);
    statuses.push(seen.join(' '));
  }
  assert.equal(statuses[0], statuses[1]);
  assert.ok(new Set(statuses[0].split(' ')).size > 3, statuses[0]);
  assert.doesNotMatch(statuses[0], /5\d\d 5\d\d 5\d\d/);
});

// Schedules may not ask for the impossible: who checks what comes and goes on trying gets every range.
await check('a patient client comes through', async () => {
  const sizes = new Set();
  for (let seed = 1; seed <= 8; seed++) {
    await stub.ask('faults', { seed, rate: 0.5, in_a_row: 2, stall_ms: 20 });
    await stub.ask('clear', {});
    for (let from = 0; from < want.length; from += 500_000) {
      const to = Math.min(from + 500_000, want.length);
      let tries = 0;
      for (let done = false; !done; tries++) {
        assert.ok(tries < 9, `seed ${seed}: the range from ${from} does not come`);  // two at the hub before each of two at the CDN, and two more
        done = await get({ Range: `bytes=${from}-${to - 1}` }).then(async (response) => {
          const range = response.headers.get('content-range');
          const bytes = Buffer.from(await response.arrayBuffer());
          return range === `bytes ${from}-${to - 1}/${want.length}` && want.subarray(from, to).equals(bytes);
        }).catch(() => false);
      }
    }
    sizes.add((await stub.log()).faults);
  }
  assert.ok(sizes.size > 1 && Math.max(...sizes) > 3, `faults by seed: ${[...sizes]}`);
});

const log = await stub.log();
stub.stop();
if (log.violations.some(({ text }) => /failed/.test(text))) process.exitCode = 1;
console.log(`${checks} checks passed${process.exitCode ? ', others failed' : ''}`);
