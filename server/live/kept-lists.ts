import { crc32 } from 'node:zlib';
import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { LiveKept } from '../../wire/live-api.ts';
import type { Gateway } from '../gateway.ts';
import { HeardLast } from './heard-last.ts';

/** Volumes that are watched by some page at a time; more of them are asked for more often. */
const VOLUMES_MAX = 64;
/** How long the catalog may take to answer, in milliseconds. */
const ANSWER_MS_MAX = 3_000;
/** Files in the trash that are compared one by one; of those behind them how many they are, and how large. */
const COMPARED_MAX = 100;

/** What is kept of volumes beside their files, as far as whoever shows it has to know that it has changed. */
export class KeptLists {
  readonly #gateway: Gateway;
  readonly #heard: HeardLast<LiveKept>;

  constructor(gateway: Gateway, log: Logger, nowMs: () => number) {
    this.#gateway = gateway;
    this.#heard = new HeardLast({
      ...{ max: VOLUMES_MAX, nowMs },
      // Whoever only watches ends nothing, whatever it was.
      failed: (error) =>
        log[error instanceof ServiceError ? 'trace' : 'warn'](
          { err: error },
          'the catalog does not say what is kept of a volume',
        ),
    });
  }

  /** @returns what was heard last, while the catalog is asked anew; null where nothing was */
  of(volume: string): LiveKept | null {
    return this.#heard.of(volume, () => this.#ask(volume));
  }

  async #ask(name: string): Promise<LiveKept> {
    const options = { timeoutMs: ANSWER_MS_MAX };
    const page = { kind: 'trash', volume: name, path: '/', countMax: COMPARED_MAX, after: null } as const;
    const [{ volume }, { files }, { snapshots }] = await Promise.all([
      this.#gateway.queryCatalog({ kind: 'volume', name }, options),
      this.#gateway.queryCatalog(page, options),
      this.#gateway.queryCatalog({ kind: 'snapshots', volume: name }, options),
    ]);
    const compared = crc32(
      JSON.stringify(files.map(({ inode, path, removedNs }) => [inode, path, removedNs])),
    );
    return {
      volume: name,
      trash: [volume.trashMs, volume.trashedInodes, volume.trashedBytes, compared].join('-'),
      snapshots: snapshots.map(({ serial }) => serial).join('-'),
    };
  }
}
