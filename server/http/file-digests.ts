import { LruMap } from '../../base/bounded-map.ts';
import type { FileId } from '../../base/ids.ts';
import type { ContentVersion } from '../../wire/catalog-api.ts';
import { contentVersionCompare } from '../../wire/content-version.ts';
import type { Gateway } from '../routing/gateway.ts';
import { digestHash, digestText } from './digests.ts';
import { Semaphore } from './semaphore.ts';

const READ_BYTES = 1024 * 1024;
/** Files read at the same time; each costs a processor. */
const COMPUTING_MAX = 2;
const REMEMBERED_COUNT = 10_000;

/** Digests of whole files. Each server reads a file once per version. */
export class FileDigests {
  readonly #gateway: Gateway;
  readonly #permits = new Semaphore(COMPUTING_MAX);
  /** By entity tag and algorithm. Equal tags mean equal bytes, so that no entry is ever outdated. */
  readonly #known = new LruMap<string, string>(REMEMBERED_COUNT);

  constructor(gateway: Gateway) {
    this.#gateway = gateway;
  }

  /** Returns the value of the header; null if the contents change while they are read. `name` is that of RFC 9530. */
  async digestOf(
    file: FileId,
    etag: string,
    { sizeBytes, contents }: { readonly sizeBytes: number; readonly contents: ContentVersion },
    name: string,
    snapshot?: number,
  ): Promise<string | null> {
    const key = `${name} ${etag}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    await this.#permits.acquire();
    try {
      const hash = digestHash(name);
      for (let offset = 0; offset < sizeBytes; offset += READ_BYTES) {
        const length = Math.min(READ_BYTES, sizeBytes - offset);
        const { bytes, state } = await this.#gateway.files.read(file, offset, length, { snapshot });
        if (contentVersionCompare(state.contents, contents) !== 0 || bytes.length !== length) return null;
        hash.update(bytes);
      }
      const text = digestText(name, hash.digest());
      this.#known.set(key, text);
      return text;
    } finally {
      this.#permits.release();
    }
  }
}
