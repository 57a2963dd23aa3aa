// How fast an install from a hub is beside what it cannot be faster than. A stub of the hub (tests/hub) serves a checkpoint
// of random weights over loopback; wader installs it, and for comparison from the directory. Beside each install, the limits
// of the same minute: the disk's rate of writing and the rate at which curl takes the same files from the same stub.
//
//   node bench/hub_speed.mjs [--wader build/release/wader] [--work build/hub_speed] [--rounds 3] [--rate BYTES_PER_S] [-- synth flags]
//
// --rate limits the stub, as a network would. Synth flags are those of synth_checkpoint.mjs; the default makes 4.1 GB.
// Needs three times that on the disk of --work. The last line is JSON. Peak memory is VmHWM of the wader process, sampled
// every 50 ms.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { startStub } from '../tests/hub/stub_process.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const dashes = process.argv.indexOf('--');
const own = process.argv.slice(2, dashes < 0 ? undefined : dashes);
const synthFlags = dashes < 0 ? [] : process.argv.slice(dashes + 1);
const { values: flags } = parseArgs({
  args: own,
  options: {
    wader: { type: 'string', default: path.join(here, '..', 'build', 'release', 'wader') },
    work: { type: 'string', default: path.join(here, '..', 'build', 'hub_speed') },
    rounds: { type: 'string', default: '3' }, rate: { type: 'string', default: '0' },
  },
});
const rounds = Number(flags.rounds);
const seconds = async (body) => {
  const began = performance.now();
  await body();
  return (performance.now() - began) / 1000;
};
const median = (list) => [...list].sort((a, b) => a - b)[Math.floor(list.length / 2)];
const mib = (bytes) => Math.round(bytes / 2 ** 20);

const checkpoint = path.join(flags.work, 'checkpoint');
const made = path.join(flags.work, 'made.json');
if (!fs.existsSync(made) || fs.readFileSync(made, 'utf8') !== JSON.stringify(synthFlags)) {
  fs.rmSync(checkpoint, { recursive: true, force: true });
  fs.mkdirSync(flags.work, { recursive: true });
  execFileSync(process.execPath, [path.join(here, 'synth_checkpoint.mjs'), checkpoint, ...synthFlags], { stdio: 'inherit' });
  fs.writeFileSync(made, JSON.stringify(synthFlags));
}
const shards = fs.readdirSync(checkpoint).filter((name) => name.endsWith('.safetensors'));
const weightBytes = shards.reduce((sum, name) => sum + fs.statSync(path.join(checkpoint, name)).size, 0);

const repo = 'wader-tests/synth';
const stub = await startStub(['--repo', `${repo}=${checkpoint}`, '--rate', flags.rate]);

// Writes as many bytes as the checkpoint has, at most 2 GiB, and waits until they are on the disk.
function diskBytesPerSecond() {
  const file = path.join(flags.work, 'probe');
  const block = Buffer.alloc(8 << 20);
  for (let i = 0; i < block.length; i += 4) block.writeUInt32LE(Math.floor(Math.random() * 2 ** 32), i);
  const bytes = Math.min(weightBytes, 2 ** 31);
  const began = performance.now();
  const fd = fs.openSync(file, 'w');
  for (let done = 0; done < bytes; ) done += fs.writeSync(fd, block, 0, Math.min(block.length, bytes - done));
  fs.fsyncSync(fd);
  const rate = (bytes * 1000) / (performance.now() - began);
  fs.closeSync(fd);
  fs.rmSync(file);
  return rate;
}

function loopbackBytesPerSecond() {
  const began = performance.now();
  for (const name of shards)
    execFileSync('curl', ['-sSfL', '-o', '/dev/null', `${stub.hub}/${repo}/resolve/main/${name}`], { stdio: 'inherit' });
  return (weightBytes * 1000) / (performance.now() - began);
}

async function install(source) {
  const destination = path.join(flags.work, 'out.wader');
  fs.rmSync(destination, { recursive: true, force: true });
  let peakBytes = 0;
  const took_s = await seconds(async () => {
    const child = spawn(flags.wader, ['install', source, '-o', destination], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, HF_ENDPOINT: stub.hub, HF_TOKEN: '', HF_HOME: path.join(flags.work, 'hf'), HF_HUB_CACHE: path.join(flags.work, 'hf', 'hub') },
    });
    let errors = '';
    child.stderr.on('data', (text) => (errors = (errors + text).slice(-4000)));
    const timer = setInterval(() => {
      try {
        const match = /VmHWM:\s*(\d+) kB/.exec(fs.readFileSync(`/proc/${child.pid}/status`, 'utf8'));
        if (match) peakBytes = Math.max(peakBytes, Number(match[1]) * 1024);
      } catch {
        // It has just ended.
      }
    }, 50);
    const [status] = await once(child, 'exit');
    clearInterval(timer);
    if (status !== 0) throw new Error(`wader install ${source} ended with ${status}: ${errors}`);
  });
  execFileSync('sync');
  fs.rmSync(destination, { recursive: true });
  return { bytes_per_s: weightBytes / took_s, peak_bytes: peakBytes };
}

const results = [];
try {
  for (let round = 0; round < rounds; round++) {
    const disk = diskBytesPerSecond();
    const loopback = loopbackBytesPerSecond();
    await stub.ask('clear', {});
    const hub = await install(repo);
    const log = await stub.log();
    const again = Object.values(log.files).reduce((sum, file) => sum + file.again, 0);
    const local = await install(checkpoint);
    results.push({ disk, loopback, hub: hub.bytes_per_s, local: local.bytes_per_s, hub_peak: hub.peak_bytes, local_peak: local.peak_bytes, again,
      requests: log.count, violations: log.violations.length });
    console.log(`round ${round + 1}: disk writes ${mib(disk)} MiB/s, loopback ${mib(loopback)} MiB/s; install from the hub ${mib(hub.bytes_per_s)} ` +
      `MiB/s (peak ${mib(hub.peak_bytes)} MiB, ${log.count} requests), from the directory ${mib(local.bytes_per_s)} MiB/s (peak ${mib(local.peak_bytes)} MiB)`);
  }
} finally {
  stub.stop();
}
const summary = { weight_bytes: weightBytes, rounds };
for (const key of Object.keys(results[0])) summary[key] = median(results.map((result) => result[key]));
console.log(JSON.stringify(summary));
