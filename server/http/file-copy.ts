import { ServiceError } from '../../base/errors.ts';
import type { Attributes } from '../../wire/catalog-api.ts';
import type { FilePath } from '../requests/path.ts';
import type { Precondition } from './conditional-change.ts';
import type { RequestKey } from './idempotency.ts';
import type { NamedFile, NewFiles } from './new-files.ts';
import type { Removal } from './removal.ts';

/** Attempts while others write the source. */
const COPIES_MAX = 3;

export interface FileCopyOptions {
  /** Of the target. */
  readonly precondition: Precondition;
  readonly removal: Removal;
  readonly mode?: number;
  /** The copy gets the modification time of its source. */
  readonly keepsTime?: boolean;
  readonly key?: RequestKey | null;
}

/** Copies a file at the servers. The copy gets its name once it is complete, and is of one version of the source. */
export async function copyFile(
  files: NewFiles,
  sourceOf: () => Promise<Attributes>,
  to: FilePath,
  { precondition, removal, mode, keepsTime = false, key = null }: FileCopyOptions,
): Promise<NamedFile> {
  for (let attempt = 1; ; attempt++) {
    const source = await sourceOf();
    const file = await files.createStaged(to, precondition, mode === undefined ? {} : { mode });
    try {
      const state = await files.copy(file, source, keepsTime);
      return await files.name(to, { kind: 'staged', state }, precondition, key, removal);
    } catch (error) {
      const isSourceChanging = error instanceof ServiceError && error.code === 'busy';
      if (!isSourceChanging || attempt === COPIES_MAX) throw error;
    }
  }
}
