// The models that the server's tests run on: the demo, and a random Qwen3 checkpoint that gets a tokenizer here.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));

// GPT-2's spelling of bytes: printable ones as themselves, the others from U+0100 on.
function byteAlphabet() {
  const plain = (b) => (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
  let next = 0x100;
  return Array.from({ length: 256 }, (_, b) => String.fromCodePoint(plain(b) ? b : next++));
}

// Qwen3's: byte-level BPE, NFC, its added tokens at the end of a vocabulary of `rows`. The merges are pairs of letters and
// of a blank with a letter; every row has a token, so that whatever a random model says can be written down.
export function qwenTokenizer(rows) {
  const special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>"];
  const tags = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"];
  const added = [...special, ...tags];
  const vocab = Object.fromEntries(byteAlphabet().map((character, byte) => [character, byte]));
  const letters = Array.from("etaoinsrhldcumfpgwybvkxjqzET");
  const merges = [];
  for (const left of ["Ġ", ...letters]) {
    for (const right of letters) {
      if (256 + merges.length + added.length === rows) break;
      vocab[left + right] = 256 + merges.length;
      merges.push([left, right]);
    }
  }
  const first = rows - added.length;
  const pattern = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
    + "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  return {
    version: "1.0", truncation: null, padding: null, normalizer: { type: "NFC" }, post_processor: null,
    added_tokens: added.map((content, i) => ({
      id: first + i, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: special.includes(content),
    })),
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        { type: "Split", pattern: { Regex: pattern }, behavior: "Isolated", invert: false },
        { type: "ByteLevel", add_prefix_space: false, use_regex: false },
      ],
    },
    decoder: { type: "ByteLevel" }, model: { type: "BPE", vocab, merges },
  };
}

const sources = {
  demo: () => join(root, "models/demo"),
  qwen: (dir) => {
    const copy = join(dir, "qwen");
    cpSync(join(root, "tests/data/tiny-qwen3-moe"), copy, { recursive: true });
    writeFileSync(join(copy, "tokenizer.json"), JSON.stringify(qwenTokenizer(1024)));
    return copy;
  },
};
export const modelNames = Object.keys(sources);

// Installs model `name` below `dir`, once, and returns its container.
export function installModel(wader, name, dir) {
  const container = join(dir, `${name}.wader`);
  if (existsSync(container)) return container;
  mkdirSync(dir, { recursive: true });
  execFileSync(wader, ["install", sources[name](dir), "-o", container], { stdio: ["ignore", "ignore", "pipe"] });
  return container;
}
