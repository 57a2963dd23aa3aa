// What the stub was asked and what it sent: each request, the bytes of each file as intervals, and broken rules.
const mergeInto = (intervals, from, to) => {  // intervals: sorted, disjoint
  const apart = intervals.filter(([a, b]) => b < from || a > to);
  const touching = intervals.filter(([a, b]) => b >= from && a <= to);
  const merged = touching.reduce(([x, y], [a, b]) => [Math.min(a, x), Math.max(b, y)], [from, to]);
  return [...apart, merged].sort((p, q) => p[0] - q[0]);
};

export class RequestLog {
  constructor() {
    this.clear();
  }

  clear() {
    this.began = Date.now();
    this.requests = [];
    this.violations = [];
    this.files = new Map();  // "org/name path" → {sent, intervals}
  }

  request(facts) {
    const line = { n: this.requests.length, at_ms: Date.now() - this.began, status: null, fault: null, sent: 0, ...facts };
    this.requests.push(line);
    return line;
  }

  violation(text, line) {
    this.violations.push({ text, request: line.n });
  }

  // Bytes [from, from + count) of a file went to the kernel for sending.
  sent(line, key, from, count) {
    line.sent += count;
    if (key === null || count === 0) return;
    const file = this.files.get(key) ?? { sent: 0, intervals: [] };
    file.sent += count;
    file.intervals = mergeInto(file.intervals, from, from + count);
    this.files.set(key, file);
  }

  json() {
    const files = {};
    for (const [key, { sent, intervals }] of this.files) {
      const distinct = intervals.reduce((sum, [a, b]) => sum + b - a, 0);
      files[key] = { sent, distinct, again: sent - distinct };
    }
    const faults = this.requests.filter((line) => line.fault !== null).length;
    return { count: this.requests.length, faults, violations: this.violations, files, requests: this.requests };
  }
}
