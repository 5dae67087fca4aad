import type { FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import { type CatalogNumber, isCatalogNumber, ROOT_CATALOG } from '../../base/ids.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { STREAM_COMMENT, streamEventText } from '../../wire/sse.ts';
import { type Gateway, NO_OPERATION } from '../routing/gateway.ts';
import { integerOf } from './input.ts';

/** How long the catalog's primary waits for a change; after that a stream sends a comment. */
const WAIT_MS = 2_000;
/** Pause after a failure. An election of the catalog takes longer. */
const RETRY_MS = 500;
const WATCHES_MAX = 1_000;

/** An operation of one catalog. */
interface Operation {
  readonly catalog: CatalogNumber;
  readonly number: number;
}

/**
 * `GET` of a directory with `?watch`: server-sent events of its changes, from its catalog, through any server. Their
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
    const place = { inode: directory.inode, recursive };
    const last = lastId === undefined ? null : operationOf(lastId);
    // Asked before the head is sent, so that a refusal is a problem document.
    const first = await this.#gateway.changes(
      { ...place, after: last?.number ?? null, waitMs: 0 },
      last ?? {},
    );
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
    let last: Operation = { catalog: first.catalog, number: first.through };
    let answer: typeof first | null = first;
    let isFirst = true;
    while (!ended.signal.aborted) {
      if (answer !== null) {
        const { catalog, changes, through, resync } = answer;
        last = { catalog, number: through };
        // Only the last event has the id: a client that lost the connection before it gets all of them again.
        if (resync || isFirst)
          raw.write(eventText(resync ? 'resync' : 'ready', {}, changes.length === 0 ? idOf(last) : null));
        for (const [index, change] of changes.entries())
          raw.write(eventText('change', change, index === changes.length - 1 ? idOf(last) : null));
        isFirst = false;
      }
      raw.write(STREAM_COMMENT);
      // Does not write to a client that does not read. What it misses is kept for a while; after that it gets `resync`.
      await drained(raw, ended.signal);
      const next = await this.#next(place, last, ended.signal);
      if (next === 'gone') {
        raw.write(eventText('gone', {}, idOf(last)));
        return;
      }
      answer = next;
    }
  }

  /** Returns null if no server answers at the moment, `gone` if the directory was removed. */
  async #next(
    place: { readonly inode: number; readonly recursive: boolean },
    { catalog, number: after }: Operation,
    signal: AbortSignal,
  ): Promise<Awaited<ReturnType<Gateway['changes']>> | null | 'gone'> {
    try {
      return await this.#gateway.changes({ ...place, after, waitMs: WAIT_MS }, { catalog });
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

/** The id of an operation: its number, with that of the catalog unless it is the root's. */
function idOf({ catalog, number }: Operation): string {
  return catalog === ROOT_CATALOG ? `${number}` : `${catalog}-${number}`;
}

function operationOf(id: string): Operation {
  const end = id.indexOf('-');
  const catalog = end === -1 ? ROOT_CATALOG : integerOf(id.slice(0, end), 'Last-Event-ID');
  const number = integerOf(id.slice(end + 1), 'Last-Event-ID');
  // An operation of a number that no catalog has is one of which no catalog knows what came later.
  return isCatalogNumber(catalog) ? { catalog, number } : { catalog: ROOT_CATALOG, number: NO_OPERATION };
}

/** @param id of the operation up to which a client has all events once it has this one; null if more follow */
function eventText(event: string, data: object, id: string | null): string {
  return (id === null ? '' : `id: ${id}\n`) + streamEventText(event, JSON.stringify(data));
}

function drained(raw: FastifyReply['raw'], signal: AbortSignal): Promise<void> {
  if (!raw.writableNeedDrain || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    raw.once('drain', resolve);
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
