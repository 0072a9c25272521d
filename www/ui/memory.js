// Small things remembered between visits. Where storage is forbidden, nothing is remembered and nothing fails.

const KEY = "inside-generate:";

export function recall(name) {
  try {
    return localStorage.getItem(KEY + name);
  } catch {
    return null;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(KEY + name, value);
  } catch {
    // Private mode or a sandboxed frame.
  }
}
