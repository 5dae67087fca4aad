import type { FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import { STREAM_COMMENT, streamEventText } from '../../wire/sse.ts';
import type { Gateway } from '../gateway.ts';
import { integerOf } from './input.ts';

/** How long the catalog's primary is asked to wait for a change; a stream that says nothing else says then that it is there. */
const WAIT_MS = 2_000;
/** After a failure the catalog is asked again; its election takes longer than that. */
const AGAIN_MS = 500;
const WATCHES_MAX = 1_000;

/**
 * `GET` of a directory with `?watch`: server-sent events of what is changed in it. Whoever holds the catalog tells, through any
 * server; the events' ids are the catalog's operations, so that a watch goes on at another server where it ended at one.
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
      throw new ServiceError('busy', `Cannot watch another directory: ${WATCHES_MAX} are being watched`);
    }
    const lastId = [request.headers['last-event-id']].flat()[0];
    const after = lastId === undefined ? null : integerOf(lastId, 'Last-Event-ID');
    const place = { inode: directory.inode, recursive };
    // Asked once before the head goes out, so that a refusal is a problem document.
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
      await this.#tell(raw, place, first);
    } finally {
      this.#active--;
      raw.end();
    }
    return reply;
  }

  async #tell(
    raw: FastifyReply['raw'],
    place: { readonly inode: number; readonly recursive: boolean },
    first: Awaited<ReturnType<Gateway['changes']>>,
  ): Promise<void> {
    const gone = new AbortController();
    raw.on('close', () => gone.abort());
    raw.on('error', () => raw.destroy());
    let after = first.through;
    let answer: typeof first | null = first;
    let isFirst = true;
    while (!gone.signal.aborted) {
      if (answer !== null) {
        if (answer.resync || isFirst)
          raw.write(eventText(answer.resync ? 'resync' : 'ready', {}, answer.through));
        for (const change of answer.changes) raw.write(eventText('change', change, answer.through));
        after = answer.through;
        isFirst = false;
      }
      raw.write(STREAM_COMMENT);
      // A client that does not read is not told: what it misses is kept for a while, or it has to look anew.
      await drained(raw, gone.signal);
      const next = await this.#next({ ...place, after, waitMs: WAIT_MS }, gone.signal);
      if (next === 'gone') {
        raw.write(eventText('gone', {}, after));
        return;
      }
      answer = next;
    }
  }

  /** @returns null where nobody answers for the moment, `gone` where the directory is */
  async #next(
    request: Parameters<Gateway['changes']>[0],
    signal: AbortSignal,
  ): Promise<Awaited<ReturnType<Gateway['changes']>> | null | 'gone'> {
    try {
      return await this.#gateway.changes(request);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (error.code === 'not-found') return 'gone';
      await this.#gateway.world.sleep(AGAIN_MS, { signal }).catch(() => {
        // Nobody watches any more; the loop sees it.
      });
      return null;
    }
  }
}

/** The last of several events of one operation has its id alone: who was told only a part begins before it. */
function eventText(event: string, data: object, through: number): string {
  return `id: ${through}\n${streamEventText(event, JSON.stringify(data))}`;
}

function drained(raw: FastifyReply['raw'], signal: AbortSignal): Promise<void> {
  if (!raw.writableNeedDrain || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    raw.once('drain', resolve);
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
