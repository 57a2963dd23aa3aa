// A conversation is a tree: editing a message or asking again adds a sibling, and nothing is lost. Pure: no
// DOM, no storage, no clock but the `now` that is passed.
//
// {id, title, updated (ms), settings, nodes: {id: {id, parent, role, text, …}}, children: {id or 'root': [ids]},
//  chosen: {id or 'root': index into children}}

export const kRoot = "root";

export function newConversation(id, settings, now) {
  return {
    id,
    title: "",
    updated: now,
    settings: { ...settings },
    nodes: {},
    children: {},
    chosen: {},
    next: 1,
  };
}

// The messages from the first to the last on the branch that is shown.
export function path(conversation) {
  const messages = [];
  let at = kRoot;
  for (;;) {
    const children = conversation.children[at] ?? [];
    if (children.length === 0) return messages;
    const chosen = Math.min(conversation.chosen[at] ?? 0, children.length - 1);
    const node = conversation.nodes[children[chosen]];
    messages.push(node);
    at = node.id;
  }
}

export function lastId(conversation) {
  return path(conversation).at(-1)?.id ?? kRoot;
}

// Adds a message below `parent` and shows its branch.
export function append(conversation, parent, message, now) {
  const id = `m${conversation.next++}`;
  const node = { ...message, id, parent };
  conversation.nodes[id] = node;
  const siblings = (conversation.children[parent] ??= []);
  siblings.push(id);
  conversation.chosen[parent] = siblings.length - 1;
  conversation.updated = now;
  if (!conversation.title && message.role === "user") conversation.title = titleOf(message.text);
  return node;
}

// Which of how many variants of this message is shown: {index from 0, count}.
export function variants(conversation, id) {
  const siblings = conversation.children[conversation.nodes[id].parent];
  return { index: siblings.indexOf(id), count: siblings.length };
}

export function showVariant(conversation, id, index) {
  const parent = conversation.nodes[id].parent;
  const count = conversation.children[parent].length;
  conversation.chosen[parent] = Math.max(0, Math.min(index, count - 1));
}

// What is sent: the system message and the branch above `parent`, itself included. Earlier reasoning is not:
// the models' own templates drop it. An answer that came to nothing is left out with its failure.
export function requestMessages(conversation, parent) {
  const messages = [];
  for (let node = conversation.nodes[parent]; node; node = conversation.nodes[node.parent])
    if (node.role === "user" || node.text) messages.unshift({ role: node.role, content: node.text });
  const system = conversation.settings.system?.trim();
  return system ? [{ role: "system", content: system }, ...messages] : messages;
}

export function titleOf(text) {
  const line = text.trim().split("\n", 1)[0].replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 59).trimEnd()}…` : line;
}

// A conversation from storage, or null for anything that is none: a text from an older version, or changed by
// hand, must not break the page.
export function checkConversation(value) {
  const object = (x) => x !== null && typeof x === "object" && !Array.isArray(x);
  if (
    !object(value) ||
    typeof value.id !== "string" ||
    !object(value.nodes) ||
    !object(value.children) ||
    !object(value.chosen) ||
    !object(value.settings) ||
    !Number.isInteger(value.next)
  )
    return null;
  if (!Number.isFinite(value.updated) || typeof value.title !== "string") return null;
  for (const [id, node] of Object.entries(value.nodes)) {
    if (!object(node) || node.id !== id || typeof node.text !== "string") return null;
    if (node.role !== "user" && node.role !== "assistant") return null;
    if (!value.children[node.parent]?.includes(id)) return null;
  }
  const seen = new Set();
  for (const ids of Object.values(value.children)) {
    if (!Array.isArray(ids)) return null;
    for (const id of ids) {
      if (!value.nodes[id] || seen.has(id)) return null;
      seen.add(id);
    }
  }
  return reachable(value) === seen.size ? value : null;
}

// How many messages hang on the root: fewer than all when the tree has a ring.
function reachable(conversation) {
  const queue = [kRoot];
  let count = 0;
  while (queue.length > 0) {
    const children = conversation.children[queue.pop()] ?? [];
    count += children.length;
    queue.push(...children);
  }
  return count;
}
