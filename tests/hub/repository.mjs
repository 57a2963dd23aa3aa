// A local directory as a repository of the hub: commits, listings and the identity of each file.
//
// Identity is as git and Git LFS have it. Small files: oid = SHA-1 of "blob SIZE\0" + bytes, which is also the ETag.
// Large ones: oid = that SHA-1 of the pointer file, lfs.oid = SHA-256 of the bytes, which is X-Linked-ETag; the CDN has names and
// ETags of its own for them. A commit's id is a SHA-1 over its listing, so equal directories have equal commits in every run.
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';

// The hub's own rule is .gitattributes (weights are LFS whatever their size) and a limit of 10 MB for plain files.
const LFS_NAMES = /\.(safetensors|bin|gguf|pt|onnx)$/;
const PLAIN_BYTES_MAX = 10_000_000;

const sha1 = (...parts) => parts.reduce((hash, part) => hash.update(part), crypto.createHash('sha1')).digest('hex');
const blobId = (bytes) => sha1(`blob ${bytes.length}\0`, bytes);

const pointer = (sha256, size) => `version https://git-lfs.github.com/spec/v1\noid sha256:${sha256}\nsize ${size}\n`;

function sha256File(file) {
  const hash = crypto.createHash('sha256');
  const fd = fs.openSync(file, 'r');
  const buffer = Buffer.allocUnsafe(4 << 20);
  for (let count; (count = fs.readSync(fd, buffer)) > 0; ) hash.update(buffer.subarray(0, count));
  fs.closeSync(fd);
  return hash.digest('hex');
}

// SHA-256 by file, size and time of change: several repositories share a directory.
const digests = new Map();
function digestOf(file, stat) {
  const key = `${file}\n${stat.size}\n${stat.mtimeMs}`;
  if (!digests.has(key)) digests.set(key, sha256File(file));
  return digests.get(key);
}

function entryOf(directory, name) {
  const file = path.join(directory, name);
  const stat = fs.statSync(file);
  if (!LFS_NAMES.test(name) && stat.size <= PLAIN_BYTES_MAX) {
    const oid = blobId(fs.readFileSync(file));
    return { path: name, file, size: stat.size, oid, etag: oid, linked_etag: null, lfs: null };
  }
  const sha256 = digestOf(file, stat);
  const text = pointer(sha256, stat.size);
  const lfs = { oid: sha256, size: stat.size, pointerSize: text.length };
  const etag = crypto.createHash('sha256').update(`stored ${sha256}`).digest('hex');
  return { path: name, file, size: stat.size, oid: blobId(Buffer.from(text)), etag, linked_etag: sha256, lfs };
}

function namesUnder(directory, prefix = '') {
  return fs.readdirSync(path.join(directory, prefix), { withFileTypes: true }).flatMap((found) => {
    const name = prefix + found.name;
    if (found.name.startsWith('.git')) return [];
    return fs.statSync(path.join(directory, name)).isDirectory() ? namesUnder(directory, `${name}/`) : [name];
  });
}

// {sha, entries: Map path → entry, tree: [what the listing says]}
function snapshot(directory, { lies = {}, tree_extra = [], tree_first = [] }) {
  const entries = new Map();
  const served = (name) => {  // the headers of the file say what the listing says
    const entry = entryOf(directory, name);
    if (lies[name]?.lfs) entry.linked_etag = lies[name].lfs.oid;
    return entry;
  };
  const folders = new Map();
  for (const name of namesUnder(directory).sort()) {
    entries.set(name, served(name));
    for (let at = name.indexOf('/'); at > 0; at = name.indexOf('/', at + 1)) {
      const folder = name.slice(0, at);
      folders.set(folder, { type: 'directory', oid: sha1(`tree ${folder}`), size: 0, path: folder });
    }
  }
  const files = [...entries.values()].map(({ path: name, size, oid, lfs }) => {
    return { type: 'file', oid, size, ...(lfs && { lfs }), path: name, ...lies[name] };
  });
  const tree = [...tree_first, ...[...folders.values(), ...files].sort((a, b) => (a.path < b.path ? -1 : 1)), ...tree_extra];
  return { sha: sha1(JSON.stringify(tree)), entries, tree };
}

// description: {id, dir, gated: false | "auto" | "manual", private, moved_to, allowed: [tokens let in],
// sha: what is said instead of the true commit, info: fields laid over the model info, lies: path → fields laid over its entry
// of the listing, tree_first and tree_extra: entries put before and behind the true listing, more_refs: more names of this commit}
export class Repository {
  constructor(description) {
    this.commits = new Map();
    this.refs = new Map();
    this.update(description);
  }

  // A push to main: the old commits stay to be had.
  update(description) {
    Object.assign(this, { gated: false, private: false, allowed: [], info: {} }, description);
    const commit = snapshot(this.dir, description);
    if (description.sha !== undefined) commit.sha = description.sha;
    this.commits.set(commit.sha, commit);
    for (const ref of description.more_refs ?? []) this.refs.set(ref, commit.sha);
    this.refs.set('main', commit.sha).set('HEAD', commit.sha).set('refs/heads/main', commit.sha);
    this.modified = new Date(1_700_000_000_000 + 1000 * this.commits.size).toISOString();
  }

  commit(revision) {
    return this.commits.get(this.refs.get(revision) ?? revision);
  }

  modelInfo(commit, withBlobs) {
    const siblings = commit.tree.filter((entry) => entry.type === 'file').map((entry) => {
      const blob = { size: entry.size, blobId: entry.oid };
      if (entry.lfs) blob.lfs = { sha256: entry.lfs.oid, size: entry.lfs.size, pointerSize: entry.lfs.pointerSize };
      return { rfilename: entry.path, ...(withBlobs && blob) };
    });
    return {
      _id: sha1(this.id).slice(0, 24), id: this.id, modelId: this.id, author: this.id.split('/')[0], sha: commit.sha,
      private: this.private, gated: this.gated, disabled: false, downloads: 7, likes: 3, tags: ['safetensors'],
      pipeline_tag: 'text-generation', library_name: 'transformers', lastModified: this.modified,
      createdAt: this.modified, siblings, ...this.info,
    };
  }
}
