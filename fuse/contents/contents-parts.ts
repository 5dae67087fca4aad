import type { World } from '../../base/world.ts';
import type { FileSystemBackend } from '../backend.ts';
import type { DeadlineOf } from '../deadline.ts';
import type { MetadataCache } from '../metadata/cache.ts';
import type { AccessTimes } from '../pending/access-times.ts';
import type { PendingOps } from '../pending/pending-ops.ts';
import type { Log } from '../transport.ts';

export interface FileParts {
  readonly world: World;
  readonly backend: FileSystemBackend;
  readonly limitMs: number;
  readonly deadlineOf: DeadlineOf;
  readonly log: Log;
  readonly cache: MetadataCache;
  readonly accesses: AccessTimes;
  readonly pending: PendingOps;
}
