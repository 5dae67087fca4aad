import type { FileId } from '../../base/ids.ts';
import { crc32 } from '../../platform/crc32.ts';
import type { ObjectEntry } from '../../server/storage/object-entry.ts';
import type { FileOperation } from '../../wire/file-operation.ts';
import { describeFile } from '../conformance/description.ts';
import { begin, epoch, fileId, NO_SESSIONS, pattern } from '../conformance/store.ts';
import { LARGE_OBJECT_BYTES, makeLargeReplica } from './large-replica.ts';
import { DiskFixture } from './stores.ts';

export const LARGE_FILE = fileId(1);
const SNAPSHOT = fileId(9);
const STAGED_AT_ONCE = 1_000;

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

/**
 * Stages as many objects of a byte each for an empty replica. @returns the installation of these, to be measured alone:
 * memory and time of it grow with the number of objects
 */
export async function stagedCopy(
  { store }: DiskFixture,
  file: FileId,
  objectCount: number,
): Promise<() => Promise<void>> {
  await begin(store, file, LARGE_OBJECT_BYTES);
  const bytes = Uint8Array.of(7);
  const changes = new Map<number, ObjectEntry>();
  for (let first = 0; first < objectCount; first += STAGED_AT_ONCE) {
    const stagings: Promise<void>[] = [];
    for (let index = first; index < Math.min(objectCount, first + STAGED_AT_ONCE); index++) {
      const entry = { index, versionEpoch: 1, versionSeq: 1, length: 1, crc32: crc32(bytes) };
      changes.set(index, entry);
      stagings.push(store.stage(file, { entry, bytes }));
    }
    await Promise.all(stagings);
  }
  const { attributes, record } = describeFile(store, file);
  const size = { ...attributes, sizeBytes: objectCount * LARGE_OBJECT_BYTES };
  const from = { epoch: record.installed, seq: record.seq };
  return () => store.install(file, epoch(2), 1, NO_SESSIONS, { attributes: size, changes, from, record });
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
