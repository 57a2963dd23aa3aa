// The chat's Markdown: what it makes of ordinary and of hostile text.
import assert from "node:assert/strict";
import { test } from "node:test";
import { MarkdownStream, parseMarkdown } from "../../src/web/chat/markdown.js";
import { parseInline, safeUrl, visible } from "../../src/web/chat/markdown_inline.js";
import { kHostile } from "./fake_answer.mjs";

// The tree as a short text: strong(…), link[href](…).
const inline = (nodes) =>
  nodes
    .map((node) => {
      if (node.type === "text") return node.text;
      if (node.type === "code") return `code(${node.text})`;
      if (node.type === "image") return `image[${node.href}](${node.alt})`;
      if (node.type === "link") return `link[${node.href}](${inline(node.children)})`;
      return `${node.type}(${inline(node.children)})`;
    })
    .join("");
const block = (node) => {
  switch (node.type) {
    case "heading":
      return `h${node.level}(${inline(node.children)})`;
    case "paragraph":
      return `p(${inline(node.children)})`;
    case "rule":
      return "rule";
    case "code":
      return `pre[${node.language}${node.open ? ", open" : ""}](${node.text})`;
    case "quote":
      return `quote(${node.blocks.map(block).join(" ")})`;
    case "list":
      return (
        `${node.start === null ? "ul" : `ol${node.start}`}${node.tight ? "" : ", loose"}(` +
        node.items
          .map(
            (item) =>
              `${item.checked === null ? "" : item.checked ? "[x] " : "[ ] "}` +
              `li(${item.blocks.map(block).join(" ")})`,
          )
          .join(" ") +
        ")"
      );
    default:
      return `table[${node.align}](${[node.head, ...node.rows].map((row) => row.map(inline).join("|")).join(" / ")})`;
  }
};
const show = (text) => parseMarkdown(text).map(block).join("\n");
const line = (text) => inline(parseInline(text));

for (const [name, text, expected] of [
  ["headings", "# One\n## Two ##\n###### Six\n#hash", "h1(One)\nh2(Two)\nh6(Six)\np(#hash)"],
  ["an empty heading is none", "#\ntext", "p(#\ntext)"],
  ["paragraphs keep their line breaks", "a\nb\n\nc", "p(a\nb)\np(c)"],
  ["carriage returns", "a\r\n\r\nb", "p(a)\np(b)"],
  ["a rule is no list", "---\n* * *", "rule\nrule"],
  ["fenced code", '```js\nlet a = "*b*";\n\n  c\n```\nafter', 'pre[js](let a = "*b*";\n\n  c)\np(after)'],
  ["code with a fence in it", "````\n```\n````", "pre[](```)"],
  ["code that has not ended", "see\n```py\nx = 1", "p(see)\npre[py, open](x = 1)"],
  ["an indented fence", "  ~~~\n  a\n   b\n  ~~~", "pre[](a\n b)"],
  ["a tight list", "- a\n- b", "ul(li(p(a)) li(p(b)))"],
  ["a loose list", "- a\n\n- b\n\nend", "ul, loose(li(p(a)) li(p(b)))\np(end)"],
  ["a list in a list", "1. a\n   - b\n   - c\n2. d", "ol1(li(p(a) ul(li(p(b)) li(p(c)))) li(p(d)))"],
  ["a list in a list, indented by two", "1. a\n  - b\n2. c", "ol1(li(p(a) ul(li(p(b)))) li(p(c)))"],
  ["a list that starts at 3", "3) a\n4) b", "ol3(li(p(a)) li(p(b)))"],
  ["code in a list", "- a\n\n  ```\n  x\n  ```\n- b", "ul, loose(li(p(a) pre[](x)) li(p(b)))"],
  ["tasks", "- [ ] a\n- [x] b", "ul([ ] li(p(a)) [x] li(p(b)))"],
  ["other marks are another list", "- a\n+ b", "ul(li(p(a)))\nul(li(p(b)))"],
  ["a year ends no paragraph", "It was in\n1984. Then", "p(It was in\n1984. Then)"],
  ["a quote", "> a\nlazy\n> - b\n\nc", "quote(p(a\nlazy) ul(li(p(b))))\np(c)"],
  [
    "a table",
    "a | b\n:-- | --:\n1 | `x|y`\n\\| | 3 | 4\n\nend",
    "table[left,right](a|b / 1|code(x|y) / ||3)\np(end)",
  ],
  ["a table right after text", "text\n| a |\n|---|\n| 1 |", "p(text)\ntable[](a / 1)"],
  ["no table without its second line", "a | b\nc | d", "p(a | b\nc | d)"],
])
  test(name, () => assert.equal(show(text), expected));

for (const [text, expected] of [
  ["*a* **b** ***c***", "em(a) strong(b) em(strong(c))"],
  ["_a_ snake_case_name __b__", "em(a) snake_case_name strong(b)"],
  ["2 * 3 * 4", "2 * 3 * 4"],
  ["**bold *both***", "strong(bold em(both))"],
  ["*a **b*", "*a *em(b)"],
  ["**打开**文件", "strong(打开)文件"],
  ["~~gone~~ ~not~", "strike(gone) ~not~"],
  ["`a*b*` ``c`d`` `open", "code(a*b*) code(c`d) `open"],
  ["\\*a\\* \\q", "*a* \\q"],
  ["&lt;b&gt; &amp;nbsp; &unknown;", "<b> &nbsp; &unknown;"],
  ['[a *b*](https://x.org/y "t") z', "link[https://x.org/y](a em(b)) z"],
  [
    "[a](https://x.org/(y)) and [b](<https://x.org>)",
    "link[https://x.org/(y)](a) and link[https://x.org/](b)",
  ],
  ["[write](mailto:a@x.org)", "link[mailto:a@x.org](write)"],
  [
    "see https://x.org/a_b. Or <https://y.org>",
    "see link[https://x.org/a_b](https://x.org/a_b). Or link[https://y.org/](https://y.org)",
  ],
  ["(https://x.org/a)", "(link[https://x.org/a](https://x.org/a))"],
  ["[not a link] and [a](b c) [](", "[not a link] and [a](b c) [(".replace("[(", "[](")],
  ["![cat](https://x.org/cat.png)", "image[https://x.org/cat.png](cat)"],
  [
    "[[a](https://x.org)](https://y.org)",
    "[link[https://x.org/](a)](https://y.org)".replace(
      "](https://y.org)",
      "](link[https://y.org/](https://y.org))",
    ),
  ],
])
  test(`inline: ${text}`, () => assert.equal(line(text), expected));

test("addresses that no page should open are no links", () => {
  for (const url of [
    "javascript:alert(1)",
    "JavaScript:alert(1)",
    "java\tscript:alert(1)",
    " javascript:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    "//evil.org",
    "/wader/range",
    "x.html",
    "https://",
    `https://x.org/${"a".repeat(3000)}`,
  ])
    assert.equal(safeUrl(url), null, url);
  assert.equal(safeUrl("HTTPS://X.org"), "https://x.org/");
});

test("hostile text has no node that runs, and links to https alone", () => {
  const kinds = new Set();
  const walk = (node) => {
    if (Array.isArray(node)) return node.forEach(walk);
    if (node === null || typeof node !== "object") return;
    if (node.type) kinds.add(node.type);
    if (node.href) kinds.add(new URL(node.href).protocol);
    Object.values(node).forEach(walk);
  };
  walk(parseMarkdown(kHostile));
  // The picture and the frame's address are of https: shown as links to click, never loaded.
  assert.deepEqual([...kinds].sort(), ["code", "https:", "image", "link", "paragraph", "table", "text"]);
});

test("what a terminal or a direction mark would obey is shown", () => {
  assert.equal(visible("\u001b[31m\u0007 a\tb\n\u202e"), "^[[31m^G a\tb\n[U+202E]");
});

test("text that grows letter by letter ends as the same tree", () => {
  const texts = [
    kHostile,
    "# A\n\npara\n- a\n- b\n\n  c\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```js\nx\n```\n> q\n\nend\n1. x\n\n2. y\n",
  ];
  for (const text of texts) {
    const stream = new MarkdownStream();
    for (let end = 0; end <= text.length; end++) stream.set(text.slice(0, end));
    assert.deepEqual(stream.blocks.map(block), parseMarkdown(text).map(block));
  }
});

test("a finished block stays the same object while text grows", () => {
  const stream = new MarkdownStream();
  stream.set("one\n\ntwo\n\nthree\n\nfour");
  const [first, second] = stream.blocks;
  stream.set("one\n\ntwo\n\nthree\n\nfour and more\n\nfive");
  assert.equal(stream.blocks[0], first);
  assert.equal(stream.blocks[1], second);
  assert.equal(stream.blocks.length, 5);
});

test("another text than before begins anew", () => {
  const stream = new MarkdownStream();
  stream.set("one\n\ntwo\n\nthree\n\nfour");
  stream.set("uno\n\ndue");
  assert.deepEqual(stream.blocks.map(block), ["p(uno)", "p(due)"]);
});

test("text made to be slow is not", () => {
  const n = 20000;
  const slow = [
    "*a ".repeat(n),
    "*a* ".repeat(n),
    "**a ".repeat(n) + " b**".repeat(n),
    "[".repeat(n),
    "[a](".repeat(n),
    "`".repeat(n) + "a",
    Array.from({ length: 400 }, (_, i) => "`".repeat(i + 1)).join("a"),
    "> ".repeat(n),
    "- ".repeat(n),
    `# ${" ".repeat(n)}x`,
    `${" ".repeat(n)}x`,
    `[a](${" ".repeat(n)}`.repeat(20),
    "| ".repeat(n) + "\n" + "|-".repeat(n),
    "_a_".repeat(n),
    "~~".repeat(n),
    "h".repeat(n),
    "&".repeat(n),
    "<".repeat(n),
    "![](".repeat(n),
    "https://".repeat(n),
    "- a\n".repeat(n),
    "1. ".repeat(n),
  ];
  for (const text of slow) {
    const began = performance.now();
    parseMarkdown(text);
    const ms = performance.now() - began;
    assert.ok(ms < 5000, `${JSON.stringify(text.slice(0, 12))}…: ${ms.toFixed(0)} ms`);
  }
});
