// A seeded corpus of mixed text for comparing tokenizers: 2,000 byte strings, the same on every machine.

// mulberry32 (Tommy Ettinger, public domain): 32 bits of state are plenty for choosing test text.
function makeRandom(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const WORDS = {
  english: 'the Stream of experts is read from disk while a small trunk stays in memory because only few are needed per token HTTP JSON iPhone eBay McDonald naïve café Zürich coöperate'.split(' '),
  russian: 'Кулик ходит по мелководью и ищет корм пока прилив не вернулся Ёжик подъезд объём МОСКВА Пётр'.split(' '),
  chinese: '专家 模型 从 磁盘 流式 读取 只有 少数 参数 需要 常驻 内存 你好 世界 。 ， 「引号」 一二三'.split(' '),
  japanese: 'こんにちは 世界 カタカナ ひらがな 漢字 トークン化 ｶﾅ ー 々 。'.split(' '),
  korean: '안녕하세요 세계 토큰 메모리 모델 한국어 가각힣'.split(' '),
  hindi: 'नमस्ते दुनिया हिन्दी में लिखा हुआ पाठ क्षत्रिय ज्ञान श्री विद्यार्थी १२३'.split(' '),
  thai: 'สวัสดี ชาวโลก ภาษาไทย ไม่มี ช่องว่าง ระหว่าง คำ น้ำ ผู้ใหญ่ ๑๒๓'.split(' '),
  arabic: 'مرحبا بالعالم اللغة العربية مُحَمَّد ١٢٣ كتاب'.split(' '),
  hebrew: 'שלום עולם עִבְרִית בְּרֵאשִׁית'.split(' '),
  greek: 'Καλημέρα κόσμε ΣΊΣΥΦΟΣ σίσυφος ἀρχή'.split(' '),
  others: 'ভাষা தமிழ் తెలుగు ქართული Հայերեն አማርኛ ខ្មែរ မြန်မာ བོད་ Tiếng Việt ǅ ǈ ʰ ª º ⅷ ½ ² ٣'.split(' '),
};
const EMOJI = ['😀', '👩‍👩‍👧‍👦', '👍🏽', '🏳️‍🌈', '🇩🇪', '🇫🇷🇯🇵', '1️⃣', '❤️', '❤', '🧑🏿‍🚀', '☃︎', '👁️‍🗨️', '🫠', '→', '©', '™', '█'];
const MARKS = ['\u0301', '\u0308', '\u0327', '\u0323', '\u0338', '\u20d7', '\u3099', '\u0345', '\u05b4', '\u094d', '\u0e49'];
const COMPOSING = ['Cafe\u0301', 'Café', '\u1112\u1161\u11ab', '한', '\u212b', 'Å', 'A\u030a', 'が', 'か\u3099', 'q\u0307\u0323', '\u1e0b\u0323', '\u0958', 'ﬁ', '\u0344', '>\u0338', '≯', '\u2126', '\ufb2c', 'ศ\u0e38\u0e49'];
const SPACES = [' ', '  ', '   ', '\t', '\n', '\r\n', '\n\n', '\r', '\u00a0', '\u3000', '\u2003', '\u2028', '\u0085', '\u000b', '\u200b', '\ufeff', '\u180e', '        ', '\t\t', ' \n ', '\n  '];
const CONTRACTIONS = ["don't", "DON'T", "I'll", "we've", "You'Re", "he'd", "it's", "IT'S", "o'clock", "'tis", "I'm", "x'ſ", "rock'n'roll", 'don’t', "'s", "''ll", "can'tt"];
const PUNCTUATION = ['//', '/\n', '->/\n', '...', '?!', '==', '=>', '&&', '||', '{}', '();', '[[', '**', '---', '"', "'", '\\n', '$', '%', '^^', '~', '`', '_', '__init__', '#!', '<', '>', '<|', '|>', '«»', '…', '—', '¿', '、'];
const CODE = [
  'for (int i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];\n}',
  'def camelCase(self, HTTPSession=None):\n    return f"{self.x!r}"  # noqa',
  'const x = await fetch(`https://example.org/${id}?q=1&r=%20`);',
  'SELECT a.id, COUNT(*) FROM t AS a WHERE a.x >= 10 GROUP BY 1;',
  '#include <vector>\n#define MAX(a,b) ((a)>(b)?(a):(b))\n',
  '<div class="a b" data-x=\'1\'>\r\n  <p>Text</p>\r\n</div>',
  'fn main() -> Result<(), Box<dyn Error>> { println!("{:?}", v); }',
  '\\frac{\\partial f}{\\partial x} = \\sum_{i=0}^{n} x_i^2',
  '0x7fff_ffff 1e-9 3.14159 1_000_000 0b1010 -17 +42 1,234,567.89',
];
const IDENTIFIERS = ['camelCase', 'PascalCase', 'HTTPSession', 'snake_case', 'SCREAMING_CASE', 'kebab-case', 'XMLHttpRequest', 'iOS17Beta', 'x86_64', 'utf8Toутф', 'ÉcoleNormale', 'ΑβγΔ', 'aB', 'Ab', 'ABc', 'aBC', 'ǅungla'];
const MARKUP = ['<|start|>', '<|end|>', '<|message|>', '<|channel|>', '<|return|>', '<|call|>', '<|constrain|>', '<|endoftext|>', '<|startoftext|>', '<|im_start|>', '<|im_end|>', '<think>', '</think>', '<tool_call>', '</tool_call>', '<|fim_prefix|>', '<|endofprompt|>', '<|reserved_200001|>', '<|en', '|>', '<|END|>', '<|end |>', '<<|end|>>'];
const RUNS = ['a', 'A', 'ab', '^', '_', ' ', '\n', '\t', '中', 'é', '0', '=', '-', '/', 'я', '😀', '\u0301', ' a', 'Ba', '\r\n', 'ह', "'s"];
// Fully assigned since Unicode 8, so that no two Unicode versions class them differently.
const RANGES = [[0x00, 0x7f], [0x20, 0x7e], [0x80, 0x24f], [0x300, 0x36f], [0x400, 0x4ff], [0x5d0, 0x5ea], [0x620, 0x669], [0x900, 0x950], [0xe01, 0xe3a], [0x1e00, 0x1eff], [0x2000, 0x2027], [0x2190, 0x22ff], [0x3041, 0x3096], [0x30a0, 0x30ff], [0x4e00, 0x9fa5], [0xac00, 0xd7a3], [0xff01, 0xff5e], [0x1d400, 0x1d454], [0x1f300, 0x1f579]];
const BAD_BYTES = [[0x80], [0xff], [0xc0, 0x80], [0xe2, 0x82], [0xed, 0xa0, 0x80], [0xf0, 0x9f, 0x98], [0xf4, 0x90, 0x80, 0x80], [0xc3], [0xe0, 0x80, 0xaf], [0xfe, 0xff], [0xf8, 0x88, 0x80, 0x80, 0x80], [0xb0, 0xa1, 0xc4]];

export function makeCorpus(seed = 20240805, count = 2000) {
  const random = makeRandom(seed);
  const below = (n) => Math.floor(random() * n);
  const pick = (list) => list[below(list.length)];
  const times = (low, high, make) => Array.from({ length: low + below(high - low + 1) }, make);

  const prose = () => {
    const words = pick(Object.values(WORDS));
    return times(1, 14, () => pick(words)).join(pick([' ', ' ', ' ', '', ', ', '. ', '\n']));
  };
  const digits = () => times(1, 6, () => times(1, 9, () => pick([...'0123456789'])).join('')).join(pick([' ', '.', ',', '', ':']));
  const anyCharacter = () => {
    const [first, last] = pick(RANGES);
    return String.fromCodePoint(first + below(last - first + 1));
  };
  const makers = [
    prose, prose, prose, digits, anyCharacter,
    () => pick(CODE), () => pick(EMOJI), () => pick(SPACES), () => pick(CONTRACTIONS),
    () => pick(PUNCTUATION), () => pick(IDENTIFIERS), () => pick(COMPOSING),
    () => pick(['e', 'a', 'क', 'か', 'x', 'ก', ' ']) + times(1, 5, () => pick(MARKS)).join(''),
  ];
  const mixed = () => times(1, 8, () => pick(makers)()).join(pick(['', ' ', '', '\n']));
  const kinds = [
    [6, prose], [6, () => times(1, 4, () => pick(CODE)).join('\n')], [3, digits],
    [4, () => times(1, 12, () => pick(IDENTIFIERS)).join(pick([' ', '', '.', '_', '::']))],
    [4, () => times(1, 10, () => pick(CONTRACTIONS)).join(pick([' ', '', '-']))],
    [4, () => times(1, 10, () => pick(EMOJI) + pick(['', ' ', 'x'])).join('')],
    [4, () => times(1, 9, () => pick(SPACES)).join(pick(['', 'a', '.', '1', '中']))],
    [4, () => times(1, 9, () => pick(COMPOSING)).join(pick([' ', '']))],
    [3, () => times(1, 40, anyCharacter).join('')],
    [3, () => pick(RUNS).repeat(pick([2, 7, 49, 130, 600, 1500]))],
    [5, () => times(1, 6, () => pick([pick(MARKUP), pick(MARKUP), mixed()])).join(pick(['', ' ']))],
    [20, mixed],
  ];
  const wheel = kinds.flatMap(([weight, make]) => Array(weight).fill(make));
  const damaged = () => Buffer.concat(times(2, 6, () => (below(2) ? Buffer.from(pick(BAD_BYTES)) : Buffer.from(mixed()).subarray(0, 60))));
  return Array.from({ length: count }, (_, i) => (i % 15 === 7 ? damaged() : Buffer.from(pick(wheel)())));
}
