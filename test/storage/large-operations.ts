import type { FileOperation } from '../../wire/file-operation.ts';
import { epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { LARGE_OBJECT_BYTES, makeLargeReplica } from './large-replica.ts';
import { DiskFixture } from './stores.ts';

export const LARGE_FILE = fileId(1);
const SNAPSHOT = fileId(9);

export interface LargeReplica {
  readonly fixture: DiskFixture;
  readonly sizeBytes: number;
}

/** Work on all objects of a file, which waits until all of it is done. */
export interface LargeOperation {
  readonly name: string;
  run(replica: LargeReplica): Promise<void>;
}

/** Passes a replica to `work`, of which the first `denseBytes` have objects. */
export async function withLargeReplica(
  sizeBytes: number,
  denseBytes: number,
  work: (replica: LargeReplica) => Promise<void>,
): Promise<void> {
  const fixture = await DiskFixture.make();
  try {
    await makeLargeReplica(fixture, LARGE_FILE, sizeBytes, denseBytes / LARGE_OBJECT_BYTES);
    await work({ fixture, sizeBytes });
  } finally {
    await fixture.dispose();
  }
}

/** Applies the operation, and waits until no slice of it is left. */
async function apply({ fixture: { store } }: LargeReplica, operation: FileOperation): Promise<void> {
  await store.apply(LARGE_FILE, epoch(1), 2, operation, NO_SESSIONS);
  await whenRemoved(store);
}

export async function whenRemoved(store: Pick<DiskFixture['store'], 'removalsPending'>): Promise<void> {
  while (store.removalsPending > 0) await new Promise((resolve) => setImmediate(resolve));
}

export const largeOperations: readonly LargeOperation[] = [
  {
    name: 'truncate to half',
    run: (replica) =>
      apply(replica, {
        kind: 'truncate',
        sizeBytes: LARGE_OBJECT_BYTES * Math.floor(replica.sizeBytes / LARGE_OBJECT_BYTES / 2),
        modifiedNs: 2n,
      }),
  },
  {
    name: 'truncate to 1 byte',
    run: (replica) => apply(replica, { kind: 'truncate', sizeBytes: LARGE_OBJECT_BYTES, modifiedNs: 2n }),
  },
  { name: 'delete', run: (replica) => apply(replica, { kind: 'delete' }) },
  { name: 'remove the replica', run: ({ fixture }) => fixture.store.remove(LARGE_FILE) },
  {
    name: 'first write after a start',
    run: (replica) =>
      apply(replica, {
        kind: 'write',
        offset: replica.sizeBytes,
        bytes: pattern(100, 1),
        modifiedNs: 2n,
      }),
  },
  {
    name: 'preserve for a snapshot',
    run: (replica) => apply(replica, { kind: 'preserve', as: SNAPSHOT, contents: { epoch: 1, seq: 1 } }),
  },
  {
    name: 'digests',
    run: async ({ fixture }) => void (await fixture.store.digests(LARGE_FILE)),
  },
  { name: 'count holes', run: ({ fixture }) => fixture.store.whenHolesCounted(LARGE_FILE) },
  {
    name: 'install an epoch',
    run: ({ fixture }) => fixture.store.install(LARGE_FILE, epoch(2), 1, NO_SESSIONS, null),
  },
  {
    name: 'find what all bytes depend on',
    run: async ({ fixture, sizeBytes }) => void fixture.store.readDependsOn(LARGE_FILE, 0, sizeBytes),
  },
];
