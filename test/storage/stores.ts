import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { FileId, ServerId } from '../../base/ids.ts';
import { PAGE_BYTES, pageMemory } from '../../base/page-memory.ts';
import { DataFolder, type FolderOptions } from '../../server/storage/data-folder.ts';
import type { DirectWritesOptions } from '../../server/storage/direct-writes.ts';
import { DiskStore, type DiskStoreOptions, type ObjectRepair } from '../../server/storage/disk-store.ts';
import { errorCode } from '../../server/storage/failures.ts';
import type { ObjectEntry } from '../../server/storage/object-entry.ts';
import { systemWorld } from '../../world/system-world.ts';
import type { StoreFixture } from '../conformance/store.ts';

export const FOLDER: FolderOptions = { world: systemWorld, cluster: 'test', server: 'a' as ServerId };

export function temporaryFolder(): string {
  return fs.mkdtempSync(path.join(os.tmpdir(), 'leasehold-store-'));
}

/** Every write with a whole page in it is written past the page cache. */
export const ALL_DIRECT = { cachedBytes: 0, bytesMin: 1 } as const satisfies DirectWritesOptions;

/**
 * Whether the file system of temporary folders can be written past the page cache: those in memory, for example,
 * cannot.
 */
export function knowsDirectWrites(): boolean {
  const folder = temporaryFolder();
  try {
    const flags = fs.constants.O_CREAT | fs.constants.O_WRONLY | fs.constants.O_DIRECT;
    const fd = fs.openSync(path.join(folder, 'direct'), flags);
    fs.writeSync(fd, pageMemory(PAGE_BYTES));
    fs.closeSync(fd);
    return true;
  } catch (error) {
    if (errorCode(error) === 'EINVAL') return false;
    throw error;
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

/** A disk store in a new folder, with what a test needs to close it, inspect it and open it again. */
export class DiskFixture implements StoreFixture {
  readonly path: string;
  readonly #options: DiskStoreOptions;
  readonly #others: { mender: ObjectRepair };
  folder: DataFolder;
  store: DiskStore;

  private constructor(
    folderPath: string,
    folder: DataFolder,
    store: DiskStore,
    options: DiskStoreOptions,
    others: { mender: ObjectRepair },
  ) {
    this.path = folderPath;
    this.folder = folder;
    this.store = store;
    this.#options = options;
    this.#others = others;
  }

  /** What other servers have of a damaged object, from now on. */
  set mender(mender: ObjectRepair) {
    this.#others.mender = mender;
  }

  static async make(
    options: DiskStoreOptions = {},
    folderPath = temporaryFolder(),
    folderOptions = FOLDER,
  ): Promise<DiskFixture> {
    const folder = DataFolder.open(folderPath, folderOptions);
    const others: { mender: ObjectRepair } = { mender: async () => null };
    const mended = {
      ...options,
      objectRepair: (file: FileId, entry: ObjectEntry) => others.mender(file, entry),
    };
    return new DiskFixture(folderPath, folder, await DiskStore.open(folder, mended), mended, others);
  }

  readonly close = async (): Promise<void> => {
    await this.store.close();
    this.folder.close();
  };

  readonly reopen = async (): Promise<void> => {
    await this.close();
    await this.open();
  };

  async open(folderOptions: FolderOptions = FOLDER): Promise<void> {
    this.folder = DataFolder.open(this.path, folderOptions);
    this.store = await DiskStore.open(this.folder, this.#options);
  }

  async dispose(): Promise<void> {
    await this.close();
    fs.rmSync(this.path, { recursive: true, force: true });
  }
}
