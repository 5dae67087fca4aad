import type { BackendFile, BackendLocks } from './backend.ts';
import type { Removals } from './removals.ts';

/**
 * A file whose contents find the quota that removals behind leave, and whose locks are taken and given back when these are at the cluster: whoever gets
 * one next finds no name that was gone before.
 */
export function afterRemovals(file: BackendFile, removals: Removals): BackendFile {
  return {
    ...file,
    write: (...what) => removals.withQuota(() => file.write(...what)),
    writeParts: (parts) => removals.withQuota(() => file.writeParts(parts)),
    append: (bytes) => removals.withQuota(() => file.append(bytes)),
    truncate: (sizeBytes) => removals.withQuota(() => file.truncate(sizeBytes)),
    copyFrom: (...range) => removals.withQuota(() => file.copyFrom(...range)),
    openLocks: (lost) => locksAfter(file.openLocks(lost), removals),
  };
}

function locksAfter(locks: BackendLocks, removals: Removals): BackendLocks {
  return {
    async lock(...how) {
      await removals.gone();
      await locks.lock(...how);
    },
    async unlock(range) {
      await removals.gone();
      await locks.unlock(range);
    },
    holder: (lock) => locks.holder(lock),
    isLost: (kind, owner) => locks.isLost(kind, owner),
    async close() {
      await removals.gone();
      await locks.close();
    },
  };
}
