// The inline part of Markdown: text → a tree of plain objects. Emphasis follows CommonMark's delimiter runs
// (0.31.2, 6.2). There is no HTML and no image: both stay text, and a link that is not http, https or mailto
// stays text too. Time is linear in the text but for nested brackets, which are bounded.

const kUrlMax = 2048;
const kDepthMax = 24; // of emphasis in emphasis; deeper is text
const kPunctuation = /[!-/:-@[-`{-~\p{P}\p{S}]/u;
const kEscapable = /[!-/:-@[-`{-~]/;
const kEntities = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", "#39": "'" };

// The address as it will be opened, or null when no page should link there.
export function safeUrl(text) {
  if (text.length > kUrlMax || !/^(https?:\/\/|mailto:)/i.test(text)) return null;
  try {
    const url = new URL(text);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

// Characters that a terminal or a text's direction would obey instead of showing: made visible,
// as ^[ for an escape and [U+202E] for an override, which every font can show.
export function visible(text) {
  return text
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, (c) => `^${String.fromCharCode(c.charCodeAt(0) ^ 64)}`)
    .replace(/[\u202a-\u202e\u2066-\u2069]/g, (c) => `[U+${c.charCodeAt(0).toString(16).toUpperCase()}]`);
}

// → [{type: 'text', text} | {type: 'code', text} | {type: 'strong'|'em'|'strike', children}
//    | {type: 'link', href, children} | {type: 'image', href, alt}]
export function parseInline(source) {
  return new InlineParser(source).parse();
}

class InlineParser {
  constructor(source) {
    this.source = source;
    this.at = 0;
    this.nodes = []; // flat until emphasis is resolved
    this.brackets = []; // indices into nodes of open [ and ![
    this.noCloser = new Map(); // length of a run of backticks → none follows
  }

  parse() {
    while (this.at < this.source.length) this.step();
    return resolveEmphasis(this.nodes);
  }

  step() {
    const source = this.source;
    const c = source[this.at];
    if (c === "\\") return this.escape();
    if (c === "`") return this.code();
    if (c === "*" || c === "_" || c === "~") return this.delimiters(c);
    if (c === "[") return this.open(1, false);
    if (c === "!" && source[this.at + 1] === "[") return this.open(2, true);
    if (c === "]") return this.close();
    if (c === "<") return this.autolink();
    if (c === "&") return this.entity();
    if (c === "h" || c === "H") return this.bareUrl();
    const rest = /[^\\`*_~[\]!<&hH]+/y;
    rest.lastIndex = this.at;
    this.text(rest.exec(source)?.[0] ?? c);
  }

  text(text) {
    const last = this.nodes.at(-1);
    if (last?.type === "text") last.text += text;
    else this.nodes.push({ type: "text", text });
    this.at += text.length;
  }

  literal(text, consumed) {
    this.text(text);
    this.at += consumed - text.length;
  }

  escape() {
    const next = this.source[this.at + 1] ?? "";
    if (kEscapable.test(next)) this.literal(next, 2);
    else this.text("\\");
  }

  entity() {
    const match = /^&([a-z]+|#39);/.exec(this.source.slice(this.at, this.at + 8));
    const decoded = match && Object.hasOwn(kEntities, match[1]) ? kEntities[match[1]] : null;
    if (decoded) this.literal(decoded, match[0].length);
    else this.text("&");
  }

  code() {
    const run = runLength(this.source, this.at, "`");
    if (!this.noCloser.has(run)) {
      let from = this.at + run;
      while ((from = this.source.indexOf("`", from)) >= 0) {
        const length = runLength(this.source, from, "`");
        if (length === run) {
          let text = this.source.slice(this.at + run, from).replace(/\n/g, " ");
          if (/^ .* $/s.test(text) && text.trim()) text = text.slice(1, -1);
          this.nodes.push({ type: "code", text });
          this.at = from + run;
          return;
        }
        from += length;
      }
      this.noCloser.set(run, true);
    }
    this.text("`".repeat(run));
  }

  delimiters(c) {
    const run = runLength(this.source, this.at, c);
    const before = this.at === 0 ? " " : this.source[this.at - 1];
    const after = this.source[this.at + run] ?? " ";
    const space = (x) => /\s/.test(x);
    const mark = (x) => kPunctuation.test(x);
    const left = !space(after) && (!mark(after) || space(before) || mark(before));
    const right = !space(before) && (!mark(before) || space(after) || mark(after));
    const within = c === "_";
    this.nodes.push({
      type: "run",
      c,
      length: run,
      original: run,
      opens: left && (!within || !right || mark(before)) && (c !== "~" || run === 2),
      closes: right && (!within || !left || mark(after)) && (c !== "~" || run === 2),
    });
    this.at += run;
  }

  open(length, image) {
    this.brackets.push({ node: this.nodes.length, image, from: this.at });
    this.nodes.push({ type: "text", text: image ? "![" : "[" });
    this.nodes.push({ type: "text", text: "" }); // so that text does not run into the bracket
    this.at += length;
  }

  close() {
    const bracket = this.brackets.pop();
    const target = bracket ? this.target(this.at + 1) : null;
    if (!target) return this.text("]");
    const inside = this.nodes.splice(bracket.node).slice(1);
    if (bracket.image) {
      this.nodes.push({ type: "image", href: target.href, alt: plainText(inside) });
    } else {
      // A link in a link is none: the outer brackets stay text.
      this.brackets = this.brackets.filter((open) => open.image);
      this.nodes.push({ type: "link", href: target.href, children: resolveEmphasis(inside), depth: 1 });
    }
    this.at = target.end;
  }

  // "(address "title")" at `from`, of an address that may be linked; else null, and all stays text.
  target(from) {
    if (this.source[from] !== "(") return null;
    const text = this.source.slice(from, from + kUrlMax + 512);
    const match =
      /^\(\s{0,8}(?:<([^<>\n]*)>|([^\s()<>]*(?:\([^\s()<>]*\)[^\s()<>]*)*))(?:\s{1,8}(?:"[^"]*"|'[^']*'))?\s{0,8}\)/.exec(
        text,
      );
    const href = match ? safeUrl(match[1] ?? match[2]) : null;
    return href ? { href, end: from + match[0].length } : null;
  }

  autolink() {
    const match = /^<((?:https?:\/\/|mailto:)[^\s<>]*)>/i.exec(this.source.slice(this.at, this.at + kUrlMax));
    const href = match ? safeUrl(match[1]) : null;
    if (!href) return this.text("<");
    this.nodes.push({ type: "link", href, children: [{ type: "text", text: match[1] }] });
    this.at += match[0].length;
  }

  bareUrl() {
    const before = this.source[this.at - 1] ?? " ";
    const match =
      !/[tT]/.test(this.source[this.at + 1] ?? "") || /\w/.test(before) || this.brackets.length > 0
        ? null
        : /^https?:\/\/[^\s<>"`\\]+/i.exec(this.source.slice(this.at, this.at + kUrlMax));
    if (!match) return this.text(this.source[this.at]);
    let url = match[0].replace(/[.,:;!?'*_~\]]+$/, "");
    if (url.endsWith(")") && !url.includes("(")) url = url.replace(/\)+$/, "").replace(/[.,:;!?]+$/, "");
    const href = safeUrl(url);
    if (!href) return this.text(this.source[this.at]);
    this.nodes.push({ type: "link", href, children: [{ type: "text", text: url }] });
    this.at += url.length;
  }
}

function runLength(source, at, c) {
  let end = at;
  while (source[end] === c) end++;
  return end - at;
}

// CommonMark's "process emphasis" with a stack of what stands so far. `floors` remembers, for each kind of
// closer, below which no opener was found: that keeps the time linear.
function resolveEmphasis(nodes) {
  const out = [];
  const floors = new Map();
  for (const node of nodes) {
    if (node.type === "run" && node.closes) closeRuns(node, out, floors);
    if (node.type !== "run" || node.length > 0) out.push(node);
  }
  return clean(out);
}

function closeRuns(closer, out, floors) {
  const kind = `${closer.c}${closer.opens}${closer.original % 3}`;
  while (closer.length > 0) {
    const floor = floors.get(kind) ?? 0;
    let at = out.length - 1;
    while (at >= floor && !matches(out[at], closer)) at--;
    if (at < floor) {
      floors.set(kind, out.length);
      return;
    }
    const opener = out[at];
    const size = closer.c === "~" || (opener.length >= 2 && closer.length >= 2) ? 2 : 1;
    const depth = 1 + depthOf(out, at + 1);
    if (depth > kDepthMax) {
      // Only hostile text comes here: what follows of this kind is text, without another look at all of it.
      opener.opens = false;
      out.splice(at, out.length - at, ...clean(out.slice(at)));
      floors.set(kind, out.length);
      return;
    }
    const children = clean(out.slice(at + 1));
    out.length = at + 1;
    opener.length -= size;
    closer.length -= size;
    if (opener.length === 0) out.pop();
    out.push({ type: closer.c === "~" ? "strike" : size === 2 ? "strong" : "em", children, depth });
    for (const [key, value] of floors) floors.set(key, Math.min(value, out.length - 1));
  }
}

function depthOf(nodes, from) {
  let deepest = 0;
  for (let i = from; i < nodes.length; i++) deepest = Math.max(deepest, nodes[i].depth ?? 0);
  return deepest;
}

function matches(opener, closer) {
  if (opener.type !== "run" || opener.c !== closer.c || !opener.opens || opener.length === 0) return false;
  const odd =
    (opener.closes || closer.opens) &&
    (opener.original + closer.original) % 3 === 0 &&
    (opener.original % 3 !== 0 || closer.original % 3 !== 0);
  return !odd;
}

// Runs that matched nothing become text again, and neighbouring texts become one.
function clean(nodes) {
  const out = [];
  for (const node of nodes) {
    const text = node.type === "run" ? node.c.repeat(node.length) : node.type === "text" ? node.text : null;
    if (text === null) out.push(node);
    else if (text && out.at(-1)?.type === "text") out.at(-1).text += text;
    else if (text) out.push({ type: "text", text });
  }
  return out;
}

function plainText(nodes) {
  return nodes
    .map((node) => node.text ?? (node.c ? node.c.repeat(node.length) : plainText(node.children ?? [])))
    .join("");
}
