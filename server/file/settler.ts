import type { CatalogNumber } from '../../base/ids.ts';
import type { LiveMark } from '../../wire/catalog-api.ts';
import type { FileState } from '../../wire/http-api.ts';
import { CatalogBatches } from './catalog-batches.ts';

interface SettledFile {
  readonly inode: number;
  readonly sizeBytes: number;
  readonly holeBytes?: number;
  readonly modifiedNs: string;
  readonly contents: { readonly epoch: number; readonly seq: number };
  readonly mark: LiveMark;
}

const FILES_MAX = 500;

/** Settles many files with one command of their catalog. */
export class SettleBatches {
  readonly #batches: CatalogBatches<SettledFile, unknown>;

  constructor(catalogOf: (inode: number) => CatalogNumber, send: (files: SettledFile[]) => Promise<unknown>) {
    this.#batches = new CatalogBatches(catalogOf, FILES_MAX, async (files) => {
      await send([...files]);
      return [];
    });
  }

  /** Resolves once the catalog has it; rejects with the command's error. */
  async settle(state: FileState, mark: LiveMark): Promise<void> {
    const { file: inode, sizeBytes, holeBytes = 0, modifiedNs, contents } = state;
    await this.#batches.add({
      ...{ inode, sizeBytes, modifiedNs, contents, mark },
      ...(holeBytes > 0 && { holeBytes }),
    });
  }
}
