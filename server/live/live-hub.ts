import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import { type FileId, isCatalogCell, type ServerId } from '../../base/ids.ts';
import type { World } from '../../base/world.ts';
import type { LivePart, LiveResync, LiveServer, LiveState, ServerEvent } from '../../wire/live-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import { movingOfAll } from '../status/moving-of-all.ts';
import { FileNames } from './file-names.ts';
import { liveFileOf, type ReceivedReport } from './live-file.ts';
import type { OwnLiveReport } from './live-self.ts';
import { Rates } from './rates.ts';
import { VolumeFingerprints } from './volume-fingerprints.ts';

/** How often all servers are asked while there are watchers, and how long each may take. */
const TICK_MS = 250;
const PEER_ANSWER_MS = 900;
/** A server without an answer for this long is unreachable. */
const SILENT_MS = 1_000;
/** Events of all servers kept for later watchers. */
const KEPT_MAX = 512;
/** Two servers' reports of the same within this time are one event. */
const SAME_MS = 3_000;
/** An event waits this long for the name of its file; it is sent again when the name arrives later. */
const NAME_MS = 300;
const WATCHERS_MAX = 64;
const NAME_OF_CATALOG = 'the catalog';

export interface Watcher {
  readonly path: { readonly volume: string; readonly path: string } | null;
  /** The volume whose trash and snapshots are watched; null for none. */
  readonly trashAndSnapshotsOf: string | null;
  resync(resync: LiveResync, lastId: string): void;
  state(state: LiveState): void;
  event(event: ServerEvent, id: string): void;
}

export interface LiveHubParts {
  readonly gateway: Gateway;
  readonly self: OwnLiveReport;
  readonly world: World;
  readonly log: Logger;
  readonly version: string;
  readonly life: string;
  readonly control: NonNullable<LiveResync['control']> | null;
  wallMs(): number;
}

interface Peer {
  report: { readonly part: LivePart; readonly atMs: number } | null;
  /** Incarnation and number of the last event received. */
  life: string;
  after: number;
  isQueried: boolean;
}

/**
 * The state of the cluster for this server's watchers. While there are any, it asks every server four times a second,
 * with one request to each at a time; otherwise it does nothing.
 */
export class LiveHub {
  readonly #parts: LiveHubParts;
  readonly #watchers = new Set<Watcher>();
  readonly #peers = new Map<ServerId, Peer>();
  readonly #rates = new Rates();
  readonly #names: FileNames;
  readonly #fingerprints: VolumeFingerprints;
  #kept: { readonly number: number; readonly event: ServerEvent }[] = [];
  #number = 0;
  #loop: AbortController | null = null;

  constructor(parts: LiveHubParts) {
    this.#parts = parts;
    this.#names = new FileNames(parts.gateway, parts.log, parts.world);
    this.#fingerprints = new VolumeFingerprints(parts.gateway, parts.log, () => parts.world.nowMs());
  }

  /** Starts a watch; the returned function ends it. `lastId` may be from another server. @throws ServiceError `busy` */
  open(watcher: Watcher, lastId: string | null): () => void {
    if (this.#watchers.size >= WATCHERS_MAX) {
      throw new ServiceError(
        'busy',
        `This server has ${WATCHERS_MAX} watchers, the maximum: use another server`,
      );
    }
    this.#watchers.add(watcher);
    const missed = this.#missed(lastId);
    if (missed === null) watcher.resync(this.#resync(), this.#idOf(this.#number));
    else for (const { event, number } of missed) watcher.event(event, this.#idOf(number));
    if (this.#loop === null) {
      this.#loop = new AbortController();
      void this.#run(this.#loop.signal);
    }
    return () => {
      this.#watchers.delete(watcher);
      if (this.#watchers.size === 0) this.close();
    };
  }

  close(): void {
    this.#loop?.abort();
    this.#loop = null;
  }

  /** This server's own report, for a server with watchers. */
  ownReport(files: readonly FileId[], after: number): Promise<LivePart> {
    return this.#parts.self.report(files, after);
  }

  async #run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      for (const server of this.#parts.gateway.services.status.urls.keys()) void this.#query(server);
      await this.#parts.world.sleep(TICK_MS);
      if (!signal.aborted) this.#publish();
    }
  }

  async #query(server: ServerId): Promise<void> {
    const { gateway, self, world, log } = this.#parts;
    const peer = this.#peers.get(server) ?? { report: null, life: '', after: 0, isQueried: false };
    this.#peers.set(server, peer);
    if (peer.isQueried) return;
    peer.isQueried = true;
    const files = this.#watchedFiles();
    try {
      const path = `/v1/events/self?after=${peer.after}&files=${files.join()}`;
      const part =
        server === gateway.services.status.id
          ? await self.report(files, peer.after)
          : parseReport(await gateway.peers.exchange(server, { method: 'GET', path }, PEER_ANSWER_MS));
      const atMs = world.nowMs();
      peer.report = { part, atMs };
      this.#rates.addSample(server, part, atMs);
      this.#takeEvents(peer, part);
    } catch (error) {
      const level = error instanceof ServiceError ? 'trace' : 'warn';
      log[level]({ server, err: error }, 'cannot get the live state of a server');
    } finally {
      peer.isQueried = false;
    }
  }

  /** Adds a server's new events. A restarted one counts from 1: its first answer is dropped. */
  #takeEvents(peer: Peer, part: LivePart): void {
    const isSameProcess = peer.life === part.life;
    if (!isSameProcess && peer.after > 0) {
      peer.after = 0;
      peer.life = part.life;
      return;
    }
    peer.life = part.life;
    peer.after = part.last;
    for (const event of part.happenings) this.#addEvent(event);
  }

  /** Sends an event to the watchers, unless another server has reported the same; with its file's path, once known. */
  #addEvent(event: ServerEvent): void {
    const isSame = ({ event: known }: { readonly event: ServerEvent }): boolean =>
      known.kind === event.kind && known.about === event.about && Math.abs(known.atMs - event.atMs) < SAME_MS;
    if (event.about !== undefined && this.#kept.some(isSame)) return;
    const { file } = event;
    if (file === undefined) {
      this.#sendEvent(event);
    } else if (isCatalogCell(file)) {
      this.#sendEvent({ ...event, path: NAME_OF_CATALOG });
    } else {
      const name = this.#names.nameOf(file as FileId);
      let isSent = false;
      const send = (path: string | null): void => {
        if (isSent && path === null) return;
        isSent = true;
        this.#sendEvent(path === null ? event : { ...event, path });
      };
      void name.then(send);
      this.#parts.world
        .after(NAME_MS, () => {
          if (!isSent) send(null);
        })
        .unref();
    }
  }

  #sendEvent(event: ServerEvent): void {
    this.#kept = this.#kept.filter((kept) => kept.event.id !== event.id);
    const number = ++this.#number;
    this.#kept = [...this.#kept.slice(1 - KEPT_MAX), { number, event }];
    for (const watcher of this.#watchers) watcher.event(event, this.#idOf(number));
  }

  #publish(): void {
    const { gateway, wallMs } = this.#parts;
    const servers = [...gateway.services.status.urls].map(([id, url]) => this.#serverOf(id, url));
    const reports = this.#reports();
    const sinceWriteMs = reports
      .filter(({ part }) => part.sinceWriteMs !== null)
      .map(({ part, ageMs }) => Math.round((part.sinceWriteMs as number) + ageMs))
      .reduce<number | null>((least, one) => Math.min(least ?? one, one), null);
    const moving = movingOfAll(reports.flatMap(({ part }) => part.moving ?? []));
    for (const watcher of this.#watchers) {
      const { path } = watcher;
      const name = path === null ? '' : `${path.volume}:${path.path}`;
      const file = path === null ? null : liveFileOf(name, this.#names.fileAt(path), reports);
      const kept =
        watcher.trashAndSnapshotsOf === null ? null : this.#fingerprints.get(watcher.trashAndSnapshotsOf);
      const state = { atMs: Math.round(wallMs()), servers, sinceWriteMs, file };
      watcher.state({ ...state, ...(moving && { moving }), ...(kept !== null && { kept }) });
    }
  }

  #serverOf(id: ServerId, url: string): LiveServer {
    const report = this.#peers.get(id)?.report ?? null;
    const isSilent = report === null || !this.#isReachable(id, report.atMs);
    const own = this.#peers.get(this.#parts.gateway.services.status.id)?.report?.part;
    const part = report?.part;
    const { known } = this.#parts.gateway.services.status;
    const maintenanceUntilMs = known.maintenanceUntilMs(id);
    const labels = known.labelsOf(id);
    return {
      id,
      url,
      state: isSilent ? 'unreachable' : report.part.state,
      recoveringMs: part?.recoveringMs ?? 0,
      membership: part?.membership ?? known.stateOf(id),
      ...(maintenanceUntilMs === null ? {} : { maintenanceUntilMs }),
      ...(labels.length === 0 ? {} : { labels }),
      uptimeMs: isSilent ? 0 : (part?.uptimeMs ?? 0),
      primaries: isSilent ? 0 : (part?.primaries ?? 0),
      backups: isSilent ? 0 : (part?.backups ?? 0),
      freeBytes: part?.freeBytes ?? 0,
      totalBytes: part?.totalBytes ?? 0,
      diskFull: part?.diskFull ?? false,
      clock: isSilent ? null : (own?.clockOffsets[id] ?? null),
      ...(isSilent ? { writesPerS: 0, readsPerS: 0 } : this.#rates.ratesOf(id)),
    };
  }

  #reports(): ReceivedReport[] {
    const nowMs = this.#parts.world.nowMs();
    return [...this.#peers.values()]
      .filter(({ report }) => report !== null)
      .map(({ report }) => {
        const { part, atMs } = report as NonNullable<Peer['report']>;
        return { part, ageMs: nowMs - atMs, isThere: this.#isReachable(part.server as ServerId, atMs) };
      });
  }

  /** Whether a server is connected and not silent: a dead one loses its connections at once, a paused one does not. */
  #isReachable(server: ServerId, receivedMs: number): boolean {
    const { gateway, world } = this.#parts;
    return gateway.services.status.isConnected(server) && world.nowMs() - receivedMs <= SILENT_MS;
  }

  #watchedFiles(): FileId[] {
    const paths = [...this.#watchers].map(({ path }) => path).filter((path) => path !== null);
    return [...new Set(paths.map((path) => this.#names.fileAt(path)))].filter((file) => file !== null);
  }

  #resync(): LiveResync {
    const { gateway, version, control } = this.#parts;
    const { id, cluster, timing } = gateway.services.status;
    return {
      server: id,
      cluster,
      version,
      timing,
      happenings: this.#kept.map(({ event }) => event),
      ...(control === null ? {} : { control }),
    };
  }

  /** For a client that reconnects: the events after `lastId`; null if this server no longer, or never, had them all. */
  #missed(lastId: string | null): readonly { readonly number: number; readonly event: ServerEvent }[] | null {
    const [, prefix = '', digits = ''] = /^(.*)\.([0-9]{1,15})$/.exec(lastId ?? '') ?? [];
    const number = Number(digits);
    if (digits === '' || `${prefix}.` !== this.#idOf('')) return null;
    const oldest = this.#kept[0]?.number ?? this.#number + 1;
    if (number + 1 < oldest || number > this.#number) return null;
    return this.#kept.filter((kept) => kept.number > number);
  }

  #idOf(number: number | ''): string {
    return `${this.#parts.gateway.services.status.id}.${this.#parts.life}.${number}`;
  }
}

function parseReport({ bytes }: { readonly bytes: Uint8Array }): LivePart {
  return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString('utf8')) as LivePart;
}
