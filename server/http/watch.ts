import type { FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { STREAM_COMMENT, streamEventText } from '../../wire/sse.ts';
import type { Gateway } from '../routing/gateway.ts';
import { integerOf } from './input.ts';

/** How long the catalog's primary waits for a change; after that a stream sends a comment. */
const WAIT_MS = 2_000;
/** Pause after a failure. An election of the catalog takes longer. */
const RETRY_MS = 500;
const WATCHES_MAX = 1_000;

/**
 * `GET` of a directory with `?watch`: server-sent events of its changes, from the catalog, through any server. Their
 * ids are operations of the catalog, so that a watch continues at another server.
 */
export class Watches {
  readonly #gateway: Gateway;
  #active = 0;

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
  }

  async watch(
    request: FastifyRequest,
    reply: FastifyReply,
    directory: Attributes,
    recursive: boolean,
  ): Promise<FastifyReply> {
    if (this.#active >= WATCHES_MAX) {
      throw new ServiceError(
        'busy',
        `Too many watches: ${WATCHES_MAX} at this server, the maximum; use another server`,
      );
    }
    const lastId = [request.headers['last-event-id']].flat()[0];
    const after = lastId === undefined ? null : integerOf(lastId, 'Last-Event-ID');
    const place = { inode: directory.inode, recursive };
    // Asked before the head is sent, so that a refusal is a problem document.
    const first = await this.#gateway.changes({ ...place, after, waitMs: 0 });
    reply.hijack();
    const { raw } = reply;
    raw.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    });
    this.#active++;
    try {
      await this.#stream(raw, place, first);
    } finally {
      this.#active--;
      raw.end();
    }
    return reply;
  }

  async #stream(
    raw: FastifyReply['raw'],
    place: { readonly inode: number; readonly recursive: boolean },
    first: Awaited<ReturnType<Gateway['changes']>>,
  ): Promise<void> {
    const ended = new AbortController();
    raw.on('close', () => ended.abort());
    raw.on('error', () => raw.destroy());
    let after = first.through;
    let answer: typeof first | null = first;
    let isFirst = true;
    while (!ended.signal.aborted) {
      if (answer !== null) {
        const { changes, through, resync } = answer;
        // Only the last event has the id: a client that lost the connection before it gets all of them again.
        if (resync || isFirst)
          raw.write(eventText(resync ? 'resync' : 'ready', {}, changes.length === 0 ? through : null));
        for (const [index, change] of changes.entries())
          raw.write(eventText('change', change, index === changes.length - 1 ? through : null));
        after = answer.through;
        isFirst = false;
      }
      raw.write(STREAM_COMMENT);
      // Does not write to a client that does not read. What it misses is kept for a while; after that it gets `resync`.
      await drained(raw, ended.signal);
      const next = await this.#next({ ...place, after, waitMs: WAIT_MS }, ended.signal);
      if (next === 'gone') {
        raw.write(eventText('gone', {}, after));
        return;
      }
      answer = next;
    }
  }

  /** Returns null if no server answers at the moment, `gone` if the directory was removed. */
  async #next(
    request: Parameters<Gateway['changes']>[0],
    signal: AbortSignal,
  ): Promise<Awaited<ReturnType<Gateway['changes']>> | null | 'gone'> {
    try {
      return await this.#gateway.changes(request);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (error.code === 'not-found') return 'gone';
      await this.#gateway.world.sleep(RETRY_MS, { signal }).catch(() => {
        // Aborted: the condition of the loop ends the watch.
      });
      return null;
    }
  }
}

/** @param through the operation up to which a client has all events once it has this one; null if more follow */
function eventText(event: string, data: object, through: number | null): string {
  const id = through === null ? '' : `id: ${through}\n`;
  return id + streamEventText(event, JSON.stringify(data));
}

function drained(raw: FastifyReply['raw'], signal: AbortSignal): Promise<void> {
  if (!raw.writableNeedDrain || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    raw.once('drain', resolve);
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
