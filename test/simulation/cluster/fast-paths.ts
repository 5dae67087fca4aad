/**
 * Fast paths of the product: ways that avoid a request, a sync or a wait, and that are right only under conditions. A
 * seed counts each one that is taken during a fault, by name; the short form demands them.
 */

import { CachingClient } from '../../../client/cluster/caching-client.ts';
import { Delegations } from '../../../client/cluster/delegations.ts';
import { PagesOfFile } from '../../../fuse/contents/written-pages.ts';
import { GrantedNames } from '../../../fuse/kernel-view/granted-names.ts';
import { InodesWithoutAcls } from '../../../fuse/kernel-view/inodes-without-acls.ts';
import { DelegatedDirectories } from '../../../fuse/metadata/delegated-directories.ts';
import { DelegationRequests } from '../../../fuse/metadata/delegation-requests.ts';
import { Creates } from '../../../fuse/pending/creates.ts';
import { UncommittedFile } from '../../../fuse/pending/uncommitted-file.ts';
import { Unlinks } from '../../../fuse/pending/unlinks.ts';
import { WriteBehind } from '../../../fuse/pending/write-behind.ts';
import { LocalFlush } from '../../../replica/local-flush.ts';
import { ReadLease } from '../../../replica/read-lease.ts';
import { Reset } from '../../../replica/reset.ts';
import { ClientCaches } from '../../../server/catalog/client-caches.ts';
import { Recaller } from '../../../server/catalog/recaller.ts';
import { CreateWithContents as ServerBirths } from '../../../server/file/create-with-contents.ts';
import { LiveMarks } from '../../../server/file/live-marks.ts';
import { MemberReports } from '../../../server/file/member-reports.ts';
import { SettleBatches } from '../../../server/file/settler.ts';
import { Succession } from '../../../server/file/succession.ts';
import { SynchronousWrites } from '../../../server/storage/synchronous-writes.ts';
import type { Run } from './run.ts';

type Method<Instance> = Extract<keyof Instance, string>;
type Result<Instance, Name extends Method<Instance>> = Instance[Name] extends (
  ...args: never
) => infer Returned
  ? Returned
  : never;

/** The names of all fast paths that are counted. */
const names: string[] = [];
/** The names of those that programs of the mounts' workloads take. */
const ofMountWork: string[] = [];
/** The names of those that a few short seeds may not take. */
const rare: string[] = [];
let current: Run | null = null;

/**
 * Counts calls of a method.
 *
 * @param isTaken whether a call with this result took the path; absent: each call does
 */
function watch<Instance extends object, Name extends Method<Instance>>(
  name: string,
  { prototype }: { readonly prototype: Instance },
  method: Name,
  isTaken: (result: Result<Instance, Name>) => boolean = () => true,
  list = names,
): void {
  const original = prototype[method] as (...args: unknown[]) => Result<Instance, Name>;
  const watched = function (this: Instance, ...args: unknown[]): Result<Instance, Name> {
    const result = original.apply(this, args);
    if (current?.cluster.isTroubled === true && isTaken(result)) current.count(name);
    return result;
  };
  Object.defineProperty(prototype, method, { value: watched, writable: true, configurable: true });
  list.push(name);
}

// Mounts.
watch('path: a file is created with its contents', Creates, 'send', undefined, ofMountWork);
watch('path: a directory is delegated', DelegationRequests, 'requestEnded');
watch(
  'path: a name is known in a delegated directory',
  DelegatedDirectories,
  'stateOf',
  (state) => state !== 'unknown',
);
watch('path: a delegation is recalled', DelegationRequests, 'recalled');
watch('path: a command is fenced by a delegation', Delegations, 'asOwner');
watch('path: an uncommitted file is written', UncommittedFile, 'writeParts', undefined, rare);
watch('path: attributes of an uncommitted file are set', UncommittedFile, 'setAttributes', undefined, rare);
watch('path: a file is unlinked asynchronously', Unlinks, 'add', undefined, ofMountWork);
watch('path: a listing is known', DelegatedDirectories, 'listing', (known) => known !== null, rare);
watch('path: pages that were written here are read', PagesOfFile, 'read', (bytes) => bytes !== null);
watch('path: a write is acknowledged before it is sent', WriteBehind, 'write');
watch(
  'path: the kernel is answered without a look',
  InodesWithoutAcls,
  'has',
  (isAbsent) => isAbsent,
  ofMountWork,
);
watch('path: a client answers from its cache', CachingClient, 'granted', (known) => known !== undefined);
watch('path: the kernel caches a granted name', GrantedNames, 'answered', (forMs) => forMs > 0, ofMountWork);

// Servers.
watch('path: numbers are reserved', ServerBirths, 'reserve');
watch('path: a server creates a file with its contents', ServerBirths, 'create', undefined, ofMountWork);
watch('path: a directory is delegated by the catalog', ClientCaches, 'delegate', (number) => number !== null);
watch('path: caches are recalled', ClientCaches, 'recall', (sessions) => sessions.length > 0);
watch(
  'path: a directory is recalled for kept attributes',
  Recaller,
  'directoriesToRecall',
  (directories) => directories.length > 0,
  rare,
);
watch('path: a read lease covers a read', ReadLease, 'covers', (covers) => covers);
watch('path: a file is marked as live', LiveMarks, 'set');
watch('path: the state of a file goes to the catalog', SettleBatches, 'settle');
watch('path: the catalog learns of a view', MemberReports, 'follow');
watch('path: a primary is succeeded in an orderly way', Succession, 'announce', undefined, rare);
watch('path: a flush waits for what it is for', LocalFlush, 'want');
watch('path: a replica keeps its contents in a reset', Reset, 'needsOnlyStamp', (keeps) => keeps);
watch(
  'path: bytes are written in the same turn',
  SynchronousWrites,
  'tryWrite',
  (isWritten) => isWritten,
  ofMountWork,
);

/** The names of those that the short form demands. */
export const FAST_PATHS: readonly string[] = names;
/** The names of those that the short form of mounts demands. */
export const MOUNT_PATHS: readonly string[] = ofMountWork;
/** The names of the others, which the totals of a night have. */
export const RARE_PATHS: readonly string[] = rare;

/** Counts for this run from now on; null ends it. */
export function countFastPaths(run: Run | null): void {
  current = run;
}
