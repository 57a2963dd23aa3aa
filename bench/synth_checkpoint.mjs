// A checkpoint of random weights in the released form of GPT-OSS (safetensors shards with an index, bf16 trunk, MXFP4
// experts as blocks and scales): what an install of a real one costs in time, memory and disk can be measured without it.
//
//   node bench/synth_checkpoint.mjs DIR [--layers 4] [--vocab 201088] [--hidden 2880] [--experts 32] [--shards 3] [--seed 1]
//
// The defaults are GPT-OSS 20B's dimensions (its config.json at huggingface.co/openai/gpt-oss-20b) with 4 of the 24 layers: 4.1 GB,
// of which 2.3 are the two matrices over the vocabulary. A model of these weights says nothing.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const number = (value) => ({ type: 'string', default: String(value) });
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { layers: number(4), vocab: number(201088), hidden: number(2880), experts: number(32), shards: number(3), seed: number(1) },
});
const [directory] = positionals;
const { layers, vocab, hidden, experts, shards, seed } = Object.fromEntries(Object.entries(values).map(([k, v]) => [k, Number(v)]));
if (directory === undefined || ![layers, vocab, hidden, experts, shards].every((n) => Number.isInteger(n) && n > 0) || hidden % 32 !== 0) {
  console.error('usage: node synth_checkpoint.mjs DIR [--layers N] [--vocab N] [--hidden N, a multiple of 32] [--experts N] [--shards N] [--seed N]');
  process.exit(2);
}
const heads = 64, kvHeads = 8, headDim = 64;
const source = path.join(path.dirname(fileURLToPath(import.meta.url)), '..', 'tests', 'data', 'tiny-gpt-oss');
const config = {
  ...JSON.parse(fs.readFileSync(path.join(source, 'config.json'), 'utf8')),
  hidden_size: hidden, intermediate_size: hidden, num_attention_heads: heads, num_key_value_heads: kvHeads, head_dim: headDim,
  num_hidden_layers: layers, num_local_experts: experts, vocab_size: vocab,
  layer_types: Array.from({ length: layers }, (_, n) => (n % 2 === 0 ? 'sliding_attention' : 'full_attention')),
};

// Tensors as the released files name them: [name, dtype, shape, kind of noise].
const tensors = [['lm_head.weight', [vocab, hidden]], ['model.embed_tokens.weight', [vocab, hidden]], ['model.norm.weight', [hidden]]];
const blocks = (rows, columns) => [experts, rows, columns / 32, 16];
for (let n = 0; n < layers; n++) {
  const layer = `model.layers.${n}`;
  for (const [name, rows] of [['q', heads], ['k', kvHeads], ['v', kvHeads]])
    tensors.push([`${layer}.self_attn.${name}_proj.weight`, [rows * headDim, hidden]], [`${layer}.self_attn.${name}_proj.bias`, [rows * headDim]]);
  tensors.push([`${layer}.self_attn.o_proj.weight`, [hidden, heads * headDim]], [`${layer}.self_attn.o_proj.bias`, [hidden]],
    [`${layer}.self_attn.sinks`, [heads]], [`${layer}.input_layernorm.weight`, [hidden]], [`${layer}.post_attention_layernorm.weight`, [hidden]],
    [`${layer}.mlp.router.weight`, [experts, hidden]], [`${layer}.mlp.router.bias`, [experts]]);
  for (const [name, rows] of [['gate_up_proj', 2 * hidden], ['down_proj', hidden]])
    tensors.push([`${layer}.mlp.experts.${name}_blocks`, blocks(rows, hidden)], [`${layer}.mlp.experts.${name}_scales`, blocks(rows, hidden).slice(0, 3)],
      [`${layer}.mlp.experts.${name}_bias`, [experts, rows]]);
}
tensors.sort(([a], [b]) => (a < b ? -1 : 1));

// Noise is made once, 16 MiB of each kind; every tensor starts somewhere else in it.
let state = seed >>> 0;
const random = () => {  // xorshift32
  state ^= state << 13;
  state ^= state >>> 17;
  state ^= state << 5;
  return state >>> 0;
};
if (state === 0) state = 1;
const POOL_BYTES = 16 << 20;
const pool = (word) => {
  const words = new Uint32Array(POOL_BYTES / 4);
  for (let i = 0; i < words.length; i++) words[i] = word(random());
  return Buffer.from(words.buffer);
};
const noise = {
  blocks: pool((r) => r),
  scales: pool((r) => 0x76767676 + (r & 0x07070707)),  // 2^-9 … 2^-2: E8M0 has its 1 at 127
  bf16: pool((r) => 0x3c003c00 | (r & 0x80ff80ff)),    // ±(0.0078 … 0.031), never an infinity
};
const kindOf = (name) => (name.endsWith('_blocks') ? 'blocks' : name.endsWith('_scales') ? 'scales' : 'bf16');
const bytesOf = (name, shape) => shape.reduce((a, b) => a * b, kindOf(name) === 'bf16' ? 2 : 1);

function writeTensor(fd, name, bytes) {
  const from = noise[kindOf(name)];
  let at = (random() % (POOL_BYTES / 2)) & ~3;
  for (let left = bytes; left > 0; at = 0) {
    const count = Math.min(left, POOL_BYTES - at);
    fs.writeSync(fd, from, at, count);
    left -= count;
  }
}

function writeShard(name, members) {
  const header = { __metadata__: { format: 'pt' } };
  let end = 0;
  for (const [tensor, shape] of members) {
    const bytes = bytesOf(tensor, shape);
    header[tensor] = { dtype: kindOf(tensor) === 'bf16' ? 'BF16' : 'U8', shape, data_offsets: [end, (end += bytes)] };
  }
  let text = JSON.stringify(header);
  text += ' '.repeat((8 - (text.length % 8)) % 8);
  const prefix = Buffer.alloc(8);
  prefix.writeBigUInt64LE(BigInt(text.length));
  const fd = fs.openSync(path.join(directory, name), 'w');
  fs.writeSync(fd, prefix);
  fs.writeSync(fd, text);
  for (const [tensor, shape] of members) writeTensor(fd, tensor, bytesOf(tensor, shape));
  fs.closeSync(fd);
}

const total = tensors.reduce((sum, [name, shape]) => sum + bytesOf(name, shape), 0);
const shardName = (n) => `model-${String(n + 1).padStart(5, '0')}-of-${String(shards).padStart(5, '0')}.safetensors`;
fs.mkdirSync(directory, { recursive: true });
const weightMap = {};
for (let n = 0, next = 0, before = 0; n < shards; n++) {
  const members = [];
  while (next < tensors.length && (n === shards - 1 || before < (total * (n + 1)) / shards)) {
    const [name, shape] = tensors[next++];
    members.push([name, shape]);
    before += bytesOf(name, shape);
    weightMap[name] = shardName(n);
  }
  writeShard(shardName(n), members);
}
const index = { metadata: { total_size: total }, weight_map: weightMap };
fs.writeFileSync(path.join(directory, 'model.safetensors.index.json'), JSON.stringify(index, null, 2) + '\n');
fs.writeFileSync(path.join(directory, 'config.json'), JSON.stringify(config, null, 2) + '\n');
fs.copyFileSync(path.join(source, 'generation_config.json'), path.join(directory, 'generation_config.json'));
console.log(`${directory}: ${total} bytes of weights in ${shards} files`);
