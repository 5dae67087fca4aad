import { contentVersionCompare } from '../../wire/content-version.ts';
import type { BackendFile, BackendLocks, ContentVersion, FileState } from '../backend.ts';
import { FLUSH_ALL } from './pending-ops.ts';
import type { Unlinks } from './unlinks.ts';

type Changed = FileState | { readonly state: FileState; readonly contents?: undefined };

export interface ContentsEvents {
  written(): void;
  /** Called when the catalog has this version. @param writtenAt sequence number from after the last write */
  settled(contents: ContentVersion, writtenAt: number): void;
  request(): number;
}

/**
 * Wraps a file: reports its changes, and repeats one that is over quota after pending unlinks, which may free some.
 * Locks are taken and released after pending unlinks, so that their next holder finds no name that was removed before.
 */
export function afterUnlinks(
  file: BackendFile,
  unlinks: Unlinks,
  { written, settled, request }: ContentsEvents,
): BackendFile {
  let last: { readonly contents: ContentVersion; readonly writtenAt: number } | null = null;
  const changing = async <Result extends Changed>(change: () => Promise<Result>): Promise<Result> => {
    written();
    try {
      const result = await unlinks.withQuota(change);
      // Again, to void answers that were requested meanwhile.
      written();
      const { contents }: FileState = 'state' in result ? result.state : result;
      // Answers may arrive in another order than the changes.
      const newest =
        last !== null && contentVersionCompare(last.contents, contents) > 0 ? last.contents : contents;
      last = { contents: newest, writtenAt: request() };
      return result;
    } catch (error) {
      written();
      last = null;
      throw error;
    }
  };
  return {
    ...file,
    write: (...what) => changing(() => file.write(...what)),
    writeParts: (parts) => changing(() => file.writeParts(parts)),
    append: (bytes) => changing(() => file.append(bytes)),
    truncate: (sizeBytes) => changing(() => file.truncate(sizeBytes)),
    punch: (...range) => changing(() => file.punch(...range)),
    copyFrom: (...range) => changing(() => file.copyFrom(...range)),
    async settle() {
      await file.settle();
      if (last !== null) settled(last.contents, last.writtenAt);
    },
    openLocks: (lost) => locksAfter(file.openLocks(lost), unlinks),
  };
}

function locksAfter(locks: BackendLocks, unlinks: Unlinks): BackendLocks {
  return {
    async lock(...how) {
      await unlinks.flush(FLUSH_ALL);
      await locks.lock(...how);
    },
    async unlock(range) {
      await unlinks.flush(FLUSH_ALL);
      await locks.unlock(range);
    },
    findConflict: (lock) => locks.findConflict(lock),
    isLost: (kind, owner) => locks.isLost(kind, owner),
    async close() {
      await unlinks.flush(FLUSH_ALL);
      await locks.close();
    },
  };
}
