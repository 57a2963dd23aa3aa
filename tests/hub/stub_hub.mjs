// A hub of models on this machine, for tests of a client: the HTTP of huggingface.co over local directories, as a process
// of its own, with faults on demand.
//
//   node stub_hub.mjs [--root DIR] [--repo ORG/NAME=DIR]… [--faults SEED|FILE] [--token TOKEN]… [--page ENTRIES]
//                     [--link-ttl-ms MS] [--rate BYTES_PER_S] [--tls] [--watch-stdin]
//
// DIR/ORG/NAME are repositories (or links to directories). Two ports stand for two hosts: the hub, to which HF_ENDPOINT points, and
// the CDN, to which it redirects large files by signed links. The first line of output is JSON:
//   {"hub": "http://127.0.0.1:PORT", "cdn": "http://localhost:PORT", "pid": N}
// --tls: a third port is the hub by https, with a certificate that nobody signed; the line then has "tls" too, where openssl is.
// --watch-stdin: ends with its standard input, so that it does not outlive a test that was killed.
//
// A token at the CDN, in whatever header or in the address, is a violation, and the request is refused as S3 does (400).
//
// Control, on the hub's port:
//   GET  /__stub/log        requests, bytes of each file (sent, distinct, again), faults done, violations
//   GET  /__stub/commits    repository → commit of its main
//   POST /__stub/clear      forgets the log
//   POST /__stub/faults     a script or a schedule (faults.mjs); {} for none
//   POST /__stub/repos      a repository, new or pushed to (repository.mjs has the fields)
//   POST /__stub/options    {page_entries, link_ttl_ms, bytes_per_s, tokens, cdn_origin}
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { parseArgs } from 'node:util';
import { FaultPlan } from './faults.mjs';
import { Repository } from './repository.mjs';
import { RequestLog } from './request_log.mjs';
import { Pace, Sender, parseRange } from './send.mjs';
import { Hub } from './serve.mjs';

const { values: flags } = parseArgs({
  options: {
    root: { type: 'string' }, repo: { type: 'string', multiple: true, default: [] }, faults: { type: 'string' },
    token: { type: 'string', multiple: true, default: ['hf_good'] }, page: { type: 'string', default: '1000' },
    'link-ttl-ms': { type: 'string', default: '3600000' }, rate: { type: 'string', default: '0' },
    tls: { type: 'boolean', default: false }, 'watch-stdin': { type: 'boolean', default: false },
  },
});

const repositories = new Map();
function addRepository(description) {
  const known = repositories.get(description.id);
  known ? known.update(description) : repositories.set(description.id, new Repository(description));
}
const folders = (dir) => fs.readdirSync(dir).filter((name) => fs.statSync(path.join(dir, name)).isDirectory());
if (flags.root !== undefined) {
  for (const org of folders(flags.root)) {
    for (const name of folders(path.join(flags.root, org))) addRepository({ id: `${org}/${name}`, dir: path.join(flags.root, org, name) });
  }
}
for (const pair of flags.repo) addRepository({ id: pair.slice(0, pair.indexOf('=')), dir: pair.slice(pair.indexOf('=') + 1) });

const log = new RequestLog();
const pace = new Pace(Number(flags.rate));
const plan = new FaultPlan();
if (flags.faults !== undefined)
  plan.set(/^\d+$/.test(flags.faults) ? { seed: Number(flags.faults) } : JSON.parse(fs.readFileSync(flags.faults, 'utf8')));
const hub = new Hub(repositories, new Sender(log, pace), {
  page_entries: Number(flags.page), link_ttl_ms: Number(flags['link-ttl-ms']), tokens: flags.token,
});

function note(host, req, url, target, key) {
  const { authorization, cookie } = req.headers;
  return log.request({
    host, method: req.method, url: req.url, route: target?.route ?? null, file: key, range: req.headers.range ?? null,
    if_range: req.headers['if-range'] ?? null, authorized: authorization !== undefined, cookie: cookie !== undefined,
    accept: req.headers.accept ?? null, user_agent: req.headers['user-agent'] ?? null,
  });
}

// How many bytes of body the request is about; faults place themselves in it.
function askedBytes(req, entry) {
  const range = entry && parseRange(req.headers.range, entry.size);
  return Array.isArray(range) ? range[1] - range[0] + 1 : (entry?.size ?? 600);
}

async function onHub(req, res) {
  const url = new URL(req.url, hub.options.hub_origin);
  if (url.pathname.startsWith('/__stub/')) return control(req, res, url.pathname.slice('/__stub/'.length));
  const target = Hub.route(url.pathname);
  const isFile = target?.route === 'resolve' || target?.route === 'small';
  const line = note('hub', req, url, target, isFile ? `${target.id} ${target.path}` : null);
  const entry = isFile ? repositories.get(target.id)?.commit(target.revision)?.entries.get(target.path) : undefined;
  const fault = target && plan.next({
    route: target.route, path: `${target.id}/${target.path}`, method: req.method, bytes: askedBytes(req, target.route === 'small' ? entry : undefined),
  });
  await hub.answer({ req, res, url, target, line, fault });
}

async function onCdn(req, res) {
  const url = new URL(req.url, hub.options.cdn_origin);
  const found = hub.linked(url);
  const line = note('cdn', req, url, { route: 'cdn' }, found && `${found.id} ${found.entry.path}`);
  const told = JSON.stringify([req.url, req.rawHeaders]);
  if (req.headers.authorization !== undefined || hub.options.tokens.some((token) => told.includes(token))) {
    log.violation('the token came to the CDN', line);
    line.status = 400;
    return void res.writeHead(400, { 'Content-Type': 'application/xml' })
      .end('<Error><Code>InvalidArgument</Code><Message>Only one auth mechanism allowed</Message></Error>');
  }
  const fault = found && plan.next({
    route: 'cdn', path: `${found.id}/${found.entry.path}`, method: req.method, bytes: askedBytes(req, found.entry),
  });
  await hub.answerLink({ req, res, url, line, fault });
}

async function control(req, res, command) {
  const chunks = [];
  for await (const chunk of req) chunks.push(chunk);
  const answer = (status, value) => {
    const body = JSON.stringify(value);
    res.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body), Connection: 'close' }).end(body);
  };
  try {
    const body = chunks.length ? JSON.parse(Buffer.concat(chunks).toString()) : {};
    switch (`${req.method} ${command}`) {
      case 'GET log': return answer(200, log.json());
      case 'GET commits': return answer(200, Object.fromEntries([...repositories].map(([id, { refs }]) => [id, refs.get('main')])));
      case 'POST clear': log.clear(); break;
      case 'POST faults': plan.set(body); break;
      case 'POST repos': addRepository(body); break;
      case 'POST options':
        Object.assign(hub.options, body);
        if (body.bytes_per_s !== undefined) pace.bytesPerSecond = body.bytes_per_s;
        break;
      default: return answer(404, { error: `no command ${command}` });
    }
    answer(200, { ok: true });
  } catch (error) {
    answer(400, { error: String(error) });
  }
}

// Node parses the next request of a connection, and makes its response, before the one before has ended: a client that has
// counted the Content-Length asks on at once. Until then that response has no socket to be written to, cut or reset.
async function ownsSocket(req, res) {
  if (res.socket !== null) return;
  await new Promise((resolve, reject) => {
    const gone = () => reject(new Error('closed'));
    req.socket.once('close', gone);
    res.once('socket', () => {
      req.socket.off('close', gone);
      resolve();
    });
  });
}

// A client that went away is no error of the stub; anything else is, and must be seen.
const guarded = (handler) => (req, res) => ownsSocket(req, res).then(() => handler(req, res)).catch((error) => {
  if (error.message !== 'closed' && !['ERR_STREAM_DESTROYED', 'ECONNRESET', 'EPIPE'].includes(error.code)) {
    console.error(`stub: ${req.method} ${req.url}: ${error.stack}`);
    log.violations.push({ text: `the stub failed: ${error.message}`, request: -1 });
  }
  res.socket?.destroy();
});
const listen = (handler, certificate = null) => new Promise((resolve) => {
  const options = { keepAliveTimeout: 60_000, ...certificate };
  const server = certificate ? https.createServer(options, guarded(handler)) : http.createServer(options, guarded(handler));
  server.on('clientError', (error, socket) => socket.destroy());
  server.listen(0, '127.0.0.1', () => resolve(server.address().port));
});

function makeCertificate() {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'stub-hub-'));
  const [keyFile, certFile] = ['key.pem', 'cert.pem'].map((name) => path.join(directory, name));
  try {
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2',
      '-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost', '-keyout', keyFile, '-out', certFile], { stdio: 'ignore' });
    return { key: fs.readFileSync(keyFile), cert: fs.readFileSync(certFile) };
  } catch {
    return null;
  } finally {
    fs.rmSync(directory, { recursive: true });
  }
}

hub.options.hub_origin = `http://127.0.0.1:${await listen(onHub)}`;
hub.options.cdn_origin = `http://localhost:${await listen(onCdn)}`;
const certificate = flags.tls ? makeCertificate() : null;
const tls = certificate && `https://localhost:${await listen(onHub, certificate)}`;
console.log(JSON.stringify({ hub: hub.options.hub_origin, cdn: hub.options.cdn_origin, pid: process.pid, ...(tls && { tls }) }));
for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(0));
if (flags['watch-stdin']) process.stdin.on('end', () => process.exit(0)).on('error', () => process.exit(0)).resume();
