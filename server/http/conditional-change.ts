import { ServiceError } from '../../base/errors.ts';
import type { FileId } from '../../base/ids.ts';
import type { Attributes, Expectation } from '../../wire/catalog-api.ts';
import { displayPath, type FilePath, volumePath } from '../requests/path.ts';
import type { Gateway } from '../routing/gateway.ts';
import { type Conditions, checkForChange, currentVersionOf } from './conditions.ts';

/** Attempts while other clients change the same name. */
const ATTEMPTS_MAX = 20;

export function hasConditions(conditions: Conditions): boolean {
  const { ifMatch, ifNoneMatch, ifUnmodifiedSince } = conditions;
  return ifMatch !== undefined || ifNoneMatch !== undefined || ifUnmodifiedSince !== undefined;
}

/** What must have the name for a change of it. */
export interface Precondition {
  /** Whether it holds whatever has the name. */
  readonly isAlways: boolean;
  /** @throws ServiceError `precondition-failed` */
  check(current: Attributes | null): Promise<void>;
}

export const NO_PRECONDITION: Precondition = { isAlways: true, check: async () => undefined };

/** The precondition of the headers of a request on `path`. */
export function preconditionOf(conditions: Conditions, path: FilePath): Precondition {
  return {
    isAlways: !hasConditions(conditions),
    check: async (current) => checkForChange(conditions, currentVersionOf(current), displayPath(path)),
  };
}

/** Returns the attributes at the path now; null for nothing. `follow` resolves a link at the end, and a junction. */
export async function attributesAt(
  gateway: Gateway,
  path: FilePath,
  { follow, live }: { readonly follow: boolean; readonly live: boolean },
): Promise<Attributes | null> {
  const end = follow ? {} : ({ junction: 'self' } as const);
  const place = { volume: path.volume, path: volumePath(path.names) };
  const query = { kind: 'resolve', ...place, follow, ...end } as const;
  try {
    // Only an entity tag needs the primary of a live file.
    const { attributes } = await (live ? gateway.query(query) : gateway.queryCatalog(query));
    return attributes;
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'not-found') return null;
    throw error;
  }
}

/**
 * Executes a change of names under the precondition of a request. It checks that against what exists; the catalog
 * refuses the change if that has changed since, and then both are repeated, a limited number of times. So no change is
 * made whose precondition does not hold.
 * @throws ServiceError `precondition-failed`; `busy` after the last attempt
 */
export async function changeUnderConditions<Result>(
  gateway: Gateway,
  path: FilePath,
  precondition: Precondition,
  follow: boolean,
  change: (expect: Expectation) => Promise<Result>,
): Promise<Result> {
  if (precondition.isAlways) return change({ kind: 'anything' });
  for (let attempt = 1; attempt <= ATTEMPTS_MAX; attempt++) {
    const current = await settleAndFind(gateway, path, follow);
    await precondition.check(current);
    try {
      return await change(expectationOf(current));
    } catch (error) {
      if (!isOutdated(error, current)) throw error;
    }
  }
  throw new ServiceError('busy', `${displayPath(path)} is being changed concurrently: retry later`);
}

function isOutdated(error: unknown, current: Attributes | null): boolean {
  if (!(error instanceof ServiceError) || error.details.outdated !== undefined) return false;
  return error.code === 'precondition-failed' || (error.code === 'not-found' && current !== null);
}

/** Settles a live file first, so that the catalog has its version. */
async function settleAndFind(gateway: Gateway, path: FilePath, follow: boolean): Promise<Attributes | null> {
  const current = await attributesAt(gateway, path, { follow, live: false });
  if (current === null || !current.live || current.kind !== 'file') return current;
  await gateway.files.settle(current.inode as FileId);
  return attributesAt(gateway, path, { follow, live: false });
}

function expectationOf(current: Attributes | null): Expectation {
  if (current === null) return { kind: 'nothing' };
  const { inode, kind, contents } = current;
  return kind === 'file' ? { kind: 'contents', inode, contents } : { kind: 'inode', inode };
}
