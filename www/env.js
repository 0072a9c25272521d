// Settings shared by everything that loads. The names are those of transformers.js where it has them.

export const env = {
  /** The host of hub ids. */
  remoteHost: "https://huggingface.co/",
  /** Where a hub id's files lie on it. */
  remotePathTemplate: "{model}/resolve/{revision}/",
  /** Whether downloads from other sites are kept in this browser. */
  useBrowserCache: true,
  /** Used for every request; replace it to add headers or to test. */
  fetch: (...request) => globalThis.fetch(...request),
  /** How often a request is made again after a fault that may pass, and the pauses before, which double. */
  retry: { times: 4, first_ms: 500, longest_ms: 30_000 },
};
