// One error type for everything that crosses the public API: an `Error` with a stable `code`.

/** An `Error` with a `code` (the list is in the documentation of gpt2.js). */
export class Gpt2Error extends Error {
  constructor(code, message, options) {
    super(message, options);
    this.name = "Gpt2Error";
    this.code = code;
  }
}

/** Whatever was thrown, as an `Error` with a `code` and a readable message. */
export function coded(thrown) {
  if (thrown instanceof Error && thrown.code && typeof thrown.code === "string") return thrown;
  if (thrown?.name === "AbortError") return aborted(thrown);
  const text = thrown instanceof Error ? thrown.message : typeof thrown === "string" ? thrown : JSON.stringify(thrown);
  return new Gpt2Error("internal", text || "An error without a message.", { cause: thrown });
}

/** The error of a call whose signal was raised. */
export function aborted(cause) {
  return new Gpt2Error("aborted", "The caller cancelled.", { cause });
}

/** Throws `aborted` once the signal was raised. */
export function throwIfAborted(signal) {
  if (signal?.aborted) throw aborted(signal.reason);
}
