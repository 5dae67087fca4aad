import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { LiveViewer } from '../../wire/live-api.ts';
import { STREAM_COMMENT, streamEventText } from '../../wire/sse.ts';
import type { LiveHub, Watcher } from '../live/live-hub.ts';
import { fileIdOf, integerOf } from './input.ts';
import { READ } from './roles.ts';

/** An idle stream sends a comment at this interval, in milliseconds. */
const HEARTBEAT_MS = 2_000;
const FILES_MAX = 128;
/** Unread bytes of a watcher; above this its connection ends, and it has to start again. */
const BEHIND_BYTES_MAX = 512 * 1024;

type Parameters = Readonly<Record<string, unknown>>;

/** `GET /v1/events`: the current state of the cluster and its events, as a stream. */
export function eventRoutes(app: FastifyInstance, hub: LiveHub, world: World): void {
  app.get('/v1/events/self', READ, (request) => {
    const { after = '0', files } = request.query as Parameters;
    return hub.ownReport(fileIdsOf(files), integerOf(after, 'after'));
  });

  // A HEAD of a stream without an end would keep its connection for nothing.
  app.get('/v1/events', { ...READ, exposeHeadRoute: false }, (request, reply) => {
    const { watch, kept } = request.query as Parameters;
    const path = watch === undefined ? null : placeOf(watch);
    stream(request, reply, { path, trashAndSnapshotsOf: kept === undefined ? null : volumeOf(kept) });
  });

  function stream(
    request: FastifyRequest,
    reply: FastifyReply,
    watched: Pick<Watcher, 'path' | 'trashAndSnapshotsOf'>,
  ): void {
    const { raw } = reply;
    const queued: string[] = [];
    let isHeadSent = false;
    const write = (text: string): void => {
      if (!isHeadSent) queued.push(text);
      else if (raw.writableLength > BEHIND_BYTES_MAX) raw.destroy();
      else raw.write(text);
    };
    const send = (event: string, value: unknown, id: string | null): void => {
      write(`${id === null ? '' : `id: ${id}\n`}${streamEventText(event, JSON.stringify(value))}`);
    };
    const lastId = request.headers['last-event-id'];
    // Sends the head after the watch was admitted, so that a refusal is a problem document.
    const close = hub.open(
      {
        ...watched,
        resync: (resync, id) => send('resync', resync, id),
        event: (entry, id) => send('happened', entry, id),
        // A client that does not read skips states.
        state: (state) => {
          if (!raw.writableNeedDrain) send('state', state, null);
        },
      },
      typeof lastId === 'string' ? lastId : null,
    );
    reply.hijack();
    // The connection's end is the stream's end: the watcher of a server that dies sees no error.
    raw.useChunkedEncodingByDefault = false;
    raw.writeHead(200, {
      ...headersOf(reply),
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    });
    isHeadSent = true;
    raw.write(streamEventText('you', JSON.stringify(viewerOf(request))));
    for (const text of queued) raw.write(text);
    const heartbeat = world.every(HEARTBEAT_MS, () => {
      if (!raw.writableNeedDrain) raw.write(STREAM_COMMENT);
    });
    raw.on('error', () => raw.destroy());
    raw.on('close', () => {
      heartbeat.cancel();
      close();
    });
  }
}

/** Name and role of the watcher, so that a page shows only what it may do. */
function viewerOf({ principal }: FastifyRequest): LiveViewer {
  if (principal?.kind !== 'client') return { name: null, role: 'admin' };
  const { name, role } = principal.grant;
  return { name, role };
}

/** Headers set by hooks, which `writeHead` would lose. */
function headersOf(reply: FastifyReply): Record<string, string> {
  return Object.fromEntries(Object.entries(reply.getHeaders()).map(([name, value]) => [name, String(value)]));
}

function fileIdsOf(text: unknown): FileId[] {
  if (text === undefined || text === '') return [];
  if (typeof text !== 'string') throw new ServiceError('bad-request', '"files" is given once');
  const files = text.split(',');
  if (files.length > FILES_MAX)
    throw new ServiceError('bad-request', `"files" names ${FILES_MAX} at the most`);
  return files.map(fileIdOf);
}

function placeOf(text: unknown): { volume: string; path: string } {
  const [, volume, path] = (typeof text === 'string' && /^([^:/]+):(\/.*)$/s.exec(text)) || [];
  if (volume === undefined || path === undefined) {
    throw new ServiceError('bad-request', '"watch" names one file, as VOLUME:/path');
  }
  return { volume, path };
}

function volumeOf(text: unknown): string {
  if (typeof text !== 'string' || !/^[^:/@]+$/.test(text))
    throw new ServiceError('bad-request', '"kept" names one volume');
  return text;
}
