import { contentVersionCompare } from '../../wire/content-version.ts';
import type { BackendFile, BackendLocks, ContentVersion, FileState } from '../backend.ts';
import { FLUSH_ALL } from './pending-ops.ts';
import type { Unlinks } from './unlinks.ts';

type Changed = FileState | { readonly state: FileState; readonly contents?: undefined };

/** What the mount learns of a file's contents by changing them. */
export interface ContentsEvents {
  /** They are about to be changed, or were. */
  written(): void;
  /** The catalog knows these as the file's contents. @param writtenAt sequence number from after they were written last */
  settled(contents: ContentVersion, writtenAt: number): void;
  /** @returns a sequence number */
  request(): number;
}

/**
 * A file whose contents find the quota that asynchronous unlinks leave, and whose locks are taken and given back when these are at the cluster: the
 * next holder of a lock finds no name that was gone before.
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
      // A second time: what was asked meanwhile may be older.
      written();
      const { contents }: FileState = 'state' in result ? result.state : result;
      // Answers may come in another order than the changes had.
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
    holder: (lock) => locks.holder(lock),
    isLost: (kind, owner) => locks.isLost(kind, owner),
    async close() {
      await unlinks.flush(FLUSH_ALL);
      await locks.close();
    },
  };
}
