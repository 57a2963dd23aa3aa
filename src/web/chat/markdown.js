// The block part of Markdown, as chat models write it: headings, paragraphs, lists, tables, fenced code,
// quotes, rules. Text → a tree of plain objects, which markdown_dom.js makes visible; nothing here knows a
// DOM, and nothing a model writes becomes markup. HTML is text.
//
// Line breaks inside a paragraph are kept, as people expect of a chat (and of a poem).
import { parseInline } from "./markdown_inline.js";

const kDepthMax = 12; // of quotes and lists in each other; deeper is text
const kFence = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})(?=[ \t]|$)/;
const kRule = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const kItem = /^( {0,3})([-+*]|\d{1,9}[.)])(?:([ \t]+)(.*)|)$/;
const kQuote = /^ {0,3}> ?/;
const kDelimiterRow = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

// Blocks: {type: 'heading', level, children} {type: 'paragraph', children} {type: 'rule'}
// {type: 'code', language, text, open} {type: 'quote', blocks} {type: 'list', start (null: bullets), tight,
// items: [{blocks, checked: null | bool}]} {type: 'table', align: ['', 'left', …], head: [[inline]], rows}.
// `lines` = [first, last + 1] says where a top-level block stands.
export function parseMarkdown(text) {
  return parseBlocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

function parseBlocks(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at++;
      continue;
    }
    const block = blockAt(lines, at, depth);
    block.lines[0] = at;
    blocks.push(block);
    at = block.lines[1];
  }
  return blocks;
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  const fence = kFence.exec(line);
  if (fence) return codeAt(lines, at, fence);
  const heading = kHeading.exec(line);
  if (heading && headingText(line))
    return {
      type: "heading",
      level: heading[1].length,
      children: parseInline(headingText(line)),
      lines: [at, at + 1],
    };
  if (kRule.test(line)) return { type: "rule", lines: [at, at + 1] };
  if (depth < kDepthMax && kQuote.test(line)) return quoteAt(lines, at, depth);
  if (depth < kDepthMax && kItem.test(line)) return listAt(lines, at, depth);
  if (tableStarts(lines, at)) return tableAt(lines, at);
  return paragraphAt(lines, at);
}

// Without the marks before it, and those that some writers put behind it. By hand, since a pattern would take
// quadratic time on a line of blanks.
function headingText(line) {
  const text = line.trim().replace(/^#+/, "").trim();
  const bare = text.replace(/#+$/, "");
  return bare === text || /[ \t]$/.test(bare) || !bare ? bare.trim() : text;
}

function codeAt(lines, at, [, indent, marks, info]) {
  const close = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`);
  let end = at + 1;
  while (end < lines.length && !close.test(lines[end])) end++;
  const strip = new RegExp(`^ {0,${indent.length}}`);
  const open = end >= lines.length;
  return {
    type: "code",
    open,
    language: info.trim().split(/\s+/)[0] ?? "",
    text: lines
      .slice(at + 1, end)
      .map((line) => line.replace(strip, ""))
      .join("\n"),
    lines: [at, open ? end : end + 1],
  };
}

// What begins another block even without a blank line before it. A number other than 1 begins no list in
// the middle of a sentence (CommonMark, 5.3).
function interrupts(lines, at) {
  const line = lines[at];
  if (!line.trim() || kFence.test(line) || kHeading.test(line) || kRule.test(line) || kQuote.test(line))
    return true;
  const item = kItem.exec(line);
  if (item && item[4] && (!/\d/.test(item[2]) || item[2].slice(0, -1) === "1")) return true;
  return tableStarts(lines, at);
}

function paragraphAt(lines, at) {
  let end = at + 1;
  while (end < lines.length && !interrupts(lines, end)) end++;
  const text = lines
    .slice(at, end)
    .map((line) => line.trimEnd())
    .join("\n");
  return { type: "paragraph", children: parseInline(text), lines: [at, end] };
}

function quoteAt(lines, at, depth) {
  const inside = [];
  let end = at;
  for (; end < lines.length; end++) {
    if (kQuote.test(lines[end])) inside.push(lines[end].replace(kQuote, ""));
    else if (inside.at(-1).trim() && !interrupts(lines, end))
      inside.push(lines[end]); // lazy
    else break;
  }
  return { type: "quote", blocks: parseBlocks(inside, depth + 1), lines: [at, end] };
}

const bulletOf = (item) => (/\d/.test(item[2]) ? item[2].at(-1) : item[2]);

function listAt(lines, at, depth) {
  const first = kItem.exec(lines[at]);
  const items = [];
  let loose = false;
  let end = at;
  while (end < lines.length) {
    const item = kItem.exec(lines[end]);
    if (!item || bulletOf(item) !== bulletOf(first) || kRule.test(lines[end])) break;
    const indent = item[1].length + item[2].length + Math.min(item[3]?.length ?? 1, 4);
    const inside = [item[4] ?? ""];
    let blank = false;
    for (end++; end < lines.length; end++) {
      const line = lines[end];
      if (!line.trim()) {
        blank = true;
        inside.push("");
        continue;
      }
      const leading = /^[ \t]*/.exec(line)[0].replace(/\t/g, "    ").length;
      // Models indent what belongs to an item by two or three as often as by the item's own width.
      const belongs = leading >= Math.min(indent, 2 + item[1].length) && leading > item[1].length;
      if (belongs) inside.push(line.replace(/\t/g, "    ").slice(Math.min(leading, indent)));
      else if (!blank && !interrupts(lines, end) && !kItem.test(line)) inside.push(line);
      else break;
    }
    if (
      blank &&
      end < lines.length &&
      kItem.test(lines[end]) &&
      bulletOf(kItem.exec(lines[end])) === bulletOf(first)
    )
      loose = true;
    while (inside.length > 1 && !inside.at(-1)) inside.pop();
    items.push(itemOf(inside, depth));
  }
  const start = /\d/.test(first[2]) ? Number.parseInt(first[2], 10) : null;
  while (end > at + 1 && !lines[end - 1].trim()) end--;
  return { type: "list", start, tight: !loose, items, lines: [at, end] };
}

function itemOf(lines, depth) {
  const task = /^\[([ xX])\] (.*)$/.exec(lines[0]);
  const inside = task ? [task[2], ...lines.slice(1)] : lines;
  return { blocks: parseBlocks(inside, depth + 1), checked: task ? task[1] !== " " : null };
}

function tableStarts(lines, at) {
  const next = lines[at + 1];
  if (next === undefined || !lines[at].includes("|") || !next.includes("-") || !kDelimiterRow.test(next))
    return false;
  return cellsOf(lines[at]).length === cellsOf(next).length;
}

// The cells between the bars; \| is a bar of the cell's own, and so is one in a code span.
function cellsOf(line) {
  const cells = [""];
  let ticks = false;
  for (const part of line
    .trim()
    .replace(/^\|/, "")
    .replace(/([^\\]|^)\|$/, "$1")
    .split(/(\\\||`|\|)/)) {
    if (part === "|" && !ticks) {
      cells.push("");
      continue;
    }
    if (part === "`") ticks = !ticks;
    cells[cells.length - 1] += part === "\\|" ? "|" : part;
  }
  return cells.map((cell) => cell.trim());
}

function tableAt(lines, at) {
  const head = cellsOf(lines[at]);
  const align = cellsOf(lines[at + 1]).map((cell) => {
    if (cell.startsWith(":") && cell.endsWith(":") && cell.length > 1) return "center";
    return cell.endsWith(":") ? "right" : cell.startsWith(":") ? "left" : "";
  });
  const rows = [];
  let end = at + 2;
  for (
    ;
    end < lines.length && lines[end].trim() && (lines[end].includes("|") || !interrupts(lines, end));
    end++
  ) {
    const cells = cellsOf(lines[end]);
    rows.push(head.map((_, i) => parseInline(cells[i] ?? "")));
  }
  return { type: "table", align, head: head.map(parseInline), rows, lines: [at, end] };
}

// Markdown that grows at its end: finished blocks are parsed once. Only the last two can still change (the
// last line may be half a line, which may have ended the block before it wrongly).
export class MarkdownStream {
  #text = "";
  #settled = []; // blocks that no further text can change
  #settledAt = 0; // where in the text the others begin
  blocks = [];

  // Returns how many leading blocks are the same objects as before.
  set(text) {
    if (!text.startsWith(this.#text.slice(0, this.#settledAt))) {
      this.#settled = [];
      this.#settledAt = 0;
    }
    this.#text = text;
    const same = this.#settled.length;
    const tail = text.slice(this.#settledAt);
    const fresh = parseMarkdown(tail);
    this.blocks = [...this.#settled, ...fresh];
    const keep = fresh.length - 2;
    if (keep > 0) {
      this.#settledAt += offsetOfLine(tail, fresh[keep].lines[0]);
      this.#settled = this.blocks.slice(0, same + keep);
    }
    return same;
  }
}

function offsetOfLine(text, line) {
  const breaks = /\r\n?|\n/g;
  let at = 0;
  for (let i = 0; i < line; i++) {
    breaks.exec(text);
    at = breaks.lastIndex;
  }
  return at;
}
