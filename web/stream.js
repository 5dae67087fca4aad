/** Server-sent events over fetch, since an EventSource sends no token. Another server continues after the last id. */

import { problemOf } from './cluster.js';

const SILENT_MS = 4_000;
const PAUSE_MS = 400;
/** After a refusal the page retries seldom: access needs another token, or other rights. */
const REFUSED_PAUSE_MS = 10_000;
/** A server that answers late must not keep the page from asking another one. */
const ANSWER_MS = 1_500;

/** @yields events of one response, until it ends or is silent */
async function* eventsOf(response, abort) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const silent = setTimeout(() => abort.abort(), SILENT_MS);
    const { done, value } = await reader.read().finally(() => clearTimeout(silent));
    if (done) return;
    const blocks = (rest + value).split('\n\n');
    rest = blocks.pop() ?? '';
    for (const block of blocks) {
      const fields = Object.fromEntries(
        block
          .split('\n')
          .filter((line) => !line.startsWith(':'))
          .map((line) => {
            const [, name, text] = /^([^:]*):? ?(.*)$/s.exec(line);
            return [name, text];
          }),
      );
      if (fields.data !== undefined)
        yield { event: fields.event ?? 'message', data: JSON.parse(fields.data), id: fields.id };
    }
  }
}

/**
 * Listens to one stream without end, from one of several servers.
 * @param {object} options
 * @param {() => readonly string[]} options.bases servers with the stream, the preferred one first
 * @param {(base: string) => string} options.path
 * @param {() => Record<string, string>} options.headers
 * @param {(event: { event: string, data: any }, base: string) => void} options.onEvent
 * @param {(base: string | null, problem: Error | null) => void} options.onServer the server in use; null: none
 */
export function listen({ bases, path, headers, onEvent, onServer }) {
  let lastId = '';
  let abort = new AbortController();
  let wake = () => {};
  let closed = false;
  /** The caller wants another path or token: reconnect to the same server. */
  let restarted = false;

  const pause = (ms) =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });

  async function listenTo(base) {
    abort = new AbortController();
    const late = setTimeout(() => abort.abort(), ANSWER_MS);
    const more = lastId === '' ? {} : { 'last-event-id': lastId };
    const response = await answerOf(base, more).finally(() => clearTimeout(late));
    onServer(base, null);
    for await (const event of eventsOf(response, abort)) {
      if (event.id !== undefined) lastId = event.id;
      onEvent(event, base);
    }
  }

  /** @throws {import('./cluster.js').ProblemError} the server's error, which is read completely before */
  async function answerOf(base, more) {
    const response = await fetch(`${base}${path(base)}`, {
      headers: { ...headers(), ...more },
      signal: abort.signal,
      cache: 'no-store',
    });
    if (!response.ok) throw await problemOf(response);
    return response;
  }

  async function run() {
    let current = bases()[0];
    while (!closed) {
      let problem = null;
      try {
        await listenTo(current);
      } catch (error) {
        problem = error;
      }
      if (closed) return;
      if (restarted) {
        restarted = false;
        continue;
      }
      const all = bases();
      const next = all[(all.indexOf(current) + 1) % all.length] ?? all[0];
      onServer(null, problem);
      // Every server is tried at once; there is a pause only after all of them failed.
      if (all.indexOf(next) <= all.indexOf(current))
        await pause(problem?.isRefusal ? REFUSED_PAUSE_MS : PAUSE_MS);
      // A caller that restarts expects an answer of the same server, perhaps with another token.
      restarted = false;
      current = next;
    }
  }

  void run();
  return {
    restart() {
      restarted = true;
      abort.abort();
      wake();
    },
    close() {
      closed = true;
      abort.abort();
      wake();
    },
  };
}
