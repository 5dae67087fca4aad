/**
 * What the driver must remember of volumes and snapshots that it makes, in a volume of its own. A record is made before
 * what it describes and removed after it, so that repeated calls complete what others began, and so that volumes of
 * other users are never taken for the driver's. Each is a symbolic link whose target is JSON: the catalog makes and
 * lists those atomically, and needs no contents of files.
 */
import { ServiceError } from '../../base/errors.ts';
import type { ClusterClient } from '../cluster/cluster-client.ts';
import { nullIfNotFound } from './call-failure.ts';
import type { ContentSource } from './messages.ts';
import type { Settings } from './parameters.ts';

export interface VolumeRecord {
  readonly kind: 'volume';
  readonly state: 'creating' | 'ready' | 'deleting';
  /** As the orchestrator names it. */
  readonly name: string;
  readonly settings: Settings;
  /** Of its replicas; empty: any. */
  readonly zones: readonly string[];
  readonly quotaBytes: number;
  readonly source: ContentSource | null;
  /** The node whose pod it was made for; null if it has its own life. */
  readonly node: string | null;
}

export interface SnapshotRecord {
  readonly kind: 'snapshot';
  readonly state: 'creating' | 'ready' | 'deleting';
  readonly name: string;
  readonly volume: string;
  /** A new volume needs at least this for its contents. */
  readonly sizeBytes: number;
  /** When the snapshot was made; `0` until then. */
  readonly madeNs: string;
}

type RecordOf<Kind> = Extract<VolumeRecord | SnapshotRecord, { readonly kind: Kind }>;
type Kind = 'volume' | 'snapshot';

export interface Listed<Record> {
  readonly id: string;
  readonly record: Record;
}

export interface Page<Record> {
  readonly all: readonly Listed<Record>[];
  readonly more: boolean;
}

const FOLDERS: Readonly<Record<Kind, string>> = { volume: 'volumes', snapshot: 'snapshots' };
const DRAFTS = 'drafts';
const LIST_COUNT_MAX = 1_000;
const REPLICAS_MAX = 3;

export class Records {
  readonly #client: ClusterClient;
  readonly #volume: string;

  /** @param volume that has the records */
  constructor(client: ClusterClient, volume: string) {
    this.#client = client;
    this.#volume = volume;
  }

  async get<Of extends Kind>(kind: Of, id: string): Promise<RecordOf<Of> | null> {
    const path = `/${FOLDERS[kind]}/${id}`;
    const found = await this.#client.resolve(this.#volume, path, { follow: false }).catch(nullIfNotFound);
    return found === null ? null : parse<RecordOf<Of>>(found.target);
  }

  /** Adds a record. @returns it, or the one that was there before */
  async add<Of extends Kind>(id: string, record: RecordOf<Of>): Promise<RecordOf<Of>> {
    try {
      await this.#link(`/${FOLDERS[record.kind]}/${id}`, record);
      return record;
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (error.code === 'not-found') {
        await this.#prepare();
        return this.add(id, record);
      }
      const before = error.code === 'exists' ? await this.get<Of>(record.kind as Of, id) : null;
      if (before === null) throw error;
      return before;
    }
  }

  /** Replaces a record at once. */
  async put<Of extends Kind>(id: string, record: RecordOf<Of>): Promise<RecordOf<Of>> {
    const folder = FOLDERS[record.kind];
    const draft = `/${DRAFTS}/${folder}-${id}`;
    // Of a replacement that was interrupted.
    await this.#unlink(draft);
    await this.#link(draft, record);
    await this.#client.command({
      kind: 'rename',
      from: { volume: this.#volume, path: draft },
      to: { volume: this.#volume, path: `/${folder}/${id}` },
      mode: 'replace',
    });
    return record;
  }

  async remove(kind: Kind, id: string): Promise<void> {
    await this.#unlink(`/${FOLDERS[kind]}/${id}`);
  }

  /** Lists records in the order of their ids. @param after id of the last one that the caller has; empty: none */
  async *list<Of extends Kind>(
    kind: Of,
    after: string,
  ): AsyncGenerator<Listed<RecordOf<Of>>, void, undefined> {
    const folder = await this.#client.resolve(this.#volume, `/${FOLDERS[kind]}`).catch(nullIfNotFound);
    if (folder === null) return;
    for (let last = after; ; ) {
      const { entries, more } = await this.#client.query({
        kind: 'list',
        inode: folder.inode,
        after: last,
        countMax: LIST_COUNT_MAX,
      });
      for (const { name, attributes } of entries) yield { id: name, record: parse(attributes.target) };
      const end = entries.at(-1);
      if (!more || end === undefined) return;
      last = end.name;
    }
  }

  /** Lists up to `countMax` of the records that are ready and `isWanted`. */
  async page<Of extends Kind>(
    kind: Of,
    after: string,
    countMax: number,
    isWanted: (record: RecordOf<Of>) => boolean,
  ): Promise<Page<RecordOf<Of>>> {
    const all: Listed<RecordOf<Of>>[] = [];
    for await (const one of this.list(kind, after)) {
      if (one.record.state !== 'ready' || !isWanted(one.record)) continue;
      if (all.length === countMax) return { all, more: true };
      all.push(one);
    }
    return { all, more: false };
  }

  async #link(path: string, record: VolumeRecord | SnapshotRecord): Promise<void> {
    const place = { volume: this.#volume, path };
    await this.#client.command({ kind: 'symlink', place, target: JSON.stringify(record), uid: 0, gid: 0 });
  }

  async #unlink(path: string): Promise<void> {
    const place = { volume: this.#volume, path };
    await this.#client.command({ kind: 'unlink', place, trash: false }).catch(nullIfNotFound);
  }

  /** Makes the volume of the records, and its directories. */
  async #prepare(): Promise<void> {
    const { servers } = await this.#client.query({ kind: 'servers', counts: false });
    const present = servers.filter(({ state }) => state === 'in').length;
    const replicas = Math.max(1, Math.min(REPLICAS_MAX, present));
    const volume = { kind: 'volume-create', name: this.#volume, replicas, objectBytes: 4_096 } as const;
    // Links have no contents: the number of replicas matters for none of them.
    await this.#client.command({ ...volume, mode: 0o700 }).catch(ignoreExists);
    for (const name of [...Object.values(FOLDERS), DRAFTS]) {
      const place = { volume: this.#volume, path: `/${name}` };
      await this.#client
        .command({ kind: 'make-directory', place, mode: 0o700, uid: 0, gid: 0 })
        .catch(ignoreExists);
    }
  }
}

export function ignoreExists(error: unknown): void {
  if (!(error instanceof ServiceError) || error.code !== 'exists') throw error;
}

/** Only the driver writes records. @throws ServiceError if another program has put something else there */
function parse<Record>(target: string): Record {
  try {
    return JSON.parse(target) as Record;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new ServiceError(
      'integrity',
      'A record of the CSI driver is not JSON: its volume is for the driver alone',
    );
  }
}
