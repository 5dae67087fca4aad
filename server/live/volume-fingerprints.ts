import { crc32 } from 'node:zlib';
import type { Logger } from 'pino';
import { ServiceError } from '../../base/errors.ts';
import type { LiveVolumeLists } from '../../wire/live-api.ts';
import type { Gateway } from '../routing/gateway.ts';
import { LastValues } from './last-values.ts';

/** Volumes watched at one time; more are queried more often. */
const VOLUMES_MAX = 64;
const ANSWER_MS_MAX = 3_000;
/** Files in the trash compared one by one; for the others, their number and size. */
const COMPARED_MAX = 100;

/** Fingerprints of a volume's trash and snapshots, by which the dashboard notices changes. */
export class VolumeFingerprints {
  readonly #gateway: Gateway;
  readonly #values: LastValues<LiveVolumeLists>;

  constructor(gateway: Gateway, log: Logger, nowMs: () => number) {
    this.#gateway = gateway;
    this.#values = new LastValues({
      ...{ max: VOLUMES_MAX, nowMs },
      failed: (error) =>
        log[error instanceof ServiceError ? 'trace' : 'warn'](
          { err: error },
          'cannot query trash and snapshots for the live view',
        ),
    });
  }

  /** Returns the last value received, null if there is none; the catalog is queried again meanwhile. */
  get(volume: string): LiveVolumeLists | null {
    return this.#values.get(volume, () => this.#query(volume));
  }

  async #query(name: string): Promise<LiveVolumeLists> {
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
