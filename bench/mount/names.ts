/** The ways to mount a volume that are measured, and what they are compared with. */
export const SUBJECT_NAMES = [
  'native',
  'kernel',
  'flush-behind',
  'disk',
  'bindfs',
  'gluster',
  'gluster-waits',
] as const;
/** Cache policies of a mount over the kernel transport, on one cluster; measured on request. */
export const POLICY_NAMES = ['ttl', 'leases'] as const;
export type PolicyName = (typeof POLICY_NAMES)[number];
export type SubjectName = (typeof SUBJECT_NAMES)[number] | PolicyName;

/** Subjects of this project, by the transport of their mount. */
export const OWN_NAMES = ['native', 'kernel'] as const satisfies readonly SubjectName[];

/**
 * Rows for subjects whose `close` is not the default one: `flush-behind`, which is `kernel` with a close that does not
 * wait, as in GlusterFS; and `gluster-waits`, whose close waits until its bricks have the contents, as here.
 */
export const CLOSE_ROWS: readonly RowName[] = ['create', 'create-8', 'untar', 'git-clone', 'dbench'];

/** The rows, in the order in which they are measured. */
export const ROW_NAMES = [
  'write-1m',
  'write-128k',
  'write-1m-fsync',
  'write-128k-fsync',
  'read-1m-cold',
  'read-128k-cold',
  'read-1m-cached',
  'random-read-1',
  'random-read-8',
  'random-write-1',
  'random-write-8',
  'create',
  'create-8',
  'stat',
  'unlink',
  'untar',
  'git-clone',
  'dbench',
  'list',
] as const;
export type RowName = (typeof ROW_NAMES)[number];
