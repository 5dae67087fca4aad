import { crc32 } from 'node:zlib';
import { LRUCache } from 'lru-cache';
import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { LiveKept } from '../../wire/live-api.ts';
import type { Gateway } from '../gateway.ts';

/** Volumes that are watched by some page at a time; more of them are asked for more often. */
const VOLUMES_MAX = 64;
/** How long is told what was heard, and how long the catalog may take to answer, in milliseconds. */
const HEARD_MS = 1_000;
const ANSWER_MS_MAX = 3_000;
/** Files in the trash that are compared one by one; of those behind them how many they are, and how large. */
const COMPARED_MAX = 100;

interface Watched {
  kept: LiveKept | null;
  atMs: number;
  asking: boolean;
}

/** What is kept of volumes beside their files, as far as whoever shows it has to know that it has changed. */
export class KeptLists {
  readonly #gateway: Gateway;
  readonly #log: Logger;
  readonly #nowMs: () => number;
  readonly #watched = new LRUCache<string, Watched>({ max: VOLUMES_MAX });

  constructor(gateway: Gateway, log: Logger, nowMs: () => number) {
    this.#gateway = gateway;
    this.#log = log;
    this.#nowMs = nowMs;
  }

  /** @returns what was heard last, while the catalog is asked anew; null where nothing was */
  of(volume: string): LiveKept | null {
    const watched = this.#watched.get(volume) ?? { kept: null, atMs: -Infinity, asking: false };
    this.#watched.set(volume, watched);
    if (!watched.asking && this.#nowMs() - watched.atMs >= HEARD_MS) void this.#ask(volume, watched);
    return watched.kept;
  }

  async #ask(name: string, watched: Watched): Promise<void> {
    watched.asking = true;
    const options = { timeoutMs: ANSWER_MS_MAX };
    try {
      const page = { kind: 'trash', volume: name, path: '/', countMax: COMPARED_MAX, after: null } as const;
      const [{ volume }, { files }, { snapshots }] = await Promise.all([
        this.#gateway.queryCatalog({ kind: 'volume', name }, options),
        this.#gateway.queryCatalog(page, options),
        this.#gateway.queryCatalog({ kind: 'snapshots', volume: name }, options),
      ]);
      const compared = crc32(
        JSON.stringify(files.map(({ inode, path, removedNs }) => [inode, path, removedNs])),
      );
      watched.kept = {
        volume: name,
        trash: [volume.trashMs, volume.trashedInodes, volume.trashedBytes, compared].join('-'),
        snapshots: snapshots.map(({ serial }) => serial).join('-'),
      };
    } catch (error) {
      // Whoever only watches ends nothing, whatever it was.
      this.#log[error instanceof ServiceError ? 'trace' : 'warn'](
        { volume: name, err: error },
        'the catalog does not say what is kept of a volume',
      );
    } finally {
      watched.asking = false;
      watched.atMs = this.#nowMs();
    }
  }
}
