// Which request is answered wrongly, and how.
//
// A script is {"rules": [rule…]}; a rule is {"on", "path", "method", "skip", "times", "fault", …}: it meets requests whose route
// is `on` (info, tree, resolve, small, cdn; "*" any) and whose path has `path` in it, lets the first `skip` of them
// pass, and spoils the next `times` (1; -1: all). The first rule that meets a request decides.
//
// A schedule is {"seed", "rate", "in_a_row", "kinds", "stall_ms"}: every request is spoilt with the chance `rate`, by a fault
// that fits its route, but no path more than `in_a_row` times in a row, so that a client which tries again comes through.
// What happens depends only on the seed and on the how-manieth request of that path it is, not on the clock.
//
// Faults, with their parameters (send.mjs does them):
//   status {status, retry_after, rate_limit}   an error status; Retry-After in seconds or as a date; RateLimit as the hub's
//   stall {at, stall_ms}        no byte for so long after `at` bytes of body (-1: before the headers), then the rest
//   trickle {bytes_per_s, for_bytes}           slow, then fast again
//   cut {at, reset}             the connection ends after `at` bytes (-1: before the headers), if there are more; reset: by RST
//   short {keep}                a body and a Content-Length of only so many bytes; `honest`: Content-Range says so too
//   ignore_range                200 and the whole file
//   wrong_range {shift}         206 for a range so many bytes later, and its Content-Range says so
//   wrong_bytes {at}            one bit of the body at that byte is inverted; nothing else shows it
//   html                        200, and a page in place of the body
//   truncated_json {keep}       a well-formed response whose JSON ends early
//   garbage                     no HTTP
//   etag                        another ETag than before, as if the file had been replaced
//   expired                     this signed link is refused from now on (403): only the hub gives another
//   loop                        a redirect to itself
//   redirect {location, status} a redirect to anywhere
//   next_link {location}        a listing that says it continues there
//   huge_header {bytes}         a header line of that length
export function hash32(text) {  // FNV-1a with a final mix (murmur3's), so that neighbouring texts differ in all bits
  let h = 0x811c9dc5;
  for (const byte of Buffer.from(text)) h = Math.imul(h ^ byte, 0x01000193);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return (h ^ (h >>> 16)) >>> 0;
}

export function randomFrom(text) {  // mulberry32
  let state = hash32(text);
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const SERVER_ERRORS = ['429', '500', '502', '503', '504'];
// Not `etag` and `wrong_bytes`: a client may well end there.
const BODY_FAULTS = ['stall', 'trickle', 'cut', 'reset', 'short', 'ignore_range', 'wrong_range', 'html'];
const FITTING = {
  info: [...SERVER_ERRORS, 'stall', 'cut', 'html', 'truncated_json', 'garbage'],
  tree: [...SERVER_ERRORS, 'stall', 'cut', 'html', 'truncated_json', 'garbage'],
  resolve: [...SERVER_ERRORS, 'stall', 'cut', 'html', 'loop'],
  small: [...SERVER_ERRORS, 'stall', 'cut', 'short', 'html'],
  cdn: [...SERVER_ERRORS, ...BODY_FAULTS, 'expired'],
};

export class FaultPlan {
  constructor(plan = {}) {
    this.set(plan);
  }

  set({ rules = [], seed = null, rate = 0.3, in_a_row = 2, kinds = null, stall_ms = 3000 }) {
    this.rules = rules.map((rule) => ({ on: '*', path: '', skip: 0, times: 1, ...rule }));
    for (const rule of this.rules) if (!rule.fault) throw new Error(`a rule without a fault: ${JSON.stringify(rule)}`);
    this.schedule = seed === null ? null : { seed, rate, in_a_row, kinds, stall_ms };
    this.asked = new Map();   // route and path → requests so far
    this.inARow = new Map();  // route and path → of these the last ones that were spoilt
  }

  // The fault for this request, or null. `bytes`: of the body that it asks for.
  next({ route, path, method, bytes }) {
    for (const rule of this.rules) {
      if ((rule.on !== '*' && rule.on !== route) || !path.includes(rule.path) || (rule.method && rule.method !== method)) continue;
      if (rule.times === 0) continue;
      if (rule.skip > 0) {
        rule.skip--;
        continue;
      }
      rule.times--;
      return rule;
    }
    return this.schedule && this.drawn(route, path, bytes);
  }

  drawn(route, path, bytes) {
    const key = `${route} ${path}`;
    const n = this.asked.get(key) ?? 0;
    this.asked.set(key, n + 1);
    const random = randomFrom(`${this.schedule.seed} ${key} ${n}`);
    const kinds = FITTING[route].filter((kind) => !this.schedule.kinds || this.schedule.kinds.includes(kind));
    const row = this.inARow.get(key) ?? 0;
    if (random() >= this.schedule.rate || row >= this.schedule.in_a_row || kinds.length === 0) {
      this.inARow.set(key, 0);
      return null;
    }
    this.inARow.set(key, row + 1);
    return drawn(kinds[Math.floor(random() * kinds.length)], random, bytes, this.schedule.stall_ms);
  }
}

function drawn(kind, random, bytes, stall_ms) {
  const within = () => Math.floor(random() * (bytes + 1)) - (random() < 0.2 ? bytes + 1 : 0);  // or before the headers
  switch (kind) {
    case '429': return { fault: 'status', status: 429, ...[{ retry_after: 1 }, { rate_limit: 1 }, {}][Math.floor(random() * 3)] };
    case '503': return { fault: 'status', status: 503, ...(random() < 0.5 && { retry_after: 1 }) };
    case '500': case '502': case '504': return { fault: 'status', status: Number(kind) };
    case 'stall': return { fault: 'stall', at: Math.max(-1, within()), stall_ms };
    case 'cut': case 'reset': return { fault: 'cut', at: Math.min(Math.max(-1, within()), bytes - 1), reset: kind === 'reset' };
    case 'trickle': return { fault: 'trickle', bytes_per_s: 200_000, for_bytes: Math.min(bytes, 60_000) };
    case 'short': return { fault: 'short', keep: Math.floor(random() * bytes), honest: random() < 0.5 };
    case 'wrong_range': return { fault: 'wrong_range', shift: 1 + Math.floor(random() * 4096) };
    case 'truncated_json': return { fault: 'truncated_json', keep: Math.floor(random() * bytes) };
    default: return { fault: kind };
  }
}
