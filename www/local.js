// A model on the reader's disk: files that were picked or dropped. They are read where they are; nothing is sent anywhere.

import { Gpt2Error } from "./errors.js";

/** The folder that a list of `File`s is, or null for anything else. */
export function localFolder(source) {
  if (typeof File === "undefined") return null;
  const files = source instanceof File ? [source] : typeof FileList !== "undefined" && source instanceof FileList ? [...source] : source;
  if (!Array.isArray(files) || !files.length || !files.every((file) => file instanceof File)) return null;
  return new LocalFolder(files);
}

/** The files of a drop, those in dropped folders included. To be called while the drop event is handled. */
export async function filesOfDrop(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files];
  const files = [];
  const walk = async (entry) => {
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      files.push(Object.assign(file, { droppedPath: entry.fullPath.replace(/^\//, "") }));
      return;
    }
    const reader = entry.createReader();
    // A folder is told in portions; the last one is empty.
    for (let some; (some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject))).length; ) {
      for (const child of some) await walk(child);
    }
  };
  for (const entry of entries) await walk(entry);
  return files;
}

const pathOf = (file) => file.droppedPath || file.webkitRelativePath || file.name;
const folderOf = (path) => path.slice(0, path.lastIndexOf("/") + 1);

class LocalFolder {
  #files;

  constructor(files) {
    const paths = new Map(files.map((file) => [pathOf(file), file]));
    const configs = [...paths.keys()].filter((path) => path === `${folderOf(path)}config.json`);
    if (!configs.length) {
      throw new Gpt2Error("bad-option", `config.json is not among the chosen files (${some([...paths.keys()])}). Choose all files of the model, or its whole folder.`);
    }
    const depth = (path) => path.split("/").length;
    const least = Math.min(...configs.map(depth));
    const nearest = configs.filter((path) => depth(path) === least);
    if (nearest.length > 1) {
      throw new Gpt2Error("bad-option", `The chosen files hold more than one model (${some(nearest)}). Choose the folder of one of them.`);
    }
    const base = folderOf(nearest[0]);
    this.#files = new Map([...paths].filter(([path]) => folderOf(path) === base).map(([path, file]) => [path.slice(base.length), file]));
    this.name = base.split("/").at(-2) || "files from this computer";
    // Each choice of files is a model of its own, even with the same names.
    this.key = { files };
  }

  async open(file, { optional = false, signal } = {}) {
    const found = this.#files.get(file);
    if (!found) {
      if (optional) return null;
      throw new Gpt2Error("bad-option", `${file} is not among the chosen files (${some([...this.#files.keys()])}). Choose all files of the model, or its whole folder.`);
    }
    return { url: file, length: found.size, chunks: this.#chunks(found, signal) };
  }

  async *#chunks(file, signal) {
    const reader = file.stream().getReader();
    try {
      for (;;) {
        signal?.throwIfAborted();
        const { done, value } = await reader.read().catch((cause) => {
          throw new Gpt2Error("network", `${file.name} could not be read from your disk; it was moved, changed or removed. Choose it again.`, { cause });
        });
        if (done) return;
        yield value;
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }

  async has(file) {
    return this.#files.has(file);
  }
}

function some(names) {
  return names.length > 6 ? `${names.slice(0, 6).join(", ")} and ${names.length - 6} more` : names.join(", ");
}
