import fs from 'node:fs';
import path from 'node:path';
import type { Prng } from '../../base/prng.ts';
import { DataFolder } from '../../server/storage/data-folder.ts';
import { DiskStore, type DiskStoreOptions } from '../../server/storage/disk-store.ts';
import { LossyDisk } from './lossy-disk.ts';
import { FOLDER, temporaryFolder } from './stores.ts';

/** A disk store on a disk that knows what was synced. Copies of its folder are made while it continues to run. */
export interface LossyStore {
  readonly disk: LossyDisk;
  readonly folder: DataFolder;
  readonly store: DiskStore;
  /** @returns the path of a copy as a loss of power at this moment may leave it */
  copyAfterLoss(prng: Prng): string;
  /** @returns the path of a copy as a process leaves it that is killed at this moment */
  copyAfterKill(): string;
}

/** Passes such a store, in a new folder, to `work`. */
export async function withLossyStore(
  work: (lossy: LossyStore) => Promise<void>,
  options: DiskStoreOptions = {},
): Promise<void> {
  const parent = temporaryFolder();
  const folderPath = path.join(parent, 'data');
  const disk = new LossyDisk();
  const folder = DataFolder.open(folderPath, { ...FOLDER, bootId: 'one' });
  const store = await DiskStore.open(folder, { ...options, fileOps: disk });
  let copies = 0;
  const newCopy = (): string => path.join(parent, `copy-${++copies}`);
  try {
    await work({
      ...{ disk, folder, store },
      copyAfterLoss(prng) {
        const copy = newCopy();
        disk.copyAfterLoss(folderPath, copy, prng);
        return copy;
      },
      copyAfterKill() {
        const copy = newCopy();
        disk.copyAfterKill(folderPath, copy);
        return copy;
      },
    });
  } finally {
    await store.close();
    folder.close();
    fs.rmSync(parent, { recursive: true, force: true });
  }
}

/**
 * Opens the store of a folder, and closes it again.
 * @param bootId `two` if the machine has lost its power since the first, `three` if it has again
 */
export async function lookInto(
  folderPath: string,
  bootId: 'one' | 'two' | 'three',
  look: (left: DiskStore, folder: DataFolder) => Promise<void>,
  options: DiskStoreOptions = {},
): Promise<void> {
  const folder = DataFolder.open(folderPath, { ...FOLDER, bootId });
  const left = await DiskStore.open(folder, options);
  try {
    await look(left, folder);
  } finally {
    await left.close();
    folder.close();
  }
}
