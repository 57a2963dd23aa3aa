// Makes the tree of markdown.js visible, node by node: no markup is ever parsed, so nothing in it can run, load
// or leave the page.
import { h, icon } from "../lib/dom.js";
import { visible } from "./markdown_inline.js";

const kCopyIcon = "M7 7V4h9v9h-3M4 7h9v9H4z";
const kCopiedMs = 1500;

export function renderInline(nodes) {
  return nodes.map((node) => {
    switch (node.type) {
      case "text":
        return visible(node.text);
      case "code":
        return h("code", {}, visible(node.text));
      case "strong":
        return h("strong", {}, renderInline(node.children));
      case "em":
        return h("em", {}, renderInline(node.children));
      case "strike":
        return h("s", {}, renderInline(node.children));
      case "link":
        return link(node.href, renderInline(node.children));
      case "image":
        return link(node.href, [`${visible(node.alt) || "picture"} (picture, not loaded)`]);
      default:
        return "";
    }
  });
}

function link(href, children) {
  return h(
    "a",
    { href, title: href, rel: "noopener noreferrer", target: "_blank", referrerpolicy: "no-referrer" },
    children,
  );
}

function renderBlocks(blocks) {
  return blocks.map(renderBlock);
}

export function renderBlock(block) {
  switch (block.type) {
    // A message is a part of the page: its headings go below the page's own.
    case "heading":
      return h(`h${Math.min(block.level + 2, 6)}`, { dir: "auto" }, renderInline(block.children));
    case "paragraph":
      return h("p", { dir: "auto" }, renderInline(block.children));
    case "rule":
      return h("hr");
    case "quote":
      return h("blockquote", { dir: "auto" }, renderBlocks(block.blocks));
    case "code":
      return codeBlock(block);
    case "list":
      return list(block);
    case "table":
      return table(block);
    default:
      return "";
  }
}

function list(block) {
  const ordered = block.start !== null;
  const items = block.items.map((item) => {
    const box =
      item.checked === null
        ? null
        : h(
            "span",
            { class: "task", role: "img", "aria-label": item.checked ? "done" : "open" },
            item.checked ? "☑" : "☐",
          );
    const [first, ...others] = item.blocks;
    const tight = block.tight && first?.type === "paragraph";
    const body = tight
      ? [h("span", { class: "tight" }, renderInline(first.children)), renderBlocks(others)]
      : renderBlocks(item.blocks);
    return h("li", { dir: "auto", class: box ? "with-task" : null }, box, body);
  });
  return h(ordered ? "ol" : "ul", { start: ordered && block.start !== 1 ? block.start : null }, items);
}

function table(block) {
  const cell = (tag) => (children, i) =>
    h(
      tag,
      {
        class: block.align[i] ? `align-${block.align[i]}` : null,
        scope: tag === "th" ? "col" : null,
        dir: "auto",
      },
      renderInline(children),
    );
  return h(
    "div",
    { class: "table-scroll", tabindex: "0", role: "region", "aria-label": "Table" },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, block.head.map(cell("th")))),
      h(
        "tbody",
        {},
        block.rows.map((row) => h("tr", {}, row.map(cell("td")))),
      ),
    ),
  );
}

function codeBlock(block) {
  const language = visible(block.language).slice(0, 24);
  const code = h("code", {}, visible(block.text));
  const label = h("span", {}, "Copy");
  const button = h(
    "button",
    {
      type: "button",
      class: "copy",
      "aria-label": "Copy code",
      onclick: async () => {
        const copied = await copyText(code.textContent);
        label.textContent = copied ? "Copied" : "Not allowed";
        setTimeout(() => (label.textContent = "Copy"), kCopiedMs);
      },
    },
    icon(kCopyIcon),
    label,
  );
  return h(
    "figure",
    { class: "code" },
    h("figcaption", {}, h("span", { class: "language" }, language || "text"), button),
    h("pre", { tabindex: "0", role: "region", "aria-label": language ? `Code, ${language}` : "Code" }, code),
  );
}

// The clipboard's own door is closed to a page that came over plain http from another machine.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = h("textarea", { class: "off-screen", "aria-hidden": "true", tabindex: "-1" });
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    return copied;
  }
}

// Shows a MarkdownStream in an element and touches only the blocks that changed.
export class MarkdownView {
  #stream;
  #nodes = [];
  #blocks = [];

  constructor(element, stream) {
    this.element = element;
    this.#stream = stream;
  }

  set(text) {
    this.#stream.set(text);
    const blocks = this.#stream.blocks;
    let same = 0;
    while (same < blocks.length && blocks[same] === this.#blocks[same]) same++;
    for (let i = same; i < blocks.length; i++) this.#show(i, blocks[i]);
    for (const node of this.#nodes.splice(blocks.length)) node.remove();
    this.#blocks = blocks;
  }

  #show(i, block) {
    const old = this.#blocks[i];
    if (old?.type === "code" && block.type === "code" && old.language === block.language && this.#nodes[i]) {
      // Code that grows keeps its place on the screen and what is selected in it.
      const text = visible(block.text);
      const code = this.#nodes[i].querySelector("pre > code");
      if (code.firstChild && text.startsWith(code.textContent))
        code.firstChild.appendData(text.slice(code.textContent.length));
      else code.textContent = text;
      return;
    }
    const node = renderBlock(block);
    if (this.#nodes[i]) this.#nodes[i].replaceWith(node);
    else this.element.append(node);
    this.#nodes[i] = node;
  }
}
