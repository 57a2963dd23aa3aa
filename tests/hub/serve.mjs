// What the hub and its CDN answer, by route, with the headers and errors of the real ones.
import crypto from 'node:crypto';
import zlib from 'node:zlib';
import { parseRange } from './send.mjs';

const RATE_LIMIT = { RateLimit: '"resolvers";r=2998;t=172', 'RateLimit-Policy': '"fixed window";"resolvers";q=3000;w=300' };

// A refusal with the code and the sentence that the hub gives.
const refusal = (status, code, message) => ({ status, code, message });
const repoNotFound = (hasToken) =>
  hasToken ? refusal(404, 'RepoNotFound', 'Repository not found') : refusal(401, 'RepoNotFound', 'Invalid username or password.');
const revisionNotFound = (revision) => refusal(404, 'RevisionNotFound', `Invalid rev id: ${revision}`);
const entryNotFound = () => refusal(404, 'EntryNotFound', 'Entry not found');

export class Hub {
  // options: {page_entries, link_ttl_ms, tokens: [valid ones]}
  constructor(repositories, sender, options) {
    Object.assign(this, { repositories, sender, options, revoked: new Set(), links: 0 });
    this.secret = crypto.randomBytes(32);
  }

  // The request's route on the hub's port: {route, id, revision, path}, or null.
  static route(pathname) {
    const patterns = [
      ['info', /^\/api\/models\/([^/]+\/[^/]+)(?:\/revision\/([^/]+))?$/],
      ['tree', /^\/api\/models\/([^/]+\/[^/]+)\/tree\/([^/]+)(?:\/(.*))?$/],
      ['small', /^\/api\/resolve-cache\/models\/([^/]+\/[^/]+)\/([^/]+)\/(.+)$/],
      ['resolve', /^\/([^/]+\/[^/]+)\/resolve\/([^/]+)\/(.+)$/],
    ];
    for (const [route, pattern] of patterns) {
      const match = pattern.exec(pathname);
      if (!match) continue;
      try {
        const [id, revision, path] = match.slice(1).map((part) => part && decodeURIComponent(part));
        return { route, id, revision: revision ?? 'main', path: path ?? '' };
      } catch {
        return null;  // %zz
      }
    }
    return null;
  }

  async answer(exchange) {
    const { req, res, target } = exchange;
    const requestId = `Root=1-${crypto.randomBytes(12).toString('hex')}`;
    exchange.headers = { 'X-Powered-By': 'huggingface-moon', 'X-Request-Id': requestId, Vary: 'Origin', ...RATE_LIMIT };
    if (target === null) return this.refuse(exchange, refusal(404, undefined, 'Sorry, we can\'t find the page you are looking for.'));
    if (req.method !== 'GET' && req.method !== 'HEAD') return this.refuse(exchange, refusal(405, undefined, 'Method not allowed'));
    const repository = this.repositories.get(target.id);
    if (repository?.moved_to) {
      const location = req.url.replace(target.id, repository.moved_to);
      return this.sender.send(exchange, 307, { ...exchange.headers, Location: location }, Buffer.from('Temporary Redirect'));
    }
    const refused = this.check(exchange, repository);
    if (refused) return this.refuse(exchange, refused);
    const commit = repository.commit(target.revision);
    switch (target.route) {
      case 'info': return this.json(exchange, repository.modelInfo(commit, exchange.url.searchParams.has('blobs')));
      case 'tree': return this.tree(exchange, commit);
      default: return this.file(exchange, repository, commit);
    }
  }

  check({ req, target }, repository) {
    const token = /^Bearer (.+)$/.exec(req.headers.authorization ?? '')?.[1];
    if (req.headers.authorization !== undefined && !this.options.tokens.includes(token))
      return refusal(401, undefined, 'Invalid credentials in Authorization header');
    const letIn = token !== undefined && (repository?.allowed.length ? repository.allowed.includes(token) : true);
    if (!repository || (repository.private && !letIn)) return repoNotFound(token !== undefined);
    const commit = repository.commit(target.revision);
    if (!commit) return revisionNotFound(target.revision);
    if (target.route !== 'resolve' && target.route !== 'small') return null;
    // What a gated repository holds may be seen by all; its files only by those let in.
    if (repository.gated && token === undefined)
      return refusal(401, 'GatedRepo', `Access to model ${target.id} is restricted. You must have access to it and be authenticated ` +
        'to access it. Please log in.');
    if (repository.gated && !letIn)
      return refusal(403, 'GatedRepo', `Access to model ${target.id} is restricted and you are not in the authorized list. Visit ` +
        `https://huggingface.co/${target.id} to ask for access.`);
    return commit.entries.has(target.path) ? null : entryNotFound();
  }

  refuse(exchange, { status, code, message }) {
    const api = exchange.target === null || exchange.target.route === 'info' || exchange.target.route === 'tree';
    const body = Buffer.from(api ? JSON.stringify({ error: message }) : message);
    const headers = { ...exchange.headers, 'Content-Type': api ? 'application/json; charset=utf-8' : 'text/plain; charset=utf-8' };
    headers['X-Error-Message'] = message;
    if (code) headers['X-Error-Code'] = code;
    return this.sender.send(exchange, status, headers, body);
  }

  json(exchange, value, more = {}) {
    let body = Buffer.from(JSON.stringify(value));
    const headers = { ...exchange.headers, 'Content-Type': 'application/json; charset=utf-8', ...more };
    if (/\bgzip\b/.test(exchange.req.headers['accept-encoding'] ?? '')) {
      body = zlib.gzipSync(body);
      headers['Content-Encoding'] = 'gzip';
    }
    return this.sender.send(exchange, 200, headers, body);
  }

  tree(exchange, commit) {
    const { target, url } = exchange;
    const recursive = /^(true|1)$/.test(url.searchParams.get('recursive') ?? '');
    const prefix = target.path === '' ? '' : `${target.path.replace(/\/$/, '')}/`;
    const all = commit.tree.filter((entry) => {
      const name = String(entry.path ?? '');
      return name.startsWith(prefix) && (recursive || !name.slice(prefix.length).includes('/'));
    });
    if (prefix !== '' && all.length === 0) return this.refuse(exchange, entryNotFound());
    const cursor = url.searchParams.get('cursor');
    const from = cursor === null ? 0 : Number(Buffer.from(cursor, 'base64').toString());
    if (!Number.isInteger(from) || from < 0) return this.refuse(exchange, refusal(400, undefined, 'Invalid cursor'));
    const page = Math.min(Number(url.searchParams.get('limit') ?? Infinity), this.options.page_entries);
    const more = {};
    if (from + page < all.length) {
      const next = new URL(url.href);
      next.searchParams.set('cursor', Buffer.from(String(from + page)).toString('base64'));
      more.Link = `<${next.href}>; rel="next"`;
    }
    if (exchange.fault?.fault === 'next_link') more.Link = `<${exchange.fault.location}>; rel="next"`;
    return this.json(exchange, all.slice(from, from + page), more);
  }

  // resolve: large files are a redirect to the CDN, small ones to the hub's own cache of them.
  file(exchange, repository, commit) {
    const { target, fault } = exchange;
    const entry = commit.entries.get(target.path);
    const headers = { ...exchange.headers, 'X-Repo-Commit': commit.sha, 'Accept-Ranges': 'bytes' };
    if (target.route === 'small') return this.bytes(exchange, entry, `${target.id} ${entry.path}`, headers);
    const encoded = entry.path.split('/').map(encodeURIComponent).join('/');
    headers['Content-Type'] = 'text/plain; charset=utf-8';
    let location, status;
    if (entry.lfs) {
      const etag = fault?.fault === 'etag' ? 'f'.repeat(64) : entry.linked_etag;
      Object.assign(headers, { 'X-Linked-Size': entry.size, 'X-Linked-ETag': `"${etag}"` });
      [status, location] = [302, this.link(target.id, entry)];
    } else {
      const asked = encodeURIComponent(exchange.url.pathname);
      location = `/api/resolve-cache/models/${target.id}/${commit.sha}/${encoded}?${asked}=&etag=${encodeURIComponent(`"${entry.etag}"`)}`;
      status = 307;
    }
    const text = `${status === 302 ? 'Found' : 'Temporary Redirect'}. Redirecting to ${location}`;
    return this.sender.send(exchange, status, { ...headers, Location: location }, Buffer.from(text));
  }

  sign(pathname, expires, key) {
    return crypto.createHmac('sha256', this.secret).update(`${pathname} ${expires} ${key}`).digest('base64url');
  }

  // A signed link as the CDN's: characters that a sloppy client encodes once more, and an end.
  link(id, entry) {
    const pathname = `/xet-bridge-us/${encodeURIComponent(id)}/${encodeURIComponent(encodeURIComponent(entry.path))}/${entry.etag}`;
    const expires = Date.now() + this.options.link_ttl_ms;
    const policy = Buffer.from(String(expires)).toString('base64url');  // Expires itself is in seconds
    const key = `K${++this.links}`;
    const name = encodeURIComponent(entry.path.split('/').at(-1));
    return `${this.options.cdn_origin}${pathname}?response-content-disposition=inline%3B+filename*%3DUTF-8%27%27${name}%3B+filename%3D%22${name}` +
      `%22%3B&Expires=${Math.ceil(expires / 1000)}&Policy=${policy}~_&Signature=${this.sign(pathname, expires, key)}~&Key-Pair-Id=${key}`;
  }

  // The link's repository and entry, or null for one that is not of this CDN.
  linked(url) {
    const [, bridge, id, path, etag] = url.pathname.split('/');
    if (bridge !== 'xet-bridge-us' || etag === undefined) return null;
    const repository = this.repositories.get(decodeURIComponent(id));
    const name = decodeURIComponent(decodeURIComponent(path));
    for (const commit of [...(repository?.commits.values() ?? [])].reverse()) {  // the newest: directories of old ones may be gone
      const entry = commit.entries.get(name);
      if (entry?.etag === etag) return { id: repository.id, entry };
    }
    return null;
  }

  // The CDN's port.
  async answerLink(exchange) {
    const { req, url, fault } = exchange;
    const denied = (text) => this.sender.send({ ...exchange, fault: null }, 403, { 'Content-Type': 'application/xml' },
      Buffer.from(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code><Message>${text}</Message></Error>`));
    const expires = Number(Buffer.from((url.searchParams.get('Policy') ?? '').split('~')[0], 'base64url').toString());
    const key = url.searchParams.get('Key-Pair-Id');
    const found = this.linked(url);
    if (found === null || `${this.sign(url.pathname, expires, key)}~` !== url.searchParams.get('Signature')) return denied('Access denied');
    if (fault?.fault === 'expired') {
      this.revoked.add(key);
      exchange.line.fault = 'expired';
    }
    if (Date.now() > expires || this.revoked.has(key)) return denied('Request has expired');
    if (req.method !== 'GET' && req.method !== 'HEAD') return denied('Method not allowed');
    // Without CloudFront's X-Cache: where @huggingface/hub sees that, it sends its token to the CDN.
    const headers = { 'Content-Type': 'application/octet-stream', 'Accept-Ranges': 'bytes' };
    return this.bytes(exchange, found.entry, `${found.id} ${found.entry.path}`, headers);
  }

  // A file's bytes, or the range of it that was asked for.
  bytes(exchange, entry, key, headers) {
    const { req, fault } = exchange;
    const etag = fault?.fault === 'etag' ? `"${'e'.repeat(entry.etag.length)}"` : `"${entry.etag}"`;
    headers.ETag = etag;
    if (!headers['Content-Type']) headers['Content-Type'] = entry.path.endsWith('.json') ? 'application/json' : 'text/plain; charset=utf-8';
    if (req.headers['if-none-match'] === etag) return this.sender.send(exchange, 304, headers, Buffer.alloc(0));
    if (req.headers['if-match'] !== undefined && req.headers['if-match'] !== etag)
      return this.sender.send(exchange, 412, headers, Buffer.alloc(0));
    const whole = fault?.fault === 'ignore_range' || (req.headers['if-range'] !== undefined && req.headers['if-range'] !== etag);
    const range = whole ? null : parseRange(req.headers.range, entry.size);
    if (range === 'unsatisfiable')
      return this.sender.send(exchange, 416, { ...headers, 'Content-Range': `bytes */${entry.size}` }, Buffer.alloc(0));
    let [first, last] = range ?? [0, entry.size - 1];
    if (fault?.fault === 'wrong_range' && range) {
      const shift = Math.min(fault.shift, entry.size - 1 - last) || -Math.min(fault.shift, first);
      [first, last] = [first + shift, last + shift];
    }
    let saidLast = last;
    if (fault?.fault === 'short' && last >= first) {
      last = Math.min(last, first + fault.keep - 1);
      if (fault.honest) saidLast = last;
    }
    if (range) headers['Content-Range'] = `bytes ${first}-${saidLast}/${entry.size}`;
    return this.sender.send(exchange, range ? 206 : 200, headers, { file: entry.file, first, last }, key);
  }
}
