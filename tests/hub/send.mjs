// Sends responses, whole or spoilt by a fault (faults.mjs has the list). Bodies are buffers or ranges of files; at most
// two pieces of a file are in memory.
import fs from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const PIECE_BYTES = 1 << 20;
const PACED_PIECE_BYTES = 16 << 10;
const ERROR_PAGE = '<!DOCTYPE html><html><head><title>503 Backend fetch failed</title></head><body>Try again later.</body></html>\n';

// [first, last] of a Range header; null: none, or one that a server leaves aside (several ranges, another unit);
// 'unsatisfiable'.
export function parseRange(header, size) {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? '');
  if (!match || (match[1] === '' && match[2] === '')) return null;
  if (match[1] === '') {
    const count = Math.min(Number(match[2]), size);
    return count === 0 ? 'unsatisfiable' : [size - count, size - 1];
  }
  const first = Number(match[1]);
  const last = match[2] === '' ? size - 1 : Math.min(Number(match[2]), size - 1);
  if (match[2] !== '' && Number(match[2]) < first) return null;
  return first >= size ? 'unsatisfiable' : [first, last];
}

// Until the kernel has it. A connection that ended may never call back.
const written = (res, piece) => new Promise((resolve, reject) => {
  const gone = () => reject(new Error('closed'));
  if (res.destroyed || res.socket === null) return gone();
  res.once('close', gone);
  res.write(piece, (error) => {
    res.off('close', gone);
    error ? reject(error) : resolve();
  });
});

// A rate for all bodies together: each piece has its moment, one behind the other.
export class Pace {
  constructor(bytesPerSecond) {
    this.bytesPerSecond = bytesPerSecond;
    this.freeAt = 0;
  }

  async wait(bytes) {
    if (!this.bytesPerSecond) return;
    const now = performance.now();
    this.freeAt = Math.max(this.freeAt, now) + (bytes * 1000) / this.bytesPerSecond;
    if (this.freeAt - now > 2) await sleep(this.freeAt - now);
  }
}

export class Sender {
  constructor(log, pace) {
    this.log = log;
    this.pace = pace;
  }

  // body: Buffer, or {file, first, last}. fileKey: its name in the log.
  async send(exchange, status, headers, body, fileKey = null) {
    const { res, line, fault } = exchange;
    if (fault?.fault === 'truncated_json' && Buffer.isBuffer(body)) body = body.subarray(0, fault.keep);
    const bytes = Buffer.isBuffer(body) ? body.length : body.last - body.first + 1;
    line.status = status;
    if (fault !== null) line.fault = fault.fault + (fault.status ?? '');
    if (fault !== null && this.instead(exchange, bytes)) return;
    if (fault?.fault === 'stall' && fault.at < 0) await sleep(fault.stall_ms);
    if (fault?.fault === 'huge_header') headers['X-Long'] = 'x'.repeat(fault.bytes);
    res.writeHead(status, { 'Content-Length': bytes, ...headers });
    if (exchange.req.method === 'HEAD' || bytes === 0) return void res.end();
    res.flushHeaders();
    await this.body(exchange, body, bytes, fileKey);
    res.end();
  }

  // Faults that leave nothing of the true response.
  instead({ req, res, line, fault }, bytes) {
    const answer = (status, text, more = {}) => {
      line.status = status;
      res.writeHead(status, { 'Content-Type': 'text/html', 'Content-Length': Buffer.byteLength(text), ...more }).end(text);
      return true;
    };
    const loop = () => `${req.url}${req.url.includes('?') ? '&' : '?'}again=1`;
    switch (fault.fault) {
      case 'status': {
        const more = {};
        if (fault.retry_after !== undefined) more['Retry-After'] = String(fault.retry_after);
        if (fault.rate_limit !== undefined) {
          more.RateLimit = `"resolvers";r=0;t=${fault.rate_limit}`;
          more['RateLimit-Policy'] = '"fixed window";"resolvers";q=3000;w=300';
        }
        return answer(fault.status, ERROR_PAGE, more);
      }
      case 'html': return answer(200, ERROR_PAGE);
      case 'loop': return answer(302, 'Found', { Location: loop() });
      case 'redirect': return answer(fault.status ?? 302, 'Found', { Location: fault.location });
      case 'garbage':
        line.status = 0;
        res.socket?.end('\x16\x03\x01 this is not HTTP\r\n\r\n');
        return true;
      case 'cut':
        if (fault.at >= 0 && req.method !== 'HEAD' && bytes > 0) return false;
        line.status = 0;
        fault.reset ? res.socket?.resetAndDestroy() : res.socket?.destroy();
        return true;
      default: return false;
    }
  }

  async body({ res, line, fault }, body, bytes, fileKey) {
    const cutAt = fault?.fault === 'cut' ? Math.min(fault.at, bytes) : bytes;
    const stallAt = fault?.fault === 'stall' && fault.at >= 0 ? Math.min(fault.at, bytes - 1) : null;
    const trickle = fault?.fault === 'trickle' ? new Pace(fault.bytes_per_s) : null;
    const slowEnd = trickle ? Math.min(fault.for_bytes, bytes) : 0;
    const fd = Buffer.isBuffer(body) ? null : await fs.promises.open(body.file);
    const buffers = [null, null];
    try {
      for (let at = 0, turn = 0; at < cutAt; turn ^= 1) {
        if (at === stallAt) await sleep(fault.stall_ms);
        const slow = at < slowEnd;
        const piece = slow ? 4096 : this.pace.bytesPerSecond ? PACED_PIECE_BYTES : PIECE_BYTES;
        const stops = [cutAt, at + piece, ...(stallAt > at ? [stallAt] : []), ...(slow ? [slowEnd] : [])];
        const count = Math.min(...stops) - at;
        let bytesOut;
        if (fd === null) {
          bytesOut = Buffer.from(body.subarray(at, at + count));
        } else {
          buffers[turn] ??= Buffer.allocUnsafeSlow(PIECE_BYTES);
          const { bytesRead } = await fd.read(buffers[turn], 0, count, body.first + at);
          if (bytesRead !== count) throw new Error(`${body.file} changed while it was sent`);
          bytesOut = buffers[turn].subarray(0, count);
        }
        if (fault?.fault === 'wrong_bytes' && fault.at >= at && fault.at < at + count) bytesOut[fault.at - at] ^= 8;
        await (slow ? trickle : this.pace).wait(count);
        await written(res, bytesOut);
        this.log.sent(line, fileKey, (fd === null ? 0 : body.first) + at, count);
        at += count;
      }
    } finally {
      await fd?.close();
    }
    // After what was written has gone out; destroy() alone could overtake it.
    if (cutAt < bytes) fault.reset ? res.socket?.resetAndDestroy() : res.socket?.destroySoon();
  }
}
